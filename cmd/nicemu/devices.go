package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"nicemu/devices"
	"nicemu/devices/nic"
	"nicemu/replay/report"
)

func devicesCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "devices [NAME]",
		Short: "List the card models, or the knobs of one with the source of each number",
		Example: `  nicemu devices
  nicemu devices ixgbe`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return devices.Accepted(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var list []*nic.Device
			names := devices.Names()
			if len(args) == 1 {
				names = args
			}
			for _, name := range names {
				d, err := devices.New(name)
				if err != nil {
					return err
				}
				list = append(list, d)
			}
			switch {
			case asJSON:
				return writeDevicesJSON(cmd, list)
			case len(args) == 1:
				return writeKnobs(cmd, list[0])
			}
			w := report.Table(cmd.OutOrStdout())
			fmt.Fprintln(w, "DEVICE\tALSO\tCARD")
			for _, d := range list {
				fmt.Fprintf(w, "%s\t%s\t%s\n", d.Name, strings.Join(d.Aliases, " "), d.Summary)
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

// writeKnobs shows each knob with its value and what is legal, and below them
// what it means and where the value comes from, within the terminal's width.
func writeKnobs(cmd *cobra.Command, d *nic.Device) error {
	keys, values := len("KNOB"), len("VALUE")
	for _, k := range d.Knobs() {
		keys, values = max(keys, len(k.Key)), max(values, len(k.Value()))
	}
	width := terminalWidth(os.Stdout)
	w := bufio.NewWriter(cmd.OutOrStdout())
	// A column of what is legal that is narrower reads badly: rather too wide.
	legal := max(24, width-keys-values-4)
	line := func(key, value, text string) { fmt.Fprintf(w, "%-*s  %-*s  %s\n", keys, key, values, value, text) }
	for _, text := range wrap(d.Name+": "+d.Summary, width) {
		fmt.Fprintln(w, text)
	}
	fmt.Fprintln(w)
	line("KNOB", "VALUE", "LEGAL")
	for _, k := range d.Knobs() {
		key, value := k.Key, k.Value()
		for _, text := range wrap(k.Legal(), legal) {
			line(key, value, text)
			key, value = "", ""
		}
		source := "source: " + k.Source
		if k.Fitted {
			source += " (fitted)"
		}
		for _, note := range []string{k.Doc, source} {
			for _, text := range wrap(note, max(40, width-4)) {
				fmt.Fprintf(w, "    %s\n", text)
			}
		}
	}
	return w.Flush()
}

// wrap breaks text between words into lines of at most width characters; a
// longer word has a line to itself.
func wrap(text string, width int) []string {
	var lines []string
	line, length := "", 0
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		if line != "" && length+1+n > width {
			lines = append(lines, line)
			line, length = "", 0
		}
		if line != "" {
			line, length = line+" ", length+1
		}
		line, length = line+word, length+n
	}
	return append(lines, line)
}

// terminalWidth is the columns of a terminal; 100 for a file or a pipe.
func terminalWidth(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return 100
	}
	return int(size.Col)
}

func writeDevicesJSON(cmd *cobra.Command, list []*nic.Device) error {
	type knob struct {
		Key     string `json:"key"`
		Value   string `json:"value"`
		Legal   string `json:"legal"`
		Meaning string `json:"meaning"`
		Source  string `json:"source"`
		Fitted  bool   `json:"fitted"`
	}
	type device struct {
		Name    string   `json:"name"`
		Aliases []string `json:"aliases"`
		Summary string   `json:"summary"`
		Knobs   []knob   `json:"knobs"`
	}
	var doc []device
	for _, d := range list {
		j := device{Name: d.Name, Aliases: append([]string{}, d.Aliases...), Summary: d.Summary}
		for _, k := range d.Knobs() {
			j.Knobs = append(j.Knobs, knob{k.Key, k.Value(), k.Legal(), k.Doc, k.Source, k.Fitted})
		}
		doc = append(doc, j)
	}
	return report.JSON(cmd.OutOrStdout(), doc)
}
