package scenarios

import (
	"fmt"
	"io"
	"time"
)

// Progress is one line on a terminal that tells what the run is doing. A nil
// Progress is silent.
type Progress struct {
	w     io.Writer
	label string
}

// NewProgress writes to w, which must be a terminal.
func NewProgress(w io.Writer) *Progress { return &Progress{w: w} }

// Case says which case of how many starts.
func (p *Progress) Case(i, n int, title string) {
	if p == nil {
		return
	}
	p.label = fmt.Sprintf("case %d of %d", i+1, n)
	if title != "" {
		p.label += ": " + title
	}
}

// Step shows what is going on.
func (p *Progress) Step(what string) {
	if p == nil {
		return
	}
	if p.label != "" {
		what = p.label + ", " + what
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s", what)
}

// clock shows the seconds of a known time go by, until the returned function is
// called.
func (p *Progress) clock(of time.Duration) (stop func()) {
	if p == nil {
		return func() {}
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Second / 4)
		defer tick.Stop()
		for start := time.Now(); ; {
			p.Step(fmt.Sprintf("%d of %d s", min(time.Since(start), of)/time.Second, of/time.Second))
			select {
			case <-tick.C:
			case <-end:
				return
			}
		}
	}()
	return func() { close(end); <-ended }
}

// Done clears the line.
func (p *Progress) Done() {
	if p == nil {
		return
	}
	p.label = ""
	fmt.Fprint(p.w, "\r\x1b[K")
}
