package itest

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A program that spins on the clock, as iperf3 does while it waits for its peer's
// results, would hold the processor in virtual time until the next tick, 4 ms
// later, and each look moves the clock by 256 ns only.
func TestIntegrationLabAProgramThatSpinsDelaysNobody(t *testing.T) {
	if !inLab(t) {
		return
	}
	const span = time.Second
	type spun struct {
		looks int
		took  time.Duration
	}
	done := make(chan spun)
	began := clock(unix.CLOCK_MONOTONIC)
	go func() {
		s := spun{}
		for s.took < span {
			s.took = clock(unix.CLOCK_MONOTONIC) - began
			s.looks++
		}
		done <- s
	}()
	var latest time.Duration
	pause := unix.NsecToTimespec(int64(time.Millisecond))
	for range span / time.Millisecond {
		slept := clock(unix.CLOCK_MONOTONIC)
		if err := unix.Nanosleep(&pause, nil); err != nil {
			t.Fatal(err)
		}
		latest = max(latest, clock(unix.CLOCK_MONOTONIC)-slept-time.Millisecond)
	}
	s := <-done
	// 64 looks are free, 16 µs; then each takes no more than 100 µs, but that the Go
	// runtime does something else now and then.
	if latest > 30*time.Microsecond {
		t.Errorf("another program woke %v late", latest)
	}
	if s.took > span+200*time.Microsecond || s.looks > 100_000 {
		t.Errorf("%d looks took %v", s.looks, s.took)
	}
	t.Logf("another program woke at most %v late; %d looks took %v", latest, s.looks, s.took)
}
