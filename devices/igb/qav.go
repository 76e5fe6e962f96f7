package igb

import (
	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/devices/units"
)

// The units of TQAVCC and TQAVHC: the idle slope counts the link's bit rate in
// 61034 steps, the credit counts half of that for each byte (i210 datasheet
// 7.2.7.7).
const (
	creditPerBit  = 61034
	creditPerByte = 0x7735
)

// launchStep is the unit of a launch time, and launchCycle how many make up a
// second, which is all that a descriptor says.
const (
	launchStep  = 32 * engine.Nanosecond
	launchCycle = engine.Second / launchStep
)

func (c *card) launches(q int) bool { return q < srQueues && c.sr[q].txtime }

// credits is TQAVCTRL.DATATRANARB, which a cbs on either queue sets.
func (c *card) credits() bool { return c.sr[0].idle > 0 || c.sr[1].idle > 0 }

// launchTime is when the card starts f by the position in the second that
// igb_tx_ctxtdesc writes: times that have come, and those half a second ahead or
// more, are expired and mean at once (i210 datasheet p. 290).
func (c *card) launchTime(n *nic.NIC, f *nic.Frame) engine.Time {
	if !c.launches(f.Queue) {
		return 0
	}
	return launchAt(n.Engine().Now(), f.Launch)
}

func launchAt(now, t engine.Time) engine.Time {
	ahead := (t/launchStep - now/launchStep) % launchCycle
	if ahead < 0 {
		ahead += launchCycle
	}
	if ahead == 0 || ahead >= launchCycle/2 {
		return 0
	}
	return (now/launchStep + ahead) * launchStep
}

// shapers are what the transmit arbitration asks of queue q.
func (c *card) shapers(n *nic.NIC, q int) []nic.Shaper {
	var list []nic.Shaper
	if !c.qav {
		return nil
	}
	if q < srQueues && (c.sr[q].on() || q == 0 && c.credits()) {
		if c.sr[q].txtime {
			list = append(list, nic.LaunchTime{})
		}
		if c.credits() {
			list = append(list, c.credit(q))
		}
		return list
	}
	if !c.waitSR {
		return nil
	}
	guard := &nic.Guard{NIC: n, Bytes: c.maxPkt}
	for sr := range min(srQueues, n.Queues()) {
		if c.launches(sr) {
			guard.Queues = append(guard.Queues, sr)
		}
	}
	if len(guard.Queues) > 0 {
		list = append(list, guard)
	}
	return list
}

// credit is what igb_config_tx_modes programs. Queue 0 without a cbs of its own
// gets the whole link and one frame.
func (c *card) credit(q int) nic.Shaper {
	kbps, high := int64(c.sr[q].idle/units.Kbit), int(c.sr[q].high)
	if kbps == 0 {
		kbps, high = 1_000_000, 1514
	}
	return nic.NewCredit((kbps*creditPerBit+999_999)/1_000_000, creditPerBit, high)
}
