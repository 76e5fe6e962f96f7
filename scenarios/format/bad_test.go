package format

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"nicemu/devices/units"
)

var update = flag.Bool("update", false, "rewrite the expected errors in testdata/bad")

// testOptions know two devices with three knobs, one of them of at most 10 Gbit/s.
var testOptions = Options{
	KnownDevices: []string{"generic", "ixgbe"},
	CheckKnob: func(_, key string, value any) error {
		switch key {
		case "bql":
			if _, ok := value.(bool); !ok {
				return fmt.Errorf("bql is %v; expected true or false", value)
			}
		case "ring.tx":
			if n, ok := value.(int64); !ok || n < 64 || n > 4096 {
				return fmt.Errorf("ring.tx is %v; expected 64 to 4096", value)
			}
		case "coalesce.usecs":
			_, err := units.ParseDuration(fmt.Sprint(value))
			return err
		default:
			return fmt.Errorf("unknown knob %q; expected one of bql, coalesce.usecs, ring.tx", key)
		}
		return nil
	},
	MaxRate: func(device string) units.Rate {
		if device == "ixgbe" {
			return 10 * units.Gbit
		}
		return 0
	},
}

var placed = regexp.MustCompile(`^\S+\.toml:[1-9]\d*:[1-9]\d*: \S.*; expected \S`)

func TestEveryBadFileSaysWhereAndWhatWasExpected(t *testing.T) {
	archives, err := filepath.Glob("testdata/bad/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, path := range archives {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i+1 < len(archive.Files); i += 2 {
			file, golden := archive.Files[i], &archive.Files[i+1]
			count++
			t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar")+"/"+file.Name, func(t *testing.T) {
				got := complaint(t, file.Name, file.Data)
				if *update {
					golden.Data = []byte(got)
				} else if diff := cmp.Diff(string(golden.Data), got); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
			})
		}
		if *update {
			if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if count < 100 {
		t.Errorf("%d bad files, want at least 100", count)
	}
}

// complaint reads a bad file and checks what holds for every error.
func complaint(t *testing.T, name string, data []byte) string {
	t.Helper()
	_, err := Parse(name, data, testOptions)
	var all Errors
	if !errors.As(err, &all) {
		t.Fatalf("error is %T: %v", err, err)
	}
	if len(all) == 0 || len(all) > maxErrors {
		t.Errorf("%d errors", len(all))
	}
	lines := bytes.Split(data, []byte("\n"))
	for _, e := range all {
		if !placed.MatchString(e.Error()) {
			t.Errorf("no place, or no expectation: %s", e)
		}
		if e.Line > len(lines) || e.Column > len(lines[e.Line-1])+1 {
			t.Errorf("outside the file: %s", e)
		}
	}
	return err.Error() + "\n"
}
