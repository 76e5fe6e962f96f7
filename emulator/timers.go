package emulator

import (
	"runtime"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// TimerPrecision sleeps n times for step nanoseconds as the live loop does and
// returns how late it woke, in nanoseconds.
func TimerPrecision(n int, step int64) (*hdrhistogram.Histogram, error) {
	p, err := newPoller(false)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	runtime.LockOSThread() // for good, see Loop.Run
	if err := preciseTimers(); err != nil {
		return nil, err
	}
	late := hdrhistogram.New(1, 10_000_000_000, 3)
	for range n {
		deadline := p.Now() + step
		for p.Now() < deadline {
			if err := p.Wait(deadline, nil); err != nil {
				return nil, err
			}
		}
		late.RecordValue(max(1, p.Now()-deadline))
	}
	return late, nil
}
