package format

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestHostileFilesAreRefusedCheaply feeds files at the size limit that ask for
// as much as they can.
func TestHostileFilesAreRefusedCheaply(t *testing.T) {
	const most = 64 << 20 // bytes allocated in total, not at once
	fill := func(unit string) string { return strings.Repeat(unit, MaxBytes/len(unit)) }
	numbered := func(line string) string {
		var b strings.Builder
		for i := 0; b.Len() < MaxBytes-100; i++ {
			fmt.Fprintf(&b, line, i)
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"many tables":     fill("[[nic]]\n"),
		"many namespaces": numbered("[[netns]]\nname = \"n%d\"\n"),
		"many keys":       numbered("k%d = 1\n"),
		"many knobs":      "[[nic]]\n[nic.set]\n" + numbered("k%d = 1\n"),
		"long list":       "netns = [" + fill("1,")[:MaxBytes-20] + "]",
		"deep list":       "netns = " + strings.Repeat("[", MaxBytes/2-10) + strings.Repeat("]", MaxBytes/2-10),
		"deep key":        fill("a.")[:MaxBytes-10] + "a = 1",
		"deep header":     "[" + fill("a.")[:MaxBytes-10] + "a]",
		"long text":       "name = \"" + fill("x")[:MaxBytes-20] + "\"",
		"large sweep":     "[sweep]\n" + numbered("\"nic.k%d\" = [1, 2]\n"),
		"long sweep":      small + "[sweep]\nseed = [" + fill("1,")[:50000] + "]",
		"long tc":         strings.Replace(small, `device = "generic"`, `device = "generic", tc = [`+fill(`"qdisc x {dev}",`)[:50000]+"]", 1),
	} {
		before, start := allocated(), time.Now()
		_, err := Parse(name, []byte(text), Options{})
		if err == nil {
			t.Errorf("%s: no error", name)
		} else if len(err.Error()) > 20000 {
			t.Errorf("%s: message of %d bytes", name, len(err.Error()))
		}
		if used := allocated() - before; used > most {
			t.Errorf("%s: %d MB allocated", name, used>>20)
		} else {
			t.Logf("%s: %d MB, %v, %.100s", name, used>>20, time.Since(start), err)
		}
	}
}
