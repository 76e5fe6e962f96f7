package format

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// FuzzParse asserts that reading any bytes ends in a scenario that can be run or
// in errors with places, without panic and within bounded memory.
func FuzzParse(f *testing.F) {
	good, err := os.ReadFile("testdata/good.toml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	archives, _ := filepath.Glob("testdata/bad/*.txtar")
	for _, path := range archives {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files {
			if strings.HasSuffix(file.Name, ".toml") {
				f.Add(file.Data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := allocated()
		s, err := Parse("fuzz.toml", data, testOptions)
		if err != nil {
			var all Errors
			if !errors.As(err, &all) || len(all) == 0 {
				t.Fatalf("%T: %v", err, err)
			}
			for _, e := range all {
				if e.Line < 1 || e.Column < 1 || e.Problem == "" {
					t.Fatalf("no place: %#v", e)
				}
			}
		} else {
			if len(s.Cases()) == 0 {
				t.Fatal("a scenario without cases")
			}
			_ = s.Set("nic.bql=true", "duration=7s")
			s.Cases()
		}
		if used := allocated() - before; used > 64<<20+uint64(len(data))<<12 {
			t.Fatalf("%d bytes of file took %d bytes of memory", len(data), used)
		}
	})
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

func FuzzSet(f *testing.F) {
	for _, s := range []string{"nic.bql=true", "duration=5s", "link.rate=1gbit", "workload.tos=ef", "nic.tc=[\"qdisc x\"]", "a.b=\"", "=", "nic..=[[1]]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, assignment string) {
		s, err := Load("testdata/good.toml", testOptions)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Set(assignment); err == nil {
			s.Cases()
		}
	})
}
