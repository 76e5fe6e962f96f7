package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"nicemu/devices"
	"nicemu/devices/units"
	"nicemu/scenarios"
)

func simulateCommand() *cobra.Command {
	var o scenarios.CardOptions
	cmd := &cobra.Command{
		Use:   "simulate --device NAME",
		Short: "Ask what a card would do: one card, one or more workloads, in virtual time",
		Long: `Ask what a card would do. Models of the card with its driver, of a qdisc before
each of its transmit queues and of the traffic run in virtual time: no kernel, no
rights, and the same bytes from run to run.

A workload is KIND:key=value,key=value,…; keys that are left out have the values
shown here, sizes are bytes if they have no unit:

` + scenarios.SpecHelp() + `
A sweep is KEY=VALUE,VALUE,… with a knob of the card, "qdisc", "rate" (of the
link), "seed" or a workload's key, e.g. udp.rate, for KEY; the second workload of
a kind is called udp-2, and so on. Values that have commas themselves are
separated by semicolons. Several sweeps make all combinations.

A run of several cards and links, with expectations, is a scenario file:
nicemu run FILE --kernel model.`,
		Example: `  nicemu simulate --device ixgbe --workload pktgen --set cpu.xmit=60ns --sweep ring.tx=64,128,256,512
  nicemu simulate --device mana --workload tcp:flows=8 --workload rr --qdisc fq_codel --sweep bql=off,on
  nicemu simulate --device igb --set qav=on --set queue0.txtime=on \
      --workload talker:interval=125us,launch --workload tso:queue=3 --sweep 'txpbsize=8kb,8kb,4kb,4kb;6kb,6kb,6kb,6kb'
  nicemu simulate --device generic --workload udp:rate=900mbit --workload rr:interval=1ms --json -`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("simulate takes flags only, not %q; a scenario runs on models with nicemu run %s --kernel model", args[0], args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			c, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			out, err := openOutputs(cmd, c.inputs(), "json")
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, out.close()) }()
			o.Progress = progress(c)
			r, err := scenarios.SimulateCard(cmd.Context(), o)
			if err != nil {
				return err
			}
			r.Version = ownVersion()
			table := func(w io.Writer) error { return r.WriteCardTable(w, isTerminal(os.Stdout)) }
			return out.result(table, r.WriteJSON, r.Verdict != scenarios.VerdictFailed)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&o.Device, "device", "", "card `model`; nicemu devices lists them")
	cmd.MarkFlagRequired("device")
	cmd.RegisterFlagCompletionFunc("device", cobra.FixedCompletions(devices.Accepted(), cobra.ShellCompDirectiveNoFileComp))
	fl.StringArrayVar(&o.Set, "set", nil, "set a `knob=value` of the card, e.g. ring.tx=512 or bql=off")
	fl.StringArrayVar(&o.Workloads, "workload", nil, "traffic, as `KIND:key=value,...` (default tso, or udp for a card without TSO)")
	fl.StringVar(&o.Qdisc, "qdisc", "fifo:1000", "`model` of a qdisc before each queue: none (senders wait), fifo[:packets], or as tc spells it, e.g. fq_codel or \"fq_codel target 1ms\"")
	fl.StringVar(&o.Rate, "rate", "", "speed of the `link`, e.g. 100mbit (default the card's)")
	o.Duration = 2 * units.Second
	fl.TextVar(&o.Duration, "duration", o.Duration, "virtual `time` of a run; its first tenth, at most 1s, is not measured")
	fl.StringArrayVar(&o.Sweep, "sweep", nil, "run once for each value: `key=value,value,...`")
	fl.Uint64Var(&o.Seed, "seed", 1, "seed of all randomness")
	fl.String("json", "", "write the result as JSON to `FILE`, - for standard output instead of the table")
	return cmd
}
