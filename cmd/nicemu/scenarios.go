package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"nicemu/replay/report"
	"nicemu/scenarios"
)

func scenariosCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "scenarios",
		Short: "List the experiments that can be run by name",
		Long: `List the experiments that are built in and those found in the configured
scenario_path. "nicemu scenarios show NAME" prints one's file, to start one's own from.`,
		Example: `  nicemu scenarios
  nicemu scenarios show bql-latency > mine.toml
  nicemu run mine.toml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			list, err := scenarios.List(c.ScenarioPath)
			if err != nil {
				return err
			}
			if asJSON {
				return report.JSON(cmd.OutOrStdout(), list)
			}
			w := report.Table(cmd.OutOrStdout())
			for _, s := range list {
				fmt.Fprintf(w, "%s\t%s\n", s.Name, s.Summary)
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	cmd.AddCommand(&cobra.Command{
		Use:               "show NAME",
		Short:             "Print a scenario's file",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeScenarios,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			_, text, err := scenarios.Find(args[0], c.ScenarioPath)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	})
	return cmd
}

func completeScenarios(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	c, err := loadConfig(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	list, err := scenarios.List(c.ScenarioPath)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, s := range list {
		names = append(names, cobra.CompletionWithDesc(s.Name, s.Summary))
	}
	return names, cobra.ShellCompDirectiveDefault
}
