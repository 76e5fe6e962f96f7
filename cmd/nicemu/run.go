package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"nicemu/emulator"
	"nicemu/emulator/netns"
	"nicemu/replay/trace"
	"nicemu/scenarios"
	"nicemu/scenarios/format"
)

func runCommand() *cobra.Command {
	var (
		set      []string
		duration string
	)
	cmd := &cobra.Command{
		Use:   "run SCENARIO|FILE|-",
		Short: "Run an experiment and print what it measured",
		Long: `Run an experiment: make its namespaces and emulated cards, let its workloads run
across them, and print a table of what was measured. Everything that was made is
removed again, also after Ctrl-C. The scenario is one that "nicemu scenarios"
lists, a file, or - for standard input.

--kernel says where: "host" is this machine's kernel in real time and needs root;
"lab" is the lab kernel in virtual time, built on first use, and needs no rights;
"auto" takes the host if it has every qdisc that the scenario names, else the lab;
"model" has no kernel at all: cards, qdiscs and traffic are models, in virtual time.

Exit status: 0 if all expectations of the scenario hold, 1 for a mistake in the
command or the file, 2 if the kernel lacks or refuses something, 3 if an
expectation or a conservation law failed, 130 after Ctrl-C.`,
		Example: `  nicemu run bql-latency
  nicemu run fq-codel-latency --kernel lab
  nicemu run bql-latency --set nic.ring.tx=4096 --duration 10s
  nicemu run mine.toml --json result.json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeScenarios,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			c, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			file, text, err := findScenario(cmd, args[0], c.ScenarioPath)
			if err != nil {
				return err
			}
			s, err := format.Parse(file, text, scenarios.FormatOptions())
			if err != nil {
				return err
			}
			if duration != "" {
				set = append(set, "duration="+duration)
			}
			if err := s.Set(set...); err != nil {
				return err
			}
			traces, err := scenarios.OpenTraces(s) // the run opens them again, maybe in the lab
			if err != nil {
				return err
			}
			warnTraces(cmd, traces.Warnings())
			inputs := append(c.inputs(), file)
			if args[0] == "-" {
				inputs = append(inputs, "-")
			}
			out, err := openOutputs(cmd, slices.AppendSeq(inputs, maps.Keys(traces)), "json")
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, out.close()) }()
			job := scenarios.LabJob{File: file, Text: string(text), Set: set, Way: way(cmd, c, s)}
			r, err := runSomewhere(cmd, c, s, job)
			if err != nil {
				return err
			}
			r.Version, r.File, r.Overrides = ownVersion(), file, set
			if scenarios.BuiltIn(args[0]) {
				r.File = "built in"
			}
			return out.result(r.WriteTable, r.WriteJSON, r.Holds())
		},
	}
	cmd.Flags().StringArrayVar(&set, "set", nil, "set a `key=value` of the scenario, e.g. nic.ring.tx=4096 or link.rate=100mbit")
	cmd.Flags().StringVar(&duration, "duration", "", "how long workloads run, e.g. 10s (same as --set duration=…)")
	cmd.Flags().String("json", "", "write the result as JSON to `FILE`, - for standard output instead of the table")
	cmd.Flags().String("kernel", "auto", "where to run: auto, host, lab, model")
	cmd.RegisterFlagCompletionFunc("kernel", cobra.FixedCompletions([]string{"auto", "host", "lab", "model"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().String("backpressure", "auto", "how qdiscs learn that the card is full: auto, native, gate, lossy")
	return cmd
}

// findScenario is scenarios.Find for a name or a file, or reads standard input.
func findScenario(cmd *cobra.Command, name string, path []string) (file string, text []byte, err error) {
	if name != "-" {
		return scenarios.Find(name, path)
	}
	text, err = io.ReadAll(io.LimitReader(cmd.InOrStdin(), format.MaxBytes+1)) // the parser refuses what is longer
	return "<stdin>", text, err
}

// runSomewhere runs s, which job also describes, in the kernel that fits.
func runSomewhere(cmd *cobra.Command, c *config, s *format.Scenario, job scenarios.LabJob) (*scenarios.Result, error) {
	want := kernel(cmd, c, s)
	if want == format.KernelModel {
		if cmd.Flags().Changed("backpressure") {
			return nil, errors.New("--backpressure is for kernels; models stop and wake each other")
		}
		return scenarios.Simulate(cmd.Context(), s, scenarios.Options{Progress: progress(c)})
	}
	if err := s.CheckPrograms(); err != nil { // before a lab boots
		return nil, err
	}
	k, err := scenarios.ChooseKernel(s, want, job.Way)
	if err != nil {
		return nil, err
	}
	if k.Mode == string(format.KernelLab) {
		job.Reason = k.Reason
		return runInLab(cmd, c, s, job)
	}
	if err := netns.CheckPrivilege(); err != nil {
		return nil, err
	}
	return scenarios.Run(cmd.Context(), s, scenarios.Options{Way: job.Way, Kernel: k, Progress: progress(c)})
}

// warnTraces tells what is unlikely to be meant in rate traces.
func warnTraces(cmd *cobra.Command, warnings []trace.Warning) {
	for _, w := range warnings {
		fmt.Fprintf(cmd.ErrOrStderr(), "nicemu: warning: %v\n", w)
	}
}

// kernel is the wanted one: the flag, else the scenario's, else the
// configuration's.
func kernel(cmd *cobra.Command, c *config, s *format.Scenario) format.Kernel {
	if !cmd.Flags().Changed("kernel") && s.Run.Kernel != format.KernelAuto {
		return s.Run.Kernel
	}
	return format.Kernel(c.Kernel)
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
	if c.Progress == "off" || c.Progress == "auto" && !isTerminal(os.Stderr) {
		return nil
	}
	return scenarios.NewProgress(os.Stderr)
}
