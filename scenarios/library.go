package scenarios

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"nicemu/devices"
	"nicemu/devices/units"
	"nicemu/scenarios/format"
)

//go:embed *.toml
var builtin embed.FS

// Entry is a scenario that can be run by name.
type Entry struct {
	Name    string `json:"name"`
	Summary string `json:"summary"`
	File    string `json:"file"` // "built in" or a path
}

const builtinFile = "built in"

// List names the built-in scenarios and the *.toml files of the directories in
// path; a name that occurs twice is the first one's.
func List(path []string) ([]Entry, error) {
	var list []Entry
	add := func(file string, text []byte) error {
		s, err := format.Parse(file, text, FormatOptions())
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(list, func(e Entry) bool { return e.Name == s.Name }) {
			list = append(list, Entry{s.Name, s.Summary, file})
		}
		return nil
	}
	names, err := fs.Glob(builtin, "*.toml")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := builtin.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if err := add(builtinFile, text); err != nil {
			return nil, err
		}
	}
	for _, dir := range path {
		files, err := filepath.Glob(filepath.Join(dir, "*.toml"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			if err := add(file, text); err != nil {
				return nil, err
			}
		}
	}
	return list, nil
}

// Find returns the file name and the text of a scenario: a file if name looks
// like one, else a built-in scenario, else NAME.toml in the directories of path.
func Find(name string, path []string) (file string, text []byte, err error) {
	if isFile(name) {
		text, err = os.ReadFile(name)
		return name, text, err
	}
	if text, err = builtin.ReadFile(name + ".toml"); err == nil {
		return name + ".toml", text, nil
	}
	for _, dir := range path {
		file = filepath.Join(dir, name+".toml")
		if text, err = os.ReadFile(file); !errors.Is(err, fs.ErrNotExist) {
			return file, text, err
		}
	}
	return "", nil, fmt.Errorf("no scenario %q: `nicemu scenarios` lists the names; a file's name ends in .toml", name)
}

// isFile says that a name is a file's.
func isFile(name string) bool {
	return strings.HasSuffix(name, ".toml") || strings.ContainsRune(name, os.PathSeparator)
}

// BuiltIn says whether Find takes name for a built-in scenario.
func BuiltIn(name string) bool {
	_, err := builtin.Open(name + ".toml")
	return err == nil && !isFile(name)
}

// Load finds, reads and checks a scenario.
func Load(name string, path []string) (*format.Scenario, error) {
	file, text, err := Find(name, path)
	if err != nil {
		return nil, err
	}
	return format.Parse(file, text, FormatOptions())
}

// FormatOptions let package format check device names and knobs.
func FormatOptions() format.Options {
	return format.Options{
		KnownDevices: devices.Accepted(),
		CheckKnob: func(device, key string, value any) error {
			d, err := devices.New(device)
			if err != nil {
				return err
			}
			if key == "queues" {
				return errors.New("set the nic's own key queues: its port has as many")
			}
			return d.Set(key, fmt.Sprint(value))
		},
		MaxRate: func(device string) units.Rate {
			d, err := devices.New(device)
			if err != nil {
				return 0
			}
			return d.MaxRate()
		},
	}
}
