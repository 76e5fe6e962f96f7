package gate

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/vishvananda/netlink/nl"

	"nicemu/emulator/tap"
)

// mqprioOptions is struct tc_mqprio_qopt: priorities 0…3 in class 1 (queues 2 and 3), all others in class 0 (0 and 1).
func mqprioOptions() []byte {
	b := []byte{2}
	for prio := range 16 {
		b = append(b, map[bool]byte{true: 1}[prio < 4])
	}
	b = append(b, 0)
	u16 := func(v ...uint16) {
		for i := range 16 {
			n := uint16(0)
			if i < len(v) {
				n = v[i]
			}
			b = binary.NativeEndian.AppendUint16(b, n)
		}
	}
	u16(2, 2)
	u16(0, 2)
	return b
}

func TestPriorityMapOfMqprioAndTaprioSteersLikeTheCard(t *testing.T) {
	taprio := nest(&attr{5, []byte{11, 0, 0, 0}}, &attr{taprioPrioMap, mqprioOptions()})
	for kind, options := range map[string]*attr{"mqprio": {nl.TCA_OPTIONS, mqprioOptions()}, "taprio": taprio} {
		m := priorityMap(object{kind: kind, options: options})
		if m == nil {
			t.Fatalf("%s: no map", kind)
		}
		for prio, got := range m.ranges() {
			want := tap.QueueRange{First: 0, Count: 2}
			if prio < 4 {
				want.First = 2
			}
			if got != want {
				t.Errorf("%s priority %d: %+v, want %+v", kind, prio, got, want)
			}
		}
	}
}

func TestRootsWithoutAMapHaveNone(t *testing.T) {
	for _, o := range []object{{kind: "mq"}, {kind: "taprio", options: &attr{nl.TCA_OPTIONS, nil}}, {kind: "mqprio", options: &attr{nl.TCA_OPTIONS, []byte{1, 2}}}} {
		if m := priorityMap(o); m != nil {
			t.Errorf("%+v: map %v", o, m)
		}
	}
}

func TestScheduleThatWaitsIsTheOneToRestart(t *testing.T) {
	waiting := nest(&attr{taprioBaseTime, []byte("new base")}, &attr{taprioEntries, []byte("new entries!")})
	running := nest(
		&attr{taprioPrioMap, mqprioOptions()},
		&attr{taprioBaseTime, []byte("old base")},
		&attr{taprioEntries, []byte("old entries!")},
		&attr{5, []byte{11, 0, 0, 0}},
	)
	if got := newestSchedule(running.data); !bytes.Equal(got, running.data) {
		t.Errorf("a schedule in force was changed: %q", got)
	}
	both := append(bytes.Clone(running.data), (&attr{taprioAdmin | nl.NLA_F_NESTED, waiting.data}).rta().Serialize()...)
	got := newestSchedule(both)
	if base, entries := find(got, taprioBaseTime), find(got, taprioEntries); string(base) != "new base" || string(entries) != "new entries!" {
		t.Errorf("base %q, entries %q", base, entries)
	}
	if find(got, taprioAdmin) != nil || find(got, 5) == nil || find(got, taprioPrioMap) == nil {
		t.Errorf("the rest did not stay: %q", got)
	}
}

func FuzzOptionsOfAnyShapeAreReadWithoutPanic(f *testing.F) {
	f.Add(mqprioOptions())
	f.Add([]byte{4, 0, 7, 0, 3, 0, 7, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		for kind := range uint16(12) {
			find(b, kind)
		}
		newestSchedule(b)
		for _, kind := range []string{"mqprio", "taprio", "htb", "u32", "pfifo"} {
			o := object{kind: kind, options: &attr{nl.TCA_OPTIONS, b}}
			if m := priorityMap(o); m != nil {
				m.ranges()
			}
			before := bytes.Clone(b)
			replayable(o)
			fifoLimit(o)
			if !bytes.Equal(b, before) {
				t.Fatal("the kernel's words were changed in place")
			}
		}
	})
}

func TestClassesAreMadeAfterTheClassTheyAreIn(t *testing.T) {
	classes := []object{{handle: 0x10030, parent: 0x10020}, {handle: 0x10020, parent: 0x10001}, {handle: 0x10001, parent: 0xffffffff}, {handle: 0x10010, parent: 0x10001}}
	parentsFirst(classes)
	made := map[uint32]bool{0xffffffff: true}
	for _, c := range classes {
		if !made[c.parent] {
			t.Fatalf("class %x before its parent %x: %v", c.handle, c.parent, classes)
		}
		made[c.handle] = true
	}
}

func TestQdiscThatNothingIsAttachedToMayChangeItsHandle(t *testing.T) {
	for _, c := range []struct {
		tree tree
		want bool
	}{
		{tree{qdiscs: []object{{kind: "fq_codel"}}}, true},
		{tree{qdiscs: []object{{kind: "fq_codel"}}, filters: []object{{}}}, false},
		{tree{qdiscs: []object{{kind: "htb"}}}, false},
		{tree{qdiscs: []object{{kind: "netem"}, {kind: "pfifo"}}}, false},
	} {
		if got := c.tree.isLeaf(); got != c.want {
			t.Errorf("%+v: %t, want %t", c.tree, got, c.want)
		}
	}
}
