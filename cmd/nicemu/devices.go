package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"nicemu/devices"
	"nicemu/devices/nic"
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
			return devices.Names(), cobra.ShellCompDirectiveNoFileComp
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
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, d := range list {
				fmt.Fprintf(w, "%s\t%s\n", d.Name, d.Summary)
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

func writeKnobs(cmd *cobra.Command, d *nic.Device) error {
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "%s: %s\n\n", d.Name, d.Summary)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KNOB\tVALUE\tLEGAL\tMEANING\tSOURCE")
	for _, k := range d.Knobs() {
		source := k.Source
		if k.Fitted {
			source += " (fitted)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", k.Key, k.Value(), k.Legal(), k.Doc, source)
	}
	return w.Flush()
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
		Name    string `json:"name"`
		Summary string `json:"summary"`
		Knobs   []knob `json:"knobs"`
	}
	var doc []device
	for _, d := range list {
		j := device{Name: d.Name, Summary: d.Summary}
		for _, k := range d.Knobs() {
			j.Knobs = append(j.Knobs, knob{k.Key, k.Value(), k.Legal(), k.Doc, k.Source, k.Fitted})
		}
		doc = append(doc, j)
	}
	return jsonOf(doc)(cmd.OutOrStdout())
}
