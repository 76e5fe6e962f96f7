package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// outputs are the files that a command writes what it found to, by flag. They
// are opened before the work begins, so that a mistake shows at once, and keep
// what is in them until there is something to write.
type outputs struct {
	stdout io.Writer
	files  map[string]*output
}

// output is one of them. "-" is standard output.
type output struct {
	io.Writer
	file  *os.File // nil for standard output
	fresh bool     // we made the file
	begun bool     // it has been written to
}

// openOutputs opens the files that the flags name. None of them, nor standard
// output, may be one of the inputs or another output: it would be overwritten.
func openOutputs(cmd *cobra.Command, inputs []string, flags ...string) (*outputs, error) {
	o := &outputs{cmd.OutOrStdout(), map[string]*output{}}
	seen := places{}
	for _, name := range inputs {
		seen.read(name)
	}
	err := seen.write("standard output, -", os.Stdout)
	for _, flag := range flags {
		name, _ := cmd.Flags().GetString(flag)
		if name == "" || err != nil {
			continue
		}
		what := fmt.Sprintf("--%s %s", flag, name)
		if name == "-" {
			if seen.stdout != "" {
				err = fmt.Errorf("%s: %s is standard output too; expected a file for one of them", what, seen.stdout)
			}
			seen.stdout = what
			o.files[flag] = &output{Writer: o.stdout}
			continue
		}
		var x *output
		if x, err = openOutput(name); err != nil {
			err = fmt.Errorf("--%s: %w", flag, err)
			continue
		}
		o.files[flag] = x
		err = seen.write(what, x.file)
	}
	if err != nil {
		return nil, errors.Join(err, o.close())
	}
	return o, nil
}

// openOutput opens a file without changing what is in it.
func openOutput(name string) (*output, error) {
	x := &output{fresh: true}
	var err error
	x.file, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, os.ErrExist) {
		x.fresh = false
		x.file, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o666)
	}
	x.Writer = x.file
	return x, err
}

// Write replaces what was in the file before.
func (x *output) Write(b []byte) (int, error) {
	if !x.begun && x.file != nil {
		if s, err := x.file.Stat(); err == nil && s.Mode().IsRegular() {
			if err := x.file.Truncate(0); err != nil {
				return 0, err
			}
		}
	}
	x.begun = true
	return x.Writer.Write(b)
}

// writer is where the output of a flag goes, nil for one that was not given.
func (o *outputs) writer(flag string) io.Writer {
	if x := o.files[flag]; x != nil {
		return x
	}
	return nil
}

// result writes a result as a table, if standard output has no other use, and
// to --json, and makes one that does not hold the exit status.
func (o *outputs) result(table, json func(io.Writer) error, holds bool) error {
	free := true
	for _, x := range o.files {
		free = free && x.file != nil
	}
	if free {
		if err := table(o.stdout); err != nil {
			return err
		}
	}
	if w := o.writer("json"); w != nil {
		if err := json(w); err != nil {
			return err
		}
	}
	if !holds {
		return errReported
	}
	return nil
}

// close closes all files. Those that we made and that nothing was written to go
// away.
func (o *outputs) close() error {
	var errs []error
	for _, x := range o.files {
		if x.file == nil {
			continue
		}
		errs = append(errs, x.file.Close())
		if x.fresh && !x.begun {
			errs = append(errs, os.Remove(x.file.Name()))
		}
	}
	return errors.Join(errs...)
}

// places are the files that a command reads and writes, to keep them apart.
type places struct {
	list   []place
	stdout string // the output that is "-"
}

type place struct {
	what string
	info os.FileInfo
}

// read notes an input; "-" is standard input. One that is not there is for its
// reader to report.
func (p *places) read(name string) {
	stat := func() (os.FileInfo, error) { return os.Stat(name) }
	what := name + ", which is read"
	if name == "-" {
		stat, what = os.Stdin.Stat, "standard input"
	}
	if info, err := stat(); err == nil && info.Mode().IsRegular() {
		p.list = append(p.list, place{what, info})
	}
}

// write notes an output and refuses one that is noted already. Devices and pipes
// may be shared.
func (p *places) write(what string, f *os.File) error {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	for _, other := range p.list {
		if os.SameFile(info, other.info) {
			return fmt.Errorf("%s: the same file as %s; expected another", what, other.what)
		}
	}
	p.list = append(p.list, place{what, info})
	return nil
}
