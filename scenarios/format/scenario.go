package format

import (
	"net/netip"
	"strings"

	"nicemu/devices/units"
)

// Scenario is one experiment. It comes from Parse or Load; what cannot be read
// from the file by name is in Cases.
type Scenario struct {
	Name      string         `toml:"name"`
	Summary   string         `toml:"summary,omitempty"`
	Seed      int64          `toml:"seed"`     // of all randomness; default 1
	Duration  units.Duration `toml:"duration"` // of every workload that does not say otherwise
	Run       Run            `toml:"run"`
	Netns     []Netns        `toml:"netns"`
	NICs      []NIC          `toml:"nic"`
	Links     []Link         `toml:"link,omitempty"`
	Workloads []Workload     `toml:"workload,omitempty"`
	Sweep     Sweep          `toml:"sweep,omitempty"`
	Expect    []Expectation  `toml:"expect,omitempty"`

	opts        Options
	source      *source
	origins     map[string]origin // path → where a value that is not from the file's own key came from
	assignments []assignment      // handed to Set, in order
}

// Run says where and how a scenario runs.
type Run struct {
	Kernel       Kernel       `toml:"kernel"`       // default auto
	Backpressure Backpressure `toml:"backpressure"` // default auto
}

// Netns is a network namespace that the scenario makes.
type Netns struct {
	Name string `toml:"name"`
}

// NIC is one emulated card.
type NIC struct {
	Name   string         `toml:"name"` // of the interface inside the namespace, at most 15 bytes
	Netns  string         `toml:"netns"`
	Device string         `toml:"device"`           // the profile
	Queues int            `toml:"queues,omitempty"` // transmit queues, 1 to 16; default 1
	MTU    int            `toml:"mtu,omitempty"`    // bytes; default 1500
	TSO    bool           `toml:"tso"`              // segmentation offload offered to the kernel; default true
	Csum   bool           `toml:"csum"`             // checksum offload offered to the kernel; default true
	Addr   []netip.Prefix `toml:"addr,omitempty"`
	TC     []string       `toml:"tc,omitempty"`  // what follows the word tc; {dev} is the interface
	Set    Knobs          `toml:"set,omitempty"` // device knobs
}

// ID names the card across namespaces: "netns/interface".
func (n *NIC) ID() string { return n.Netns + "/" + n.Name }

// TCCommands are the arguments of each tc command, with {dev} filled in.
func (n *NIC) TCCommands() [][]string {
	commands := make([][]string, len(n.TC))
	for i, line := range n.TC {
		commands[i] = strings.Fields(strings.ReplaceAll(line, "{dev}", n.Name))
	}
	return commands
}

// Knobs are settings of a device: dotted key → bool, int64, float64 or string.
type Knobs map[string]any

// Link is a full-duplex wire between two cards. Each direction follows the trace
// by itself, from the start of the run, and no faster than its card. The name of
// the trace's file is relative to the scenario's file, or, in an assignment, to
// the working directory; in a case it is always the latter.
type Link struct {
	Ends  []string       `toml:"ends"` // two NIC IDs
	Rate  units.Rate     `toml:"rate,omitempty"`
	Delay units.Duration `toml:"delay,omitempty"` // propagation, one way
	Loss  units.Percent  `toml:"loss,omitempty"`  // of frames, each at random
	Steps []Step         `toml:"steps,omitempty"` // changes of the rate, in order of time
	Trace string         `toml:"trace,omitempty"` // file of a rate trace in mahimahi's format, in place of rate and steps
}

// Step is a change of a link's rate, counted from the start of the workloads.
type Step struct {
	At   units.Duration `toml:"at"`
	Rate units.Rate     `toml:"rate"`
}

// Workload is traffic, or a program, in one namespace. Which keys a kind has is
// in kindKeys; the rest are zero.
type Workload struct {
	Name     string         `toml:"name"`
	Kind     Kind           `toml:"kind"`
	From     string         `toml:"from"`               // namespace of the client or the program
	To       string         `toml:"to,omitempty"`       // namespace of the server, or one of its NICs' IDs
	Start    units.Duration `toml:"start,omitempty"`    // after the start of the run
	Duration units.Duration `toml:"duration,omitempty"` // default: to the end of the scenario's duration

	IPv6  bool     `toml:"ipv6,omitempty"`
	TOS   TOS      `toml:"tos,omitempty"`   // TOS byte, or the IPv6 traffic class
	Port  int      `toml:"port,omitempty"`  // of the server
	Cport int      `toml:"cport,omitempty"` // of the client
	Args  []string `toml:"args,omitempty"`  // more arguments for the program

	Proto  Proto      `toml:"proto,omitempty"`  // default tcp
	Flows  int        `toml:"flows,omitempty"`  // parallel streams; default 1
	Rate   units.Rate `toml:"rate,omitempty"`   // target per flow; 0 is unlimited
	Length units.Size `toml:"length,omitempty"` // iperf3: write size; ping: payload

	Request  units.Size     `toml:"request,omitempty"`  // default 1b
	Response units.Size     `toml:"response,omitempty"` // default 1b
	Interval units.Duration `toml:"interval,omitempty"` // from one request to the next; rr: 0 is back to back; ping: default 1s
	Warmup   units.Duration `toml:"warmup,omitempty"`   // not measured; default a tenth of the duration, at most 1s
	Priority int            `toml:"priority,omitempty"` // SO_PRIORITY, 0 to 15

	Command []string `toml:"command,omitempty"`
}

// Expectation is a claim about a number in the result of a case.
type Expectation struct {
	Name      string        `toml:"name"`
	Metric    string        `toml:"metric"`              // path in the case's JSON, e.g. workloads.probe.latency_ns.p50
	Kernel    []Kernel      `toml:"kernel,omitempty"`    // where it is claimed: host, lab, model; empty is everywhere
	Case      Selector      `toml:"case,omitempty"`      // the cases it speaks of; empty is all
	RatioTo   Selector      `toml:"ratio_to,omitempty"`  // divide by the same metric of the case that differs in these keys
	Op        Op            `toml:"op,omitempty"`        // default ==
	Value     Value         `toml:"value"`               // right-hand side
	Tolerance units.Percent `toml:"tolerance,omitempty"` // of Value, in favour of the claim
	Source    string        `toml:"source,omitempty"`    // who says so
	Fitted    bool          `toml:"fitted,omitempty"`    // a parameter of the models was chosen so that it holds
}

// NIC finds a card by its ID; nil if there is none.
func (s *Scenario) NIC(id string) *NIC {
	for i := range s.NICs {
		if s.NICs[i].ID() == id {
			return &s.NICs[i]
		}
	}
	return nil
}

// Peer is the card at the other end of n's link; nil if n has none.
func (s *Scenario) Peer(n *NIC) *NIC {
	id := n.ID()
	for _, l := range s.Links {
		if len(l.Ends) != 2 {
			continue
		}
		if l.Ends[0] == id {
			return s.NIC(l.Ends[1])
		}
		if l.Ends[1] == id {
			return s.NIC(l.Ends[0])
		}
	}
	return nil
}

// Target is the address a workload talks to: that of the NIC named by To, else
// of a NIC of that namespace linked with one of From, else of the namespace's first NIC that has one
// of the workload's family. The zero Addr if there is none.
func (s *Scenario) Target(w *Workload) netip.Addr {
	netns, nic, named := strings.Cut(w.To, "/")
	var fallback netip.Addr
	for i := range s.NICs {
		n := &s.NICs[i]
		if n.Netns != netns || named && n.Name != nic {
			continue
		}
		addr := n.address(w.IPv6)
		if peer := s.Peer(n); addr.IsValid() && peer != nil && peer.Netns == w.From {
			return addr
		}
		if !fallback.IsValid() {
			fallback = addr
		}
	}
	return fallback
}

// address is the card's first address of a family.
func (n *NIC) address(ipv6 bool) netip.Addr {
	for _, p := range n.Addr {
		if p.Addr().Is6() == ipv6 {
			return p.Addr()
		}
	}
	return netip.Addr{}
}

// TargetNetns is the namespace of the workload's server.
func (w *Workload) TargetNetns() string {
	netns, _, _ := strings.Cut(w.To, "/")
	return netns
}
