package source

import (
	"testing"

	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/replay/stack"
)

// pair is two generic cards behind a wire of no length that loses the frames
// that lose says.
type pair struct {
	a, b *stack.Stack
	lose func(f *nic.Frame) bool
	lost func(from *stack.Stack, f *nic.Frame)
}

// atOnce are cards that interrupt without moderation.
var atOnce = []string{"coalesce.rx_usecs", "0"}

func newPair(t *testing.T) *pair {
	p := &pair{a: build(t, "generic", pfifo, atOnce...), lose: func(*nic.Frame) bool { return false }}
	var err error
	if p.b, err = stack.New(p.a.Eng, nic.NewCPU(p.a.Eng), device(t, "generic", atOnce...), pfifo); err != nil {
		t.Fatal(err)
	}
	p.b.Pool = p.a.Pool
	for _, w := range [2][2]*stack.Stack{{p.a, p.b}, {p.b, p.a}} {
		from, to := w[0], w[1]
		from.OnWire(func(f *nic.Frame, _ engine.Time) {
			if p.lose(f) {
				p.lost(from, f)
				return
			}
			f.Retain()
			if !to.NIC.Receive(f) {
				t.Error("the receiving ring was full")
			}
		})
	}
	return p
}

func (p *pair) exchange() Exchange {
	return Exchange{
		Client: End{Stack: p.a}, Server: End{Stack: p.b}, Request: 1, Response: 1, Headers: TCPHeader, MSS: MSS,
	}
}

// A frame of 67 bytes is delivered 600 ns after its first bit: 75 bytes with the
// preamble at 1 Gbit/s, and cards without moderation.
func TestATransactionTakesBothWays(t *testing.T) {
	p := newPair(t)
	x := &Transactions{Exchange: p.exchange()}
	x.Interval = engine.Millisecond
	x.Start()
	p.a.Eng.AdvanceTo(999_500 * engine.Microsecond)
	if n := x.Latency.TotalCount(); n != 1000 {
		t.Errorf("%d transactions in a second, one each millisecond", n)
	}
	if got := x.Latency.Max(); got != 1200 {
		t.Errorf("round trip of %d ns, want 1200", got)
	}
	audit(t, p.a)
	audit(t, p.b)
}

func TestALongMessageArrivesWhole(t *testing.T) {
	for _, segmented := range []bool{false, true} {
		p := newPair(t)
		x := &Transactions{Exchange: p.exchange()}
		x.Request, x.Response, x.Segmented = 100_000, 3000, segmented
		x.Start()
		p.a.Eng.AdvanceTo(engine.Second)
		n := x.Latency.TotalCount()
		if n < 500 {
			t.Errorf("segmented %v: %d transactions", segmented, n)
		}
		// 70 segments there, 3 back.
		sent := p.b.NIC.Stats().Delivered.Bytes
		if least := uint64(n) * (100_000 + 70*TCPHeader); sent < least || sent > least+2*(100_000+70*TCPHeader) {
			t.Errorf("segmented %v: the server got %d bytes in %d transactions of %d", segmented, sent, n, 100_000+70*TCPHeader)
		}
		audit(t, p.a)
		audit(t, p.b)
	}
}

func TestWhatIsLostIsSentAgainAfterTheTimeOut(t *testing.T) {
	p := newPair(t)
	x := &Transactions{Exchange: p.exchange()}
	x.Request = 4 * MSS // one GSO frame, then one segment of it is 4 segments lost
	x.Interval = 10 * engine.Millisecond
	p.lost = x.Lost
	k := 0
	p.lose = func(f *nic.Frame) bool { k++; return k%11 == 0 } // requests and responses in turn
	x.Start()
	p.a.Eng.AdvanceTo(10 * engine.Second)
	n := x.Latency.TotalCount()
	// 2.2 frames a transaction: of 11 frames one is lost, which costs 200 ms.
	if n < 150 || n > 250 {
		t.Errorf("%d transactions in 10 s", n)
	}
	if late := x.Latency.Max(); late < int64(retransmit) || late > int64(retransmit)*2 {
		t.Errorf("the slowest took %d ns, a time-out is %d", late, retransmit)
	}
	audit(t, p.a)
	audit(t, p.b)
}

func TestEchoesGoOnWithoutAnswer(t *testing.T) {
	p := newPair(t)
	x := &Echoes{Exchange: p.exchange()}
	x.Interval = 10 * engine.Millisecond
	p.lost = x.Lost
	k := 0
	p.lose = func(*nic.Frame) bool { k++; return k%4 == 0 }
	x.Start()
	p.a.Eng.AdvanceTo(9_995 * engine.Millisecond)
	x.Stop()
	p.a.Eng.AdvanceTo(11 * engine.Second)
	if got, lost := uint64(x.Latency.TotalCount()), x.Unanswered(); got+lost != 1000 || lost < 300 {
		t.Errorf("%d answered, %d not, of 1000", got, lost)
	}
	audit(t, p.a)
	audit(t, p.b)
}
