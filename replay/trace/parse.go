package trace

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
)

const (
	maxInstants = 4 << 20 // milliseconds that have opportunities: 8 bytes each, so 32 MB; over an hour without a gap
	maxDigits   = 20
	bufferSize  = 64 << 10
)

// What is unlikely to be meant.
const (
	absurdPeak = 100e9       // bit/s in one millisecond
	absurdMean = 10e3        // bit/s, below
	absurdGap  = 10_000      // ms without an opportunity
	msBits     = ipBytes * 8 // bits of one opportunity
)

// SyntaxError is a line that is not what the format wants.
type SyntaxError struct {
	File         string
	Line, Column int // from 1; column 0: the whole line
	Found        string
	Expected     string
}

func (e *SyntaxError) Error() string {
	place := fmt.Sprintf("%s:%d", e.File, e.Line)
	if e.Column > 0 {
		place += fmt.Sprintf(":%d", e.Column)
	}
	return fmt.Sprintf("%s: %s, expected %s", place, e.Found, e.Expected)
}

// Warning is a line that is legal and absurd.
type Warning struct {
	File string
	Line int // 0: the whole file
	Text string
}

func (w Warning) String() string {
	if w.Line == 0 {
		return fmt.Sprintf("%s: %s", w.File, w.Text)
	}
	return fmt.Sprintf("%s:%d: %s", w.File, w.Line, w.Text)
}

// Open reads the trace at path. Errors are *SyntaxError for content, *os.PathError otherwise.
func Open(path string) (*Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Parse(f, path)
}

// parser keeps what the warnings need while lines go by.
type parser struct {
	*Trace
	file         string
	line         int
	first        int // line on which the current millisecond began
	peak, peakAt uint32
	peakLine     int
	gap, gapFrom uint32
	gapLine      int
}

// Parse reads a trace; name stands for the file in errors. Its memory is bounded: a trace with more than 4 Mi different milliseconds is refused.
func Parse(in io.Reader, name string) (*Trace, error) {
	p := parser{Trace: new(Trace), file: name}
	lines := bufio.NewReaderSize(in, bufferSize)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
			return nil, fmt.Errorf("%s:%d: %w", name, p.line+1, err)
		}
		if len(line) > 0 {
			p.line++
			if err := p.add(line); err != nil {
				return nil, err
			}
		}
		if err == io.EOF {
			break
		}
	}
	return p.end()
}

func (p *parser) bad(column int, expected, found string, args ...any) error {
	return &SyntaxError{File: p.file, Line: max(1, p.line), Column: column, Found: fmt.Sprintf(found, args...), Expected: expected}
}

// add takes a line with its end.
func (p *parser) add(line []byte) error {
	v, err := p.number(line)
	if err != nil {
		return err
	}
	n := len(p.at)
	if n > 0 && v < p.at[n-1] {
		return p.bad(0, fmt.Sprintf("%d or more: time does not go back", p.at[n-1]), "%d", v)
	}
	if n > 0 && v == p.at[n-1] {
		if p.upTo[n-1] == math.MaxUint32 {
			return p.bad(0, fmt.Sprintf("at most %d", uint32(math.MaxUint32)), "one more line")
		}
		p.upTo[n-1]++
		return nil
	}
	if n == maxInstants {
		return p.bad(0, fmt.Sprintf("at most %d", maxInstants), "one more millisecond that is different")
	}
	return p.instant(v)
}

// instant begins a new millisecond.
func (p *parser) instant(v uint32) error {
	p.close()
	var last, sum uint32
	if n := len(p.at); n > 0 {
		last, sum = p.at[n-1], p.upTo[n-1]
		if sum == math.MaxUint32 {
			return p.bad(0, fmt.Sprintf("at most %d", uint32(math.MaxUint32)), "one more line")
		}
	}
	if v-last > p.gap {
		p.gap, p.gapFrom, p.gapLine = v-last, last, p.line
	}
	p.at, p.upTo, p.first = append(p.at, v), append(p.upTo, sum+1), p.line
	return nil
}

// close ends the current millisecond.
func (p *parser) close() {
	if n := len(p.at); n > 0 {
		if c := uint32(p.count(n - 1)); c > p.peak {
			p.peak, p.peakAt, p.peakLine = c, p.at[n-1], p.first
		}
	}
}

const expectedNumber = "milliseconds as digits"

func (p *parser) number(line []byte) (uint32, error) {
	if n := len(line); line[n-1] == '\n' {
		line = line[:n-1]
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	if len(line) == 0 {
		return 0, p.bad(0, expectedNumber, "empty line")
	}
	var v uint64
	for i, c := range line {
		if c < '0' || c > '9' {
			return 0, p.bad(i+1, expectedNumber, "%q", rune(c))
		}
		if v = v*10 + uint64(c-'0'); v > math.MaxUint32 || i >= maxDigits {
			return 0, p.bad(0, fmt.Sprintf("at most %d ms", uint32(math.MaxUint32)), "number %s…", line[:min(len(line), maxDigits)])
		}
	}
	return uint32(v), nil
}

// end checks the whole.
func (p *parser) end() (*Trace, error) {
	switch {
	case len(p.at) == 0:
		return nil, p.bad(0, "at least one line with "+expectedNumber, "empty file")
	case p.Period() == 0:
		return nil, p.bad(0, "a last number above 0: it is the period", "0")
	}
	p.close()
	if rate := float64(p.peak) * msBits * 1e3; rate > absurdPeak {
		p.warn(p.peakLine, "%d opportunities in millisecond %d are %.4g Gbit/s", p.peak, p.peakAt, rate/1e9)
	}
	if p.gap > absurdGap {
		p.warn(p.gapLine, "no opportunity for %.4g s, from %d ms to %d ms", float64(p.gap)/1e3, p.gapFrom, p.gapFrom+p.gap)
	}
	if mean := p.Mean(); mean < absurdMean {
		p.warn(0, "mean rate %.4g bit/s: are these milliseconds?", mean)
	}
	return p.Trace, nil
}

func (p *parser) warn(line int, text string, args ...any) {
	p.warnings = append(p.warnings, Warning{p.file, line, fmt.Sprintf(text, args...)})
}
