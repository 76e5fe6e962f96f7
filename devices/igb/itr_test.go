package igb

import (
	"strings"
	"testing"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
)

func TestRxUsecsIsLegalAsTheDriverHasIt(t *testing.T) {
	for value, ok := range map[string]bool{
		"0": true, "1": true, "2": false, "3": true, "4": false, "9": false, "10": true, "10us": true,
		"10000": true, "10001": false, "1500ns": false, "10500ns": false,
	} {
		if err := New().Set("coalesce.rx_usecs", value); (err == nil) != ok {
			t.Errorf("rx-usecs %s: %v", value, err)
		}
	}
	err := New().Set("coalesce.rx_usecs", "2")
	if err == nil || !strings.Contains(err.Error(), "expected 0, 1, 3, or 10 to 10000") {
		t.Errorf("%v", err)
	}
}

// EITR has 13 bits of microseconds: the driver takes 10000 and the card makes
// 1808 of it, (40000 & 0x7FFC) / 4.
func TestFixedIntervalIsWhatTheRegisterHolds(t *testing.T) {
	for us, want := range map[int]engine.Time{0: 1_000, 10: 10_000, 162: 162_000, 8191: 8_191_000, 8192: 1_000, 10000: 1_808_000} {
		if got := interval(us * 4); got != want {
			t.Errorf("rx-usecs %d: %d ns, want %d", us, got, want)
		}
	}
}

func settle(m nic.Moderation, w nic.Work) engine.Time {
	var t engine.Time
	for range 10 {
		t += engine.Millisecond
		m.Fired(t)
		m.Polled(t, w)
	}
	return m.Due(t) - t
}

// The interval follows the mean size: (1514 + 24) / 2 = 769 quarters for full
// frames, a third for middling ones, and the conservative setting keeps 49 µs.
func TestSeveralVectorsFollowTheMeanSize(t *testing.T) {
	for _, c := range []struct {
		usecs  string
		frames int
		size   int
		want   engine.Time
	}{
		{usecs: "3", frames: 8, size: 1514, want: 192_000},
		{usecs: "1", frames: 8, size: 1514, want: 192_000},
		{usecs: "1", frames: 8, size: 60, want: 10_000}, // 84/2 = 42 -> 40 quarters
		{usecs: "3", frames: 8, size: 60, want: 49_000},
		{usecs: "1", frames: 8, size: 600, want: 52_000}, // 624/3 = 208
		{usecs: "3", frames: 2, size: 9014, want: 375_000},
	} {
		d := New()
		if err := d.Set("coalesce.rx_usecs", c.usecs); err != nil {
			t.Fatal(err)
		}
		w := nic.Work{TXFrames: c.frames, TXPackets: c.frames, TXBytes: c.frames * c.size}
		if got := settle(d.Rules.Moderation(&d.Config), w); got != c.want {
			t.Errorf("rx-usecs %s, frames of %d: %d ns, want %d", c.usecs, c.size, got, c.want)
		}
	}
}

// One vector: the states move with what an interrupt found, step by step as
// igb_update_itr has them; at 1 Gbit/s full frames come 4 in 49 µs, too few for
// bulk.
func TestOneVectorHasThreeStates(t *testing.T) {
	for _, c := range []struct {
		from           latency
		packets, bytes int
		want           latency
	}{
		{lowest, 0, 0, lowest},
		{lowest, 4, 512, lowest},
		{lowest, 4, 513, low},
		{lowest, 5, 7570, lowest},
		{lowest, 2, 16002, bulk},
		{low, 4, 6056, low},
		{low, 7, 10598, bulk},
		{low, 10, 10010, low},
		{low, 10, 12020, bulk},
		{low, 36, 36000, lowest},
		{low, 35, 35000, low},
		{low, 4, 8004, bulk},
		{low, 2, 511, lowest},
		{low, 2, 512, low},
		{bulk, 20, 30280, bulk},
		{bulk, 36, 25001, low},
		{bulk, 1, 1499, low},
		{bulk, 1, 1500, bulk},
	} {
		if got := c.from.next(c.packets, c.bytes); got != c.want {
			t.Errorf("state %d, %d packets, %d bytes: %d, want %d", c.from, c.packets, c.bytes, got, c.want)
		}
	}
	for _, c := range []struct {
		usecs string
		size  int
		want  engine.Time
	}{
		{"1", 60, 14_000},
		{"3", 60, 49_000},
		{"1", 1514, 49_000},
		{"3", 16002, 245_000},
	} {
		d := New()
		for k, v := range map[string]string{"coalesce.rx_usecs": c.usecs, "msix": "off", "queues": "1"} {
			if err := d.Set(k, v); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Check(); err != nil {
			t.Fatal(err)
		}
		if got := settle(d.Rules.Moderation(&d.Config), nic.Work{RXFrames: 1, RXBytes: c.size}); got != c.want {
			t.Errorf("rx-usecs %s, frames of %d bytes: %d ns, want %d", c.usecs, c.size, got, c.want)
		}
	}
}

// A new value is written at the next interrupt, so the one after waits for it.
func TestANewIntervalCountsFromTheNextInterrupt(t *testing.T) {
	d := New()
	m := d.Rules.Moderation(&d.Config)
	m.Fired(0)
	m.Polled(0, nic.Work{TXFrames: 1, TXPackets: 1, TXBytes: 1514})
	if got := m.Due(0); got != 162_000 {
		t.Errorf("after the first interrupt: %d ns, want the 162 µs of IGB_START_ITR", got)
	}
	m.Fired(162_000)
	if got := m.Due(162_000) - 162_000; got != 192_000 {
		t.Errorf("after the second: %d ns, want 192 µs", got)
	}
}

func TestSlowLinksGetFourThousandInterrupts(t *testing.T) {
	d := New()
	if err := d.Set("link.rate", "100mbit"); err != nil {
		t.Fatal(err)
	}
	if got := settle(d.Rules.Moderation(&d.Config), nic.Work{TXFrames: 1, TXPackets: 1, TXBytes: 60}); got != 245_000 {
		t.Errorf("%d ns, want 245 µs", got)
	}
}

func TestContradictionsAreRefused(t *testing.T) {
	for _, c := range []struct{ settings, want string }{
		{"queue0.txtime=on", "need Qav mode"},
		{"queue1.idleslope=20mbit", "need Qav mode"},
		{"txpbsize=8kb,8kb,4kb,4kb", "legacy mode has one packet buffer"},
		{"qav=on txpbsize=20kb", "each of the four queues"},
		{"qav=on txpbsize=8kb,8kb,8kb,4kb", "28kb in all, the card has 24kb"},
		{"qav=on txpbsize=8kb,8kb,4kb,4kb dtxmxpktsz=4096", "never filled"},
		{"qav=on link.rate=10mbit", "100mbit and 1gbit"},
		{"qav=on queue0.idleslope=20mbit queue1.txtime=on", "never send"},
		{"msix=off", "set queues to 1"},
	} {
		d := New()
		for _, s := range strings.Fields(c.settings) {
			key, value, _ := strings.Cut(s, "=")
			if err := d.Set(key, value); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", c.settings, err, c.want)
		}
	}
	for key, value := range map[string]string{
		"ring.tx": "4097", "txpbsize": "6000b", "dtxmxpktsz": "1500b", "queue0.idleslope": "1500bit",
		"link.rate": "2500mbit", "queues": "5", "queue2.txtime": "on",
	} {
		if err := New().Set(key, value); err == nil {
			t.Errorf("%s = %s is taken", key, value)
		}
	}
	d := New()
	if err := d.Set("ring.tx", "65"); err != nil || d.Config.Ring.TX != 72 {
		t.Errorf("ring.tx 65 becomes %d, want 72 as the driver rounds (%v)", d.Config.Ring.TX, err)
	}
}
