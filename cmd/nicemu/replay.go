package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"nicemu/devices"
	"nicemu/devices/units"
	"nicemu/replay"
	"nicemu/replay/trace"
)

// replayFlags are the flags that say more than a field of the options.
type replayFlags struct {
	replay.Options
	set               []string
	linkTrace, series string
	live              liveFlags
}

func replayCommand() *cobra.Command {
	f := &replayFlags{}
	cmd := &cobra.Command{
		Use:   "replay FILE...",
		Short: "Send captures through a card model, in virtual time or live, and see what it does to them",
		Long: `Send captures through a card model in virtual time: when each frame left the
wire, how long it waited where, what BQL and the rings did, what was dropped and
why. Captures are pcap or pcapng, also in gzip; - is standard input. Several are
merged by time, as mergecap does, or feed one queue each.

Frames keep the capture's times, counted from the first packet so that nothing
drifts, unless --speed, --rate, --pps or --top-speed says otherwise. Packets
that were captured above a card that segments (larger than the MTU) are sent as
GSO frames, or cut before the card with --offload segment.

--log writes one line for each event, as mahimahi does: + enqueued, - left, with
all times of the frame in ns, d dropped, with the reason. --write has what left
the wire as pcapng, one interface for each queue. The same command writes the
same bytes every time.

--live replays in real time into the genuine qdisc of an emulated card, in a
namespace of its own or in --netns, as tcpreplay does; with --side wire the card
receives the frames. --queue-by then gives a frame's priority (SO_PRIORITY), which
the root qdisc maps to a queue: PCP, or the upper three bits of DSCP, or what
--queue-map says. At --top-speed frames wait for room; else a frame goes when it
is due, and the qdisc drops what it has no room for.

Exit status: 0, 1 for a mistake in the command or a capture (what came before it
is replayed) or if nothing was replayed, 2 if the kernel lacks or refuses
something, 3 if frames or bytes got lost in the books, 130 after Ctrl-C.`,
		Example: `  nicemu replay trace.pcap --device i210
  nicemu replay trace.pcap --device ixgbe --speed 10x --qdisc fq_codel --log trace.log
  nicemu replay a.pcapng b.pcapng --per-queue --device i210 --set qav=on
  nicemu replay tsn.pcap --device i210 --set qav=on --set queue0.txtime=on --queue-by pcp --launch-time
  nicemu replay trace.pcap --device generic --top-speed --write wire.pcapng --json -
  sudo nicemu replay trace.pcap --live --device i210 --tc "qdisc replace dev {dev} root fq_codel"
  sudo nicemu replay trace.pcap --live --netns dut --side wire --speed 2x`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.Name, "device", "generic", "card `model`; nicemu devices lists them")
	fl.StringArrayVar(&f.set, "set", nil, "set a `knob=value` of the card, e.g. ring.tx=512 or link.rate=100mbit")
	fl.TextVar(&f.Schedule.Speed, "speed", f.Schedule.Speed, "divide the capture's times by a `factor`, e.g. 2x or 0.5x")
	fl.TextVar(&f.Schedule.Rate, "rate", f.Schedule.Rate, "space frames to make a `rate`, e.g. 100mbit (bits of frames, without preamble, FCS and gap)")
	fl.Lookup("rate").DefValue = ""
	fl.Int64Var(&f.Schedule.PPS, "pps", 0, "space frames evenly, so many `packets` a second")
	fl.BoolVar(&f.Schedule.TopSpeed, "top-speed", false, "as fast as the card takes them")
	cmd.MarkFlagsMutuallyExclusive("speed", "rate", "pps", "top-speed")
	fl.IntVar(&f.Loop, "loop", 1, "play the whole `N` times; a round starts the mean gap behind the last packet of the one before")
	fl.TextVar(&f.From, "from", f.From, "start at a `time`: a duration from the first packet, e.g. 1500ms, or e.g. 2026-01-01T12:00:00Z")
	fl.TextVar(&f.To, "to", f.To, "end before a `time`, like --from")
	fl.BoolVar(&f.PerQueue, "per-queue", false, "the first file feeds queue 0, the second queue 1, ..., each from its own first packet")
	fl.TextVar(&f.Queues.By, "queue-by", f.Queues.By, "choose the queue by `key`: hash, pcp, dscp, interface (of the capture), or fixed:N")
	fl.TextVar(&f.Queues.Map, "queue-map", f.Queues.Map, "which `key:queue,...` goes where, e.g. 46:0,34:1,*:3; without * the rest goes to the last queue")
	cmd.MarkFlagsMutuallyExclusive("per-queue", "queue-by")
	fl.TextVar(&f.Launch.Queues, "launch-time", f.Launch.Queues, "the capture's times are launch times (SO_TXTIME), on `queues` 0,1,... or on all that have them")
	fl.Lookup("launch-time").NoOptDefVal = "all"
	fl.TextVar(&f.Launch.Delta, "launch-delta", 500*units.Microsecond, "hand frames over so long before their launch `time` (etf's delta)")
	fl.TextVar(&f.Offload, "offload", f.Offload, "what becomes of GSO packets: `keep|segment`, by the card or before it (default keep if the card has TSO)")
	fl.IntVar(&f.MSS, "mss", 0, "payload `bytes` of a segment (default what fits the MTU)")
	fl.IntVar(&f.MTU, "mtu", 1500, "larger packets are taken for GSO, `bytes` of the network layer")
	fl.TextVar(&f.Qdisc, "qdisc", f.Qdisc, "`model` of a qdisc before each queue: none (senders wait), fifo[:packets], fq_codel")
	fl.StringVar(&f.linkTrace, "link-trace", "", "a wire that carries what a rate trace in mahimahi's format allows, from `FILE`")
	fl.Uint64Var(&f.Seed, "seed", 1, "seed of all randomness")
	fl.String("json", "", "write the result as JSON to `FILE`, - for standard output instead of the table")
	fl.String("log", "", "write one line for each event to `FILE`, - for standard output instead of the table")
	fl.String("write", "", "write what left the wire to `FILE`, pcapng, - as above")
	fl.StringVar(&f.series, "series", "", "write what queues, rings and BQL held over time to `FILE`, CSV, or JSON if it ends in .json; - as above")
	fl.TextVar(&f.SeriesInterval, "series-interval", units.Millisecond, "`time` between samples")
	f.live.register(fl)
	completions := map[string][]string{
		"device": devices.Accepted(), "queue-by": {"hash", "pcp", "dscp", "interface", "fixed:"},
		"offload": {"keep", "segment"}, "qdisc": {"none", "fifo", "fq_codel"}, "side": {"qdisc", "wire"},
	}
	for name, words := range completions {
		cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

func (f *replayFlags) run(cmd *cobra.Command, files []string) (err error) {
	c, err := loadConfig(cmd)
	if err != nil {
		return err
	}
	for _, name := range []string{"rate", "pps", "loop"} {
		if v := cmd.Flags().Lookup(name); v.Changed && strings.HasPrefix(v.Value.String(), "0") {
			return fmt.Errorf("--%s %s: expected more than 0", name, v.Value)
		}
	}
	o := &f.Options
	o.Files = files
	if err := f.live.check(cmd); err != nil {
		return err
	}
	if o.Device, err = devices.Configured(f.Name, f.set); err != nil {
		return err
	}
	if f.linkTrace != "" {
		if o.Link, err = trace.Open(f.linkTrace); err != nil {
			return err
		}
		warnTraces(cmd, o.Link.Warnings())
	}
	inputs := append(slices.Clone(files), c.inputs()...)
	if f.linkTrace != "" {
		inputs = append(inputs, f.linkTrace)
	}
	out, err := openOutputs(cmd, inputs, "json", "log", "write", "series")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.close()) }()
	if f.live.on {
		return f.runLive(cmd, c, out)
	}
	p := progress(c)
	o.Progress = slowly(func(now replay.Progress) {
		p.Step(fmt.Sprintf("%d frames, %.3f s of virtual time", now.Frames, float64(now.Virtual)/1e9))
	})
	o.Log, o.Wire, o.Series = out.writer("log"), out.writer("write"), out.writer("series")
	o.SeriesJSON = filepath.Ext(f.series) == ".json"
	r, err := replay.Run(cmd.Context(), *o)
	p.Done()
	if r == nil {
		return err
	}
	return errors.Join(out.result(r.WriteTable, r.WriteJSON, r.Verdict != replay.VerdictFailed), err)
}

// slowly passes on a call after the first second, and then four times a second.
func slowly(show func(replay.Progress)) func(replay.Progress) {
	next := time.Now().Add(time.Second)
	return func(p replay.Progress) {
		if now := time.Now(); now.After(next) {
			next = now.Add(time.Second / 4)
			show(p)
		}
	}
}
