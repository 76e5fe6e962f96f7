package main

import (
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"nicemu/emulator"
	"nicemu/emulator/netns"
	"nicemu/scenarios"
	"nicemu/scenarios/format"
)

func runCommand() *cobra.Command {
	var (
		set      []string
		duration string
		jsonFile string
	)
	cmd := &cobra.Command{
		Use:   "run SCENARIO|FILE",
		Short: "Run an experiment in this machine's kernel and print what it measured",
		Long: `Run an experiment: make its namespaces and emulated cards, let its workloads run
across them, and print a table of what was measured. Everything that was made is
removed again, also after Ctrl-C.

Exit status: 0 if all expectations of the scenario hold, 1 for a mistake in the
command or the file, 2 if the kernel lacks or refuses something, 3 if an
expectation or a conservation law failed, 130 after Ctrl-C.`,
		Example: `  nicemu run bql-latency
  nicemu run bql-latency --set nic.ring.tx=4096 --duration 10s
  nicemu run mine.toml --json result.json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeScenarios,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			s, err := scenarios.Load(args[0], c.ScenarioPath)
			if err != nil {
				return err
			}
			if duration != "" {
				set = append(set, "duration="+duration)
			}
			if err := s.Set(set...); err != nil {
				return err
			}
			if err := netns.CheckPrivilege(); err != nil {
				return err
			}
			r, err := scenarios.Run(cmd.Context(), s, scenarios.Options{Way: way(cmd, c, s), Progress: progress(c)})
			if err != nil {
				return err
			}
			return report(cmd, r, jsonFile)
		},
	}
	cmd.Flags().StringArrayVar(&set, "set", nil, "set a `key=value` of the scenario, e.g. nic.ring.tx=4096 or link.rate=100mbit")
	cmd.Flags().StringVar(&duration, "duration", "", "how long workloads run, e.g. 10s (same as --set duration=…)")
	cmd.Flags().StringVar(&jsonFile, "json", "", "write the result as JSON to `FILE`, - for standard output instead of the table")
	cmd.Flags().String("backpressure", "auto", "how qdiscs learn that the card is full: auto, native, gate, lossy")
	return cmd
}

// way is the wanted back-pressure: the flag, else the scenario's, else the
// configuration's.
func way(cmd *cobra.Command, c *config, s *format.Scenario) emulator.Way {
	if !cmd.Flags().Changed("backpressure") && s.Run.Backpressure != format.BackpressureAuto {
		return emulator.Way(s.Run.Backpressure)
	}
	return emulator.Way(c.Backpressure)
}

func progress(c *config) *scenarios.Progress {
	_, err := unix.IoctlGetTermios(int(os.Stderr.Fd()), unix.TCGETS)
	if c.Progress == "off" || c.Progress == "auto" && err != nil {
		return nil
	}
	return scenarios.NewProgress(os.Stderr)
}

// report writes the result as asked for and turns its verdict into the exit
// status.
func report(cmd *cobra.Command, r *scenarios.Result, jsonFile string) error {
	if jsonFile != "-" {
		if err := r.WriteTable(cmd.OutOrStdout()); err != nil {
			return err
		}
	}
	if jsonFile != "" {
		if err := writeFile(cmd.OutOrStdout(), jsonFile, r.WriteJSON); err != nil {
			return err
		}
	}
	if r.Verdict == scenarios.VerdictFailed {
		return errReported
	}
	return nil
}
