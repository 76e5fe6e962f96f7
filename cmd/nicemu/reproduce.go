package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"nicemu/replay/report"
	"nicemu/scenarios/reproduce"
)

func reproduceCommand() *cobra.Command {
	var (
		set  []string
		seed uint64
	)
	cmd := &cobra.Command{
		Use:   "reproduce [igb|mana|i40e|tsnep|ixgbe|all]",
		Short: "Set the models' figures beside those that five kernel patches published",
		Long: `Run the experiments behind five kernel patches on the card models, in virtual
time, and print published, model and error side by side. What is fitted to a
published figure is marked and listed; everything else is a prediction.

Exit status 3 if a figure is outside its tolerance. With --set the cards differ
from the published ones, and so may the figures; what an experiment varies
itself, such as ixgbe's ring.tx, cannot be set.`,
		Example: `  nicemu reproduce
  nicemu reproduce igb --json rows.json
  nicemu reproduce ixgbe --set cpu.xmit=100ns`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			names := []string{"all"}
			for _, x := range reproduce.All() {
				names = append(names, cobra.CompletionWithDesc(x.Device, x.Summary))
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			name := "all"
			if len(args) == 1 {
				name = args[0]
			}
			experiments, err := reproduce.Find(name)
			if err != nil {
				return err
			}
			overrides, err := keyValues(set)
			if err != nil {
				return err
			}
			c, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			out, err := openOutputs(cmd, c.inputs(), "json")
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, out.close()) }()
			rows, err := reproduce.Run(experiments, overrides, seed)
			if err != nil {
				return err
			}
			fitted := reproduce.Fitted(experiments)
			table := func(w io.Writer) error {
				if err := reproduce.WriteTable(w, rows); err != nil {
					return err
				}
				return reproduce.WriteFitted(w, fitted)
			}
			json := func(w io.Writer) error {
				return report.JSON(w, map[string]any{"schema": 1, "rows": rows, "fitted": fitted})
			}
			off := slices.ContainsFunc(rows, func(r reproduce.Row) bool { return !r.OK })
			return out.result(table, json, !off)
		},
	}
	cmd.Flags().StringArrayVar(&set, "set", nil, "set a `knob=value` of the card on top of the experiment's, e.g. cpu.xmit=100ns; not what it varies itself")
	cmd.Flags().Uint64Var(&seed, "seed", 1, "seed of all randomness")
	cmd.Flags().String("json", "", "write the rows as JSON to `FILE`, - for standard output instead of the table")
	return cmd
}

func keyValues(set []string) ([]reproduce.KV, error) {
	var kvs []reproduce.KV
	for _, s := range set {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, fmt.Errorf("--set %q: expected knob=value", s)
		}
		kvs = append(kvs, reproduce.KV{Key: strings.TrimSpace(key), Value: value})
	}
	return kvs, nil
}
