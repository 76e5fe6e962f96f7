package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"
)

// writeResult writes a result as asked for, as a table or as JSON or both, and
// makes one that does not hold the exit status.
func writeResult(cmd *cobra.Command, jsonFile string, table, json func(io.Writer) error, holds bool) error {
	if jsonFile != "-" {
		if err := table(cmd.OutOrStdout()); err != nil {
			return err
		}
	}
	if jsonFile != "" {
		if err := writeFile(cmd.OutOrStdout(), jsonFile, json); err != nil {
			return err
		}
	}
	if !holds {
		return errReported
	}
	return nil
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
