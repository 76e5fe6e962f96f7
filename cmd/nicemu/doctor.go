package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"nicemu/emulator"
	"nicemu/emulator/gate"
	"nicemu/emulator/netns"
	"nicemu/emulator/tap"
	"nicemu/lab"
	"nicemu/replay/report"
)

// finding is one thing that a run may need.
type finding struct {
	What   string `json:"what"`
	State  string `json:"state"` // ok, missing, a figure
	Detail string `json:"detail,omitempty"`
	Remedy string `json:"remedy,omitempty"`
}

func doctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine can do, and what to do about each gap",
		Long: `Look at everything that a run may need: rights, TUN/TAP and its flags, every
qdisc, eBPF, programs, the lab kernel, the precision of timers, and how much
traffic this host carries through an emulated card.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := examine(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return report.JSON(cmd.OutOrStdout(), found)
			}
			return writeFindings(cmd.OutOrStdout(), found)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

func writeFindings(out io.Writer, found []finding) error {
	w := report.Table(out)
	fmt.Fprintln(w, "WHAT\tSTATE\tDETAIL, AND WHAT TO DO")
	for _, f := range found {
		text := f.Detail
		if f.Remedy != "" {
			if text != "" {
				text += "; "
			}
			text += f.Remedy
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.What, f.State, text)
	}
	return w.Flush()
}

// examine looks at everything, the kernel's part only with the rights to try it.
func examine(ctx context.Context) ([]finding, error) {
	found := []finding{{What: "rights", State: "ok", Detail: "CAP_NET_ADMIN and CAP_SYS_ADMIN"}}
	if err := netns.CheckPrivilege(); err != nil {
		found[0] = finding{What: "rights", State: "missing", Detail: err.Error(), Remedy: "without: simulate, replay, reproduce, and run --kernel lab"}
	} else if features, err := tap.Features(); err != nil {
		found = append(found, finding{What: "TUN/TAP", State: "missing", Detail: err.Error()})
	} else {
		host, err := examineHost(ctx, features)
		if err != nil {
			return nil, err
		}
		found = append(found, host...)
	}
	found = append(found, examinePrograms()...)
	return append(found, examineLab()), nil
}

// qdiscKinds are those that scenarios use, the gate's own first.
var qdiscKinds = []string{"hfsc", "tbf", "htb", "prio", "pfifo_fast", "mq", "fq_codel", "fq", "cake", "mqprio", "taprio", "etf", "cbs", "netem"}

// examineHost tries what a live run does in this kernel.
func examineHost(ctx context.Context, features uint32) ([]finding, error) {
	found := []finding{{What: "TUN/TAP", State: "ok", Detail: fmt.Sprintf("TUNGETFEATURES %#x", features)}}
	native := finding{What: "TAP back-pressure", State: "ok"}
	if features&tap.IFFBackpressure == 0 {
		native.State, native.Remedy = "missing", "IFF_BACKPRESSURE comes with Linux 7.3; the credit gate does its work here"
	}
	found = append(found, native)
	kinds, err := gate.ProbeQdiscs(qdiscKinds)
	if err != nil {
		return nil, err
	}
	for _, kind := range qdiscKinds {
		f := finding{What: "qdisc " + kind, State: "ok"}
		var missing *tap.Unsupported
		if errors.As(kinds[kind], &missing) {
			f.State, f.Remedy = "missing", missing.Since+", or run --kernel lab"
		}
		found = append(found, f)
	}
	late, err := emulator.TimerPrecision(500, 200_000)
	if err != nil {
		return nil, err
	}
	found = append(found, finding{What: "timers", State: "ok", Detail: fmt.Sprintf("late by %v (p50), %v (p99), %v (max)",
		time.Duration(late.ValueAtPercentile(50)), time.Duration(late.ValueAtPercentile(99)), time.Duration(late.Max()))})
	way, err := emulator.ChooseWay(emulator.Auto)
	if err != nil {
		return nil, err
	}
	// Cards with the way of back-pressure that a run would use: eBPF, gate and all.
	ceiling, err := emulator.MeasureCeiling(ctx, way)
	if err != nil {
		return nil, err
	}
	return append(found,
		finding{What: "back-pressure", State: "ok", Detail: string(way) + ", with its eBPF programs"},
		finding{What: "host ceiling", State: "ok", Detail: fmt.Sprintf("%.2f Gbit/s of TCP with TSO, %.0f thousand minimum-size frames a second", ceiling.BitsPerS/1e9, ceiling.FramesPerS/1e3)},
	), nil
}

func examinePrograms() []finding {
	var found []finding
	for _, p := range []struct{ program, pkg string }{{"tc", "iproute2"}, {"ip", "iproute2"}, {"iperf3", "iperf3"}, {"ping", "iputils-ping"}} {
		f := finding{What: "program " + p.program, State: "ok"}
		if path, err := exec.LookPath(p.program); err != nil {
			f.State, f.Remedy = "missing", "apt-get install "+p.pkg
		} else {
			f.Detail = path
		}
		found = append(found, f)
	}
	return found
}

func examineLab() finding {
	f := finding{What: "lab kernel", State: "ok"}
	path, err := lab.Cached("")
	switch {
	case err != nil:
		f.State, f.Detail = "missing", err.Error()
	case path == "":
		f.State, f.Remedy = "missing", "built when a run needs it, or by `nicemu lab build`"
	default:
		f.Detail = path
	}
	return f
}
