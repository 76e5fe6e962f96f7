package trace

import (
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime/metrics"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func parse(t testing.TB, text string) *Trace {
	t.Helper()
	tr, err := Parse(strings.NewReader(text), "x")
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

type instant struct {
	At int64
	N  int
}

func firstInstants(tr *Trace, n int) (out []instant) {
	at, k := tr.Next(-1)
	for range n {
		out = append(out, instant{at, k})
		at, k = tr.Next(at)
	}
	return out
}

func TestATraceRepeatsWithItsLastNumberAsPeriod(t *testing.T) {
	for text, want := range map[string][]instant{
		"1\n":                {{1e6, 1}, {2e6, 1}, {3e6, 1}},
		"5":                  {{5e6, 1}, {10e6, 1}, {15e6, 1}},
		"1\r\n1\r\n4\r\n":    {{1e6, 2}, {4e6, 1}, {5e6, 2}, {8e6, 1}},
		"0\n0\n3\n":          {{0, 2}, {3e6, 3}, {6e6, 3}},
		"0\n2\n2\n7\n7\n7\n": {{0, 1}, {2e6, 2}, {7e6, 4}, {9e6, 2}, {14e6, 4}},
	} {
		if d := cmp.Diff(want, firstInstants(parse(t, text), len(want))); d != "" {
			t.Errorf("%q: %s", text, d)
		}
	}
}

func TestOneLinePerMillisecondIsTwelveMegabit(t *testing.T) {
	tr := parse(t, "1\n")
	if got := tr.Rate(0, 1e9); got != 11988000 { // the opportunity at 1 s belongs to the next second
		t.Error(got)
	}
	if got := tr.Rate(1, 1e9+1); got != 12e6 {
		t.Error(got)
	}
	if got := tr.Mean(); got != 12e6 {
		t.Errorf("mean %g", got)
	}
	if got := tr.Rate(5, 5); got != 0 {
		t.Error(got)
	}
	if tr.Period() != 1e6 || tr.Opportunities() != 1 || tr.Warnings() != nil {
		t.Error(tr)
	}
}

// mahimahi is what mm-link does, line by line: the oracle.
func mahimahi(schedule []int64, until int64) map[int64]int {
	out := map[int64]int{}
	base := int64(0)
	for i := 0; base+schedule[i] <= until; {
		out[base+schedule[i]]++
		if i++; i == len(schedule) {
			i = 0
			base += schedule[len(schedule)-1]
		}
	}
	return out
}

// drawTrace is a schedule of up to 12 opportunities, in ms, and its text.
func drawTrace(t *rapid.T) (schedule []int64, text string) {
	at := int64(0)
	for range rapid.IntRange(1, 12).Draw(t, "lines") {
		at += rapid.Int64Range(0, 4).Draw(t, "step")
		schedule = append(schedule, at)
	}
	if at == 0 {
		schedule = append(schedule, 1)
	}
	for _, s := range schedule {
		text += strconv.FormatInt(s, 10) + "\n"
	}
	return schedule, text
}

func TestNextAndCountAgreeWithMahimahi(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		schedule, text := drawTrace(t)
		tr, err := Parse(strings.NewReader(text), "x")
		if err != nil {
			t.Fatal(err)
		}
		const until = 100
		want := mahimahi(schedule, until)
		got := map[int64]int{}
		for at, n := tr.Next(-1); at <= until*ms; at, n = tr.Next(at) {
			got[at/ms] = n
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
		from, to := rapid.Int64Range(0, until*ms).Draw(t, "from"), rapid.Int64Range(0, until*ms).Draw(t, "to")
		var count int64
		for at, n := range want {
			if at*ms >= from && at*ms < to {
				count += int64(n)
			}
		}
		if n := tr.Count(from, max(from, to)); n != count {
			t.Fatalf("Count(%d, %d) = %d, want %d", from, to, n, count)
		}
		between := rapid.Int64Range(0, until*ms-1).Draw(t, "instant")
		if at, _ := tr.Next(between); at <= between || tr.Count(between+1, at) != 0 {
			t.Fatalf("Next(%d) = %d", between, at)
		}
	})
}

func TestTimeEndsWithoutOverflow(t *testing.T) {
	tr := parse(t, "0\n4294967295\n")
	for _, after := range []int64{math.MaxInt64, math.MaxInt64 - 1} {
		if at, n := tr.Next(after); at != math.MaxInt64 || n != 0 {
			t.Error(at, n)
		}
	}
}

func TestWrongTracesSayFileLineAndWhatWasExpected(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "x:1: empty file, expected at least one line with milliseconds as digits",
		"1\n\n2\n":                          "x:2: empty line, expected milliseconds as digits",
		"1\n2x\n":                           "x:2:2: 'x', expected milliseconds as digits",
		"# trace\n":                         "x:1:1: '#', expected milliseconds as digits",
		"-1\n":                              "x:1:1: '-', expected milliseconds as digits",
		"1\n2.5\n":                          "x:2:2: '.', expected milliseconds as digits",
		"5\n4\n":                            "x:2: 4, expected 5 or more: time does not go back",
		"0\n0\n":                            "x:2: 0, expected a last number above 0: it is the period",
		"1700000000000\n":                   "x:1: number 1700000000000…, expected at most 4294967295 ms",
		strings.Repeat("0", 1<<20):          "x:1: number 00000000000000000000…, expected at most 4294967295 ms",
		"1\n" + string(make([]byte, 1<<20)): "x:2:1: '\\x00', expected milliseconds as digits",
	} {
		_, err := Parse(strings.NewReader(text), "x")
		var bad *SyntaxError
		if !errors.As(err, &bad) || err.Error() != want {
			t.Errorf("%.20q:\n got %v\nwant %s", text, err, want)
		}
	}
}

func TestReadErrorsKeepTheirCause(t *testing.T) {
	broken := errors.New("broken")
	if _, err := Parse(io.MultiReader(strings.NewReader("1\n"), iotest.ErrReader(broken)), "x"); !errors.Is(err, broken) || err.Error() != "x:2: broken" {
		t.Error(err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestOpenReadsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.down")
	if err := os.WriteFile(path, []byte("1\n2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if tr, err := Open(path); err != nil || tr.Period() != 2e6 {
		t.Error(tr, err)
	}
}

func TestAbsurdRatesAreWarnedAbout(t *testing.T) {
	for text, want := range map[string][]string{
		"1\n" + strings.Repeat("2\n", 8333) + "3\n": nil,
		"1\n" + strings.Repeat("2\n", 9000) + "3\n": {"x:2: 9000 opportunities in millisecond 2 are 108 Gbit/s"},
		"1\n10001\n":                           {"x: mean rate 2400 bit/s: are these milliseconds?"},
		"7\n" + strings.Repeat("10008\n", 100): {"x:2: no opportunity for 10 s, from 7 ms to 10008 ms"},
		strings.Repeat("15000\n", 100):         {"x:1: no opportunity for 15 s, from 0 ms to 15000 ms"},
	} {
		var got []string
		for _, w := range parse(t, text).Warnings() {
			got = append(got, w.String())
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%.20q: %s", text, d)
		}
	}
}

// counter writes rising numbers for ever.
type counter struct {
	n    int
	line []byte
}

func (c *counter) Read(p []byte) (int, error) {
	if len(c.line) == 0 {
		c.n++
		c.line = append(strconv.AppendInt(c.line[:0], int64(c.n), 10), '\n')
	}
	n := copy(p, c.line)
	c.line = c.line[n:]
	return n, nil
}

func TestAnEndlessTraceIsRefusedInBoundedMemory(t *testing.T) {
	_, err := Parse(&counter{}, "x")
	if err == nil || err.Error() != "x:4194305: one more millisecond that is different, expected at most 4194304" {
		t.Error(err)
	}
}

// fuzzMemory is a buffer, and the runtime's habit of counting allocations late and in bulk.
const fuzzMemory = 8 << 20

func FuzzTrace(f *testing.F) {
	for _, seed := range []string{"1\n", "0\n0\n3\n", "1\r\n1\r\n4\r\n", "5\n4\n", "1\n\n", "1\n2x\n", "4294967295\n", "4294967296", "000000000000000000001"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := allocated()
		tr, err := Parse(strings.NewReader(string(text)), "x")
		if n := allocated() - before; n > fuzzMemory+uint64(len(text))*64 {
			t.Fatalf("%d bytes allocated for %d", n, len(text))
		}
		if err != nil {
			var bad *SyntaxError
			if !errors.As(err, &bad) || bad.Line < 1 || bad.Expected == "" {
				t.Fatal(err)
			}
			return
		}
		at, n := tr.Next(-1)
		for range 20 {
			next, k := tr.Next(at)
			if next <= at || n < 1 || tr.Count(at, next) != int64(n) {
				t.Fatalf("%d opportunities at %d, then at %d; counted %d", n, at, next, tr.Count(at, next))
			}
			at, n = next, k
		}
		if got := tr.Count(1, tr.Period()+1); got != tr.Opportunities() {
			t.Fatalf("%d opportunities in a round, counted %d", tr.Opportunities(), got)
		}
	})
}

func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func benchmarkTrace(b *testing.B) (*Trace, string) {
	var text strings.Builder
	for at := range 600_000 {
		for range at % 3 {
			text.WriteString(strconv.Itoa(at) + "\n")
		}
	}
	return parse(b, text.String()), text.String()
}

func BenchmarkNext(b *testing.B) {
	tr, _ := benchmarkTrace(b)
	b.ReportAllocs()
	at := int64(-1)
	for b.Loop() {
		at, _ = tr.Next(at)
	}
}

func BenchmarkParse(b *testing.B) {
	_, text := benchmarkTrace(b)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		parse(b, text)
	}
}
