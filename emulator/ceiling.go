package emulator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"nicemu/devices/generic"
	"nicemu/emulator/netns"
	"nicemu/emulator/tap"
)

// Ceiling is what this host carries through the live loop between two kernels
// when no card limits it: no model faster than this can be shown at its speed.
type Ceiling struct {
	FramesPerS float64 // UDP datagrams of 18 bytes: minimum size frames
	BitsPerS   float64 // TCP bytes received, with TSO
}

// ceilingTime is how long each of the two measurements sends.
const ceilingTime = 300 * time.Millisecond

// MeasureCeiling sends through two cards of unlimited speed in namespaces of
// their own, first a TCP stream, then a flood of minimum size frames.
func MeasureCeiling(ctx context.Context, way Way) (c Ceiling, err error) {
	b, err := newBench(way)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	run, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- b.loop.Run(run) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	if c.BitsPerS, err = b.stream(ctx); err != nil {
		return c, fmt.Errorf("TCP stream: %w", err)
	}
	if c.FramesPerS, err = b.flood(ctx); err != nil {
		return c, fmt.Errorf("UDP flood: %w", err)
	}
	return c, ctx.Err()
}

// bench is two namespaces with a card each.
type bench struct {
	loop  *Loop
	ns    [2]*netns.NS
	cards [2]*Card
}

var benchAddr = [2]netip.Prefix{netip.MustParsePrefix("10.255.77.1/24"), netip.MustParsePrefix("10.255.77.2/24")}

func newBench(way Way) (b *bench, err error) {
	b = &bench{}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.loop, err = NewLoop(1); err != nil {
		return b, err
	}
	for i, name := range [2]string{"from", "to"} {
		if b.ns[i], err = netns.Create(fmt.Sprintf("%d-ceiling-%s", os.Getpid(), name)); err != nil {
			return b, err
		}
		d := generic.New()
		for _, kv := range [][2]string{{"link.rate", "1tbit"}, {"ring.tx", "4096"}, {"ring.rx", "4096"}, {"coalesce.rx_usecs", "10us"}} {
			if err = d.Set(kv[0], kv[1]); err != nil {
				return b, err
			}
		}
		cfg := tap.Config{Name: "eth0", Queues: 1, Csum: true, TSO: true, Addrs: []netip.Prefix{benchAddr[i]}}
		if b.cards[i], err = b.loop.NewTAPCard(b.ns[i], cfg, d, way); err != nil {
			return b, err
		}
		if err = b.cards[i].TakeQdisc(); err != nil {
			return b, err
		}
	}
	b.loop.Connect(b.cards[0], b.cards[1], LinkConfig{})
	return b, nil
}

func (b *bench) close() error {
	var errs []error
	for i := range b.ns {
		if b.cards[i] != nil {
			errs = append(errs, b.cards[i].Close())
		}
		if b.ns[i] != nil {
			errs = append(errs, b.ns[i].Delete())
		}
	}
	if b.loop != nil {
		errs = append(errs, b.loop.Close())
	}
	return errors.Join(errs...)
}

// stream is a TCP connection at full speed; bits received a second.
func (b *bench) stream(ctx context.Context) (float64, error) {
	var listener net.Listener
	err := b.ns[1].Do(func() (err error) {
		listener, err = net.Listen("tcp", netip.AddrPortFrom(benchAddr[1].Addr(), 0).String())
		return err
	})
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	var out net.Conn
	err = b.ns[0].Do(func() (err error) {
		d := net.Dialer{Timeout: 5 * time.Second}
		out, err = d.DialContext(ctx, "tcp", listener.Addr().String())
		return err
	})
	if err != nil {
		return 0, err
	}
	defer out.Close()
	in, err := listener.Accept()
	if err != nil {
		return 0, err
	}
	defer in.Close()
	end := time.Now().Add(ceilingTime)
	out.SetDeadline(end)
	in.SetDeadline(end)
	go func() {
		for buf := make([]byte, 128<<10); ; {
			if _, err := out.Write(buf); err != nil {
				return // the deadline
			}
		}
	}()
	start, bytes := time.Now(), 0
	for buf := make([]byte, 256<<10); ; {
		n, err := in.Read(buf)
		bytes += n
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return float64(bytes) * 8 / time.Since(start).Seconds(), nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// flood sends minimum size frames; frames a second that crossed the cards.
func (b *bench) flood(ctx context.Context) (float64, error) {
	var out net.Conn
	err := b.ns[0].Do(func() (err error) {
		out, err = net.Dial("udp", netip.AddrPortFrom(benchAddr[1].Addr(), 9).String())
		return err
	})
	if err != nil {
		return 0, err
	}
	defer out.Close()
	before, err := b.received()
	if err != nil {
		return 0, err
	}
	start := time.Now()
	for buf := make([]byte, 18); time.Since(start) < ceilingTime && ctx.Err() == nil; {
		for range 64 {
			out.Write(buf) // a full socket buffer or an ICMP answer is no reason to stop
		}
	}
	after, err := b.received()
	return float64(after-before) / time.Since(start).Seconds(), err
}

func (b *bench) received() (n uint64, err error) {
	err = b.loop.Do(func() { n = b.cards[1].nic.Stats().Delivered.Frames })
	return n, err
}
