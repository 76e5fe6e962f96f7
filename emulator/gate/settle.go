package gate

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"nicemu/emulator/tap"
)

// settle does for a new root qdisc what the kernel does for a card but not for a TAP, and what grafting undid: it has the
// port choose queues by the root's priority map, and taprio start its schedule again.
func (g *Gate) settle(root *object) error {
	var ranges [16]tap.QueueRange
	for prio := range ranges {
		ranges[prio] = tap.QueueRange{Count: g.port.Queues()}
	}
	if root != nil {
		if m := priorityMap(*root); m != nil {
			ranges = m.ranges()
		}
	}
	if err := g.port.Steer(ranges); err != nil {
		return err
	}
	if root != nil && root.kind == "taprio" {
		return g.restartTaprio(*root)
	}
	return nil
}

// restart starts the schedule of a taprio root again.
func (g *Gate) restart() error {
	qdiscs, err := g.tc.list(unix.RTM_GETQDISC, unix.RTM_NEWQDISC, 0)
	if err != nil {
		return err
	}
	if root := at(qdiscs, netlink.HANDLE_ROOT); root != nil && root.kind == "taprio" {
		return g.restartTaprio(*root)
	}
	return nil
}

// prioMap is struct tc_mqprio_qopt (include/uapi/linux/pkt_sched.h).
type prioMap []byte

const (
	prioMapLen                    = 82
	prioToClass, counts, firstAts = 1, 18, 50
)

// priorityMap finds the map in the options of an mqprio or taprio, nil if there is none.
func priorityMap(root object) prioMap {
	if root.options == nil {
		return nil
	}
	m := prioMap(nil)
	switch root.kind {
	case "mqprio":
		m = prioMap(root.options.data)
	case "taprio":
		m = find(root.options.data, taprioPrioMap)
	}
	if len(m) < prioMapLen {
		return nil
	}
	return m
}

// ranges are the queues of each priority's traffic class.
func (m prioMap) ranges() (r [16]tap.QueueRange) {
	for prio := range r {
		class := int(m[prioToClass+prio] & 15)
		r[prio] = tap.QueueRange{
			First: int(binary.NativeEndian.Uint16(m[firstAts+2*class:])),
			Count: int(binary.NativeEndian.Uint16(m[counts+2*class:])),
		}
	}
	return r
}

// Attributes of taprio, enum in include/uapi/linux/pkt_sched.h.
const (
	taprioPrioMap   = 1
	taprioEntries   = 2
	taprioBaseTime  = 3
	taprioAdmin     = 7
	taprioCycleTime = 8
	taprioExtension = 9
)

// restartTaprio changes the root to what it is. Grafting a child on an interface that is up stops taprio's timer without a
// word, and a change starts it.
func (g *Gate) restartTaprio(root object) error {
	if root.options == nil {
		return errors.New("taprio without options")
	}
	root.options = &attr{root.options.kind, newestSchedule(root.options.data)}
	if err := g.tc.send(unix.RTM_NEWQDISC, noFlags, root); err != nil {
		return err
	}
	if running, known := taprioRuns(); known && !running {
		return fmt.Errorf("taprio's gates stand still after the gate was put beneath: no timer in /proc/timer_list")
	}
	return nil
}

// newestSchedule drops the schedule in force if another one waits to take over, and writes that as a change wants it: not
// wrapped.
func newestSchedule(options []byte) []byte {
	waiting := find(options, taprioAdmin)
	if waiting == nil {
		return options
	}
	schedule := []uint16{taprioEntries, taprioBaseTime, taprioCycleTime, taprioExtension, taprioAdmin}
	return append(without(options, schedule...), waiting...)
}

// taprioRuns looks for the timer of a schedule, known if the kernel shows the names of timers.
func taprioRuns() (running, known bool) {
	symbols, err := os.ReadFile("/proc/kallsyms")
	if err != nil || !bytes.Contains(symbols, []byte(" advance_sched")) {
		return false, false
	}
	for range 10 { // a timer whose function is running is not in the list
		timers, err := os.ReadFile("/proc/timer_list")
		if err != nil {
			return false, false
		}
		if bytes.Contains(timers, []byte("advance_sched")) {
			return true, true
		}
	}
	return false, true
}
