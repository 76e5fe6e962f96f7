package nic_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"nicemu/devices"
	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/devices/nic/nictest"

	"pgregory.net/rapid"
)

// TestMain sets the number of random walks: more than a million steps for each
// device, or a taste of them with -short.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !testing.Short() && !given {
		flag.Set("rapid.checks", "700")
	}
	os.Exit(m.Run())
}

// turn is a knob that changes how frames move, with values to try.
type turn struct {
	key    string
	values []string
}

// turns are the knobs and values that the device takes.
func turns(name string) (list []turn, err error) {
	pick := func(key string, values ...string) {
		d, e := devices.New(name)
		if e != nil {
			err = e
			return
		}
		values = slices.DeleteFunc(values, func(v string) bool { return d.Set(key, v) != nil })
		if len(values) > 0 {
			list = append(list, turn{key, values})
		}
	}
	pick("queues", "1", "2", "4")
	pick("ring.tx", "64", "128", "256", "512")
	pick("ring.rx", "64", "256")
	pick("ring.rx_refill", "1", "16")
	pick("ring.rx_reuse", "48")
	pick("ring.rx_alloc_fail", "0.1", "0.9", "1")
	pick("bql", "on", "off")
	pick("bql.limit_min", "3kb")
	pick("bql.limit_max", "9kb", "100kb")
	pick("fetch.latency", "860ns", "20us")
	pick("fetch.per_descriptor", "119ns")
	pick("fetch.bus_rate", "2gbit", "20gbit")
	pick("fetch.outstanding", "1", "4", "16")
	pick("fetch.arbitration", "rr", "most-empty")
	pick("fetch.launch_ahead", "100us", "2ms")
	pick("packet_buffers", "20kb")
	pick("max_packet", "1514b", "4032b")
	pick("arbitration", "strict", "strict-high", "rr", "drr")
	pick("txtime", "on")
	pick("gates", "1 2ms, e 3ms", "f 2ms, 0 1ms", "5 1500us, 2 1500us, 8 1500us")
	pick("gates.base_time", "0ns", "7ms")
	pick("writeback.threshold", "8", "16")
	pick("writeback.rs_stride", "4")
	pick("writeback.rs_descriptors", "4")
	pick("writeback.latency", "30us", "1us")
	pick("coalesce.rx_usecs", "0us", "1us", "3us", "10us", "64us", "1ms")
	pick("napi.tx_work", "8")
	pick("napi.tx_again", "8")
	pick("napi.weight", "2")
	pick("napi.repoll", "on", "off")
	pick("napi.stall_rate", "1000")
	pick("napi.stall_mean", "150us")
	pick("cpu.interrupt", "2us")
	pick("cpu.clean", "200ns")
	pick("cpu.receive", "700ns")
	pick("cpu.flush", "17us")
	pick("watchdog", "5ms")

	pick("qav", "on")
	pick("txpbsize", "8kb,8kb,4kb,4kb", "24kb")
	pick("dtxmxpktsz", "1536b", "4032b")
	pick("sp_wait_sr", "off")
	pick("queue0.txtime", "on")
	pick("queue1.txtime", "on")
	pick("queue0.idleslope", "20mbit", "1gbit")
	pick("queue1.idleslope", "100mbit")
	pick("queue0.hicredit", "153b")
	pick("queue1.hicredit", "3000b")
	pick("msix", "off")

	pick("bql", "v1", "merged")
	pick("oob", "long")
	pick("max_data", "8kb")
	pick("coalesce.tx_usecs", "0us", "200us")
	pick("drain", "3ms", "1s")
	d, err := devices.New(name)
	if err != nil {
		return nil, err
	}
	for _, k := range d.Knobs() {
		if k.Key == "coalesce.mode" {
			pick(k.Key, k.Enum...)
		}
	}
	return list, err
}

// TestLawsHoldAtEveryStep drives every device, with random legal overrides,
// through random sends, receptions, pauses of the link and waits, and audits
// conservation, order, BQL and the stop bits after each step; in the end
// everything must have drained and no queue may be stopped.
func TestLawsHoldAtEveryStep(t *testing.T) {
	for _, name := range devices.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			turns, err := turns(name)
			if err != nil {
				t.Fatal(err)
			}
			steps := 0
			rapid.Check(t, func(t *rapid.T) {
				d, err := devices.New(name)
				if err != nil {
					t.Fatal(err)
				}
				for _, turn := range turns {
					if rapid.Bool().Draw(t, "turn "+turn.key) {
						if err := d.Set(turn.key, rapid.SampledFrom(turn.values).Draw(t, turn.key)); err != nil {
							t.Fatal(err)
						}
					}
				}
				r, err := nictest.New(d, rapid.Uint64().Draw(t, "seed"))
				if err != nil {
					t.Skip(err) // overrides that contradict each other
				}
				steps += walk(t, r, d.TSO)
			})
			t.Logf("%d steps audited", steps)
		})
	}
}

func walk(t *rapid.T, r *nictest.Rig, gso bool) int {
	rate := int64(r.NIC.Config().Link.Rate)
	rng := r.Eng.Rand()
	const steps = 1500
	obeyBQL := rapid.Bool().Draw(t, "obey BQL")
	up := true
	for i := range steps {
		switch op := rng.IntN(100); {
		case op < 60:
			q := rng.IntN(r.NIC.Queues())
			drv, stack := r.NIC.XOFF(q)
			xdp := rng.IntN(20) == 0
			if !xdp && (drv || stack && obeyBQL) {
				break
			}
			f := r.Frame(q)
			f.XDP = xdp
			if rng.IntN(5) == 0 && gso {
				hdr := 54 + rng.IntN(30)
				f.GSO(hdr+1+rng.IntN(65000), hdr, 500+rng.IntN(960))
				if rng.IntN(2) == 0 {
					scatter(f, rng)
				}
			} else {
				f.Single(60 + rng.IntN(1455))
			}
			if rng.IntN(3) == 0 { // some of them late
				f.Launch = max(0, r.Eng.Now()+engine.Time(rng.IntN(2_200_000)-200_000))
			}
			r.Post(f, rng.IntN(4) == 0)
		case op < 75:
			f := r.Frame(rng.IntN(r.NIC.Queues()))
			f.Single(60 + rng.IntN(1455))
			r.NIC.Receive(f)
		case op < 77:
			r.NIC.SetRate([]int64{0, rate / 10, rate}[rng.IntN(3)])
		case op < 78 && (!up || rng.IntN(4) == 0):
			if up {
				r.NIC.Down(func() {})
			} else {
				r.NIC.Up()
			}
			up = !up
		default:
			r.Eng.AdvanceTo(r.Eng.Now() + engine.Time(rng.IntN(100_000)))
		}
		if err := audit(r); err != nil {
			t.Fatalf("step %d at %d ns: %v", i, r.Eng.Now(), err)
		}
	}
	r.NIC.SetRate(rate)
	if !up {
		r.NIC.Up()
	}
	for q := range r.NIC.Queues() {
		r.NIC.Flush(q)
	}
	r.Eng.AdvanceTo(r.Eng.Now() + 20*engine.Second)
	if err := audit(r); err != nil {
		t.Fatalf("drained: %v", err)
	}
	s := r.NIC.Stats()
	if s.Queued.Frames != 0 || s.Arrived != s.Delivered.Plus(s.RXDropped) {
		t.Fatalf("not drained: %+v", s)
	}
	for q := range r.NIC.Queues() {
		if r.Stopped(q) || r.NIC.RingUsed(q) != 0 {
			t.Fatalf("queue %d: stopped %v, %d descriptors in use after draining", q, r.Stopped(q), r.NIC.RingUsed(q))
		}
	}
	return steps
}

// scatter lays a frame out in up to 18 buffers of random lengths and places, as
// sendfile and splice can; most often the first holds the headers.
func scatter(f *nic.Frame, rng *rand.Rand) {
	f.Linear = min(1, rng.IntN(20))
	left, n := f.Len, min(f.HdrLen, f.Len)
	for i := 0; left > 0; i++ {
		if i == 17 {
			n = left
		}
		f.Bufs = append(f.Bufs, nic.Buf{Addr: rng.Uint64N(1 << 20), Len: n})
		left -= n
		n = min(left, 1+rng.IntN(1+2*left/18))
	}
}

func audit(r *nictest.Rig) error {
	if r.Err != nil {
		return r.Err
	}
	return r.NIC.Audit()
}

// Line rate is exact: n frames back to back take n times their wire time, the
// rounding of one nanosecond not added up.
func TestLineRateDoesNotDrift(t *testing.T) {
	for _, rate := range []string{"1gbit", "10gbit", "937mbit"} {
		d, _ := devices.New("generic")
		d.Config.BQL.On = false // its limit starts at 0: the first frames are far apart
		r := nictest.Build(t, d, "link.rate="+rate)
		n := 0
		var last engine.Time
		r.OnWire = func(_ *nic.Frame, end engine.Time) { n++; last = end }
		r.Saturate(1514)
		r.Eng.AdvanceTo(engine.Second)
		want := engine.Time((float64(n)*1538 - 12) * 8 * 1e9 / float64(d.Config.Link.Rate))
		if diff := last - want; diff < -1 || diff > 1 {
			t.Fatalf("%s: frame %d ends at %d, want %d", rate, n, last, want)
		}
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	for _, name := range devices.Names() {
		d, _ := devices.New(name)
		if n := nictest.Allocations(nictest.Build(t, d)); n != 0 {
			t.Errorf("%s: %v allocations a millisecond", name, n)
		}
	}
}

func BenchmarkFrame(b *testing.B) {
	for _, name := range devices.Names() {
		b.Run(name, func(b *testing.B) {
			d, _ := devices.New(name)
			nictest.Benchmark(b, nictest.Build(b, d))
		})
	}
}

func ExampleDevice() {
	d, _ := devices.New("generic")
	fmt.Println(d.Set("ring.tx", "4"))
	fmt.Println(d.Set("link.rate", "100"))
	// Output:
	// ring.tx = "4": expected 8 to 65536
	// link.rate = "100": rate "100": no unit; expected a number and a unit, e.g. 1gbit
}
