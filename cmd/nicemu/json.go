package main

import (
	"encoding/json"
	"io"
	"os"
)

// jsonOf writes v as this program writes all JSON: indented, nothing escaped
// that a reader of files would not want escaped.
func jsonOf(v any) func(io.Writer) error {
	return func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(v)
	}
}

// writeFile writes to the file called name, or to out if that is "-".
func writeFile(out io.Writer, name string, write func(io.Writer) error) error {
	if name == "-" {
		return write(out)
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
