package qdisc

import (
	"strings"
	"testing"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
)

func TestPFIFOFastServesTheFirstBandThatHoldsAnything(t *testing.T) {
	q := NewPFIFOFast(2)
	drops := 0
	// The band of each priority, as `tc qdisc show` prints pfifo_fast's priomap.
	const priomap = "1222120011111111"
	for p := range 16 {
		f := &nic.Frame{}
		f.Single(100 + p)
		f.Priority = uint32(p)
		q.Enqueue(f, 0, func(*nic.Frame, string) { drops++ })
	}
	if q.Len() != 6 || q.Bytes() != 6*100+6+7+0+4+1+2 || drops != 10 {
		t.Errorf("%d frames, %d bytes, %d dropped", q.Len(), q.Bytes(), drops)
	}
	var order []byte
	for f := q.Dequeue(0, nil); f != nil; f = q.Dequeue(0, nil) {
		order = append(order, priomap[f.Priority])
	}
	if string(order) != "001122" {
		t.Errorf("served in the order of bands %s", order)
	}
	if s := q.Stats(); s.Packets != 6 || s.Drops != 10 || s.Qlen != 0 || s.Kind != "pfifo_fast" {
		t.Errorf("%+v", s)
	}
}

func TestTCMakesWhatItSays(t *testing.T) {
	for line, want := range map[string]Qdisc{
		"pfifo_fast":      NewPFIFOFast(1000),
		"pfifo":           NewPFIFO(1000),
		"pfifo limit 7":   NewPFIFO(7),
		"bfifo":           NewBFIFO(1514000),
		"bfifo limit 3kb": NewBFIFO(3072),
		"fq_codel":        NewFQCodel(FQCodelConfig{}),
		"fq_codel limit 100 flows 8 target 1ms interval 20ms quantum 300 memory_limit 1mb drop_batch 3 noecn": NewFQCodel(FQCodelConfig{
			Limit: 100, Flows: 8, Target: engine.Millisecond, Interval: 20 * engine.Millisecond, Quantum: 300, MemoryLimit: 1 << 20, DropBatch: 3, NoECN: true,
		}),
		"fq_codel quantum 1": NewFQCodel(FQCodelConfig{Quantum: 256}),
	} {
		build, err := ParseTC(strings.Fields(line))
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		a, b := build(), build()
		if a == b {
			t.Errorf("%s: one qdisc for all queues", line)
		}
		switch got := a.(type) {
		case *FQCodel:
			if got.cfg != want.(*FQCodel).cfg {
				t.Errorf("%s: %+v", line, got.cfg)
			}
		case *FIFO:
			if *got != *want.(*FIFO) {
				t.Errorf("%s: %+v", line, got)
			}
		case *PFIFOFast:
			if *got != *want.(*PFIFOFast) {
				t.Errorf("%s: %+v", line, got)
			}
		}
	}
}

func TestTCSaysWhatItExpected(t *testing.T) {
	for line, want := range map[string]string{
		"":                           "no qdisc; expected one of pfifo_fast, pfifo, bfifo, fq_codel",
		"cake bandwidth 1gbit":       "there is no model of the qdisc cake; expected one of pfifo_fast, pfifo, bfifo, fq_codel",
		"pfifo_fast limit 3":         `the model of pfifo_fast has no option "limit"; expected none`,
		"pfifo limit":                "pfifo: no value after limit",
		"pfifo limit 0":              "pfifo: limit 0: expected 1 to 2147483647",
		"pfifo limit many":           "pfifo: limit many: expected 1 to 2147483647",
		"bfifo limit 3gbit":          `bfifo: limit 3gbit: size "3gbit": unknown unit`,
		"fq_codel target 5":          `fq_codel: target 5: duration "5": no unit`,
		"fq_codel target 5ns":        "fq_codel: target 5ns: expected at least 1024ns",
		"fq_codel ce_threshold 1ms":  `the model of fq_codel has no option "ce_threshold"; expected drop_batch, ecn, flows, interval, limit,`,
		"fq_codel limit 10 flows -1": "fq_codel: flows -1: expected 1 to 65536",
	} {
		_, err := ParseTC(strings.Fields(line))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s…", line, err, want)
		}
	}
}
