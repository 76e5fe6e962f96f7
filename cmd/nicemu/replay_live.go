package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nicemu/devices"
	"nicemu/emulator"
	"nicemu/emulator/netns"
	"nicemu/scenarios/liveplay"
)

// liveFlags are the flags of replay --live.
type liveFlags struct {
	on          bool
	side        liveplay.Side
	netns, peer string
	tc          []string
}

func (l *liveFlags) register(fl *pflag.FlagSet) {
	fl.BoolVar(&l.on, "live", false, "through the genuine qdiscs of this machine's kernel, in real time; needs root")
	fl.TextVar(&l.side, "side", liveplay.Qdisc, "live: frames go into the `qdisc` above the card, which sends them, or come over the wire, and it receives them")
	fl.StringVar(&l.netns, "netns", "", "live: put the card into the `namespace`, as ip netns lists it, and take it away afterwards (default one of our own)")
	fl.StringVar(&l.peer, "peer", "", "live: a card of the same kind in that `namespace` receives what the card sends (default nobody)")
	fl.StringArrayVar(&l.tc, "tc", nil, "live: a tc `command` for the card's interface, {dev}, e.g. \"qdisc replace dev {dev} root fq_codel\"")
}

// check refuses flags that mean nothing with or without --live.
func (l *liveFlags) check(cmd *cobra.Command) error {
	virtual := []string{"qdisc", "launch-time", "launch-delta", "log", "write", "series", "series-interval"}
	live := []string{"side", "netns", "peer", "tc"}
	if l.on {
		for _, name := range virtual {
			if cmd.Flags().Changed(name) {
				why := "it works in virtual time only"
				if name == "qdisc" {
					why = "the qdisc is the kernel's, set it with --tc"
				}
				return fmt.Errorf("--%s with --live: %s", name, why)
			}
		}
		return nil
	}
	for _, name := range live {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s: expected --live beside it", name)
		}
	}
	return nil
}

func (f *replayFlags) runLive(cmd *cobra.Command, c *config, out *outputs) error {
	if err := netns.CheckPrivilege(); err != nil {
		return err
	}
	o := liveplay.Options{
		StreamOptions: f.StreamOptions, Side: f.live.side, Device: f.Device, Name: f.Name, Netns: f.live.netns, Peer: f.live.peer,
		TC: f.live.tc, Link: f.Link, Way: emulator.Way(c.Backpressure), Seed: f.Seed, Progress: progress(c),
	}
	var err error
	if o.Far, err = devices.Configured(f.Name, f.set); err != nil {
		return err
	}
	r, err := liveplay.Run(cmd.Context(), o)
	o.Progress.Done()
	if r == nil {
		return err
	}
	r.Version = ownVersion()
	return errors.Join(out.result(r.WriteTable, r.WriteJSON, r.Holds()), err)
}
