package format

import (
	"fmt"
	"slices"
	"strings"

	"nicemu/devices/units"
)

// everyKind are the keys that all workloads have.
var everyKind = []string{"name", "kind", "from", "start", "duration"}

// kindKeys are the others that a kind has.
var kindKeys = map[Kind][]string{
	KindIperf3: {"to", "proto", "flows", "rate", "length", "ipv6", "tos", "port", "cport", "args"},
	KindRR:     {"to", "request", "response", "interval", "warmup", "ipv6", "tos", "priority", "port"},
	KindPing:   {"to", "interval", "length", "ipv6", "tos", "args"},
	KindExec:   {"command"},
}

const (
	defaultIperf3Port   = 5201
	defaultPingInterval = units.Second
	maxWarmup           = units.Second
	maxFlows            = 128 // iperf3's MAX_STREAMS
	maxTransfer         = units.MB
	minPing             = 16    // bytes that ping needs for a time stamp
	maxPing             = 65507 // bytes an ICMP echo over IPv4 can carry
)

// has says whether workloads of the kind have a key.
func (k Kind) has(key string) bool {
	return slices.Contains(everyKind, key) || slices.Contains(kindKeys[k], key)
}

func allKindKeys() []string {
	keys := []string{"start", "duration"}
	for _, k := range kindKeys {
		keys = append(keys, k...)
	}
	slices.Sort(keys)
	return slices.DeleteFunc(slices.Compact(keys), func(k string) bool { return slices.Contains(fixed["workload"], k) })
}

// lasting is how long a workload runs.
func (s *Scenario) lasting(w *Workload) units.Duration {
	if w.Duration > 0 {
		return w.Duration
	}
	return s.Duration - w.Start
}

// warmup is how long request/response workload i runs before it measures.
func (s *Scenario) warmup(i int) units.Duration {
	if s.given(join(element("workload", i), "warmup")) {
		return s.Workloads[i].Warmup
	}
	return min(s.lasting(&s.Workloads[i])/10, maxWarmup)
}

func (c *checker) workloads() {
	seen := map[string]bool{}
	for i := range c.Workloads {
		w, path := &c.Workloads[i], element("workload", i)
		if c.require(path, "name", "the workload's name in the results") {
			if !isBareKey(w.Name) || len(w.Name) > 64 {
				c.fail(join(path, "name"), "workload name "+quoted(w.Name), "1 to 64 letters, digits, - and _")
			}
			if seen[w.Name] {
				c.fail(join(path, "name"), fmt.Sprintf("workload %s is there twice", quoted(w.Name)), "a name of its own")
			}
			seen[w.Name] = true
		}
		if c.require(path, "from", "the namespace of the client or the command") {
			c.netnsRef(path, "from", w.From)
		}
		if !c.require(path, "kind", "one of "+strings.Join(w.Kind.choices(), ", ")) || w.Kind == "" {
			continue
		}
		c.keysOfKind(path, w)
		c.timing(path, w)
		if w.Kind == KindExec {
			c.exec(path, w)
			continue
		}
		c.destination(path, w)
		switch w.Kind {
		case KindIperf3:
			c.iperf3(path, w)
		case KindRR:
			c.rr(i, path, w)
		case KindPing:
			c.ping(path, w)
		}
	}
	c.ports()
}

// keysOfKind notes keys that mean nothing for the kind.
func (c *checker) keysOfKind(path string, w *Workload) {
	for _, keys := range kindKeys {
		for _, key := range keys {
			if at := join(path, key); !w.Kind.has(key) && c.given(at) {
				c.fail(at, fmt.Sprintf("a workload of kind %s has no key %s", w.Kind, key), "one of "+strings.Join(slices.Concat(everyKind, kindKeys[w.Kind]), ", "))
			}
		}
	}
}

func (c *checker) timing(path string, w *Workload) {
	if c.given(join(path, "duration")) {
		if w.Duration == 0 {
			c.fail(join(path, "duration"), "duration is 0", "more than 0s")
		}
	} else if c.Duration > 0 && w.Start >= c.Duration {
		c.fail(join(path, "start"), fmt.Sprintf("start is %v, when the scenario is over", w.Start), fmt.Sprintf("less than %v, or a duration for the workload", c.Duration))
	}
}

func (c *checker) exec(path string, w *Workload) {
	if c.require(path, "command", `the program and its arguments, e.g. command = ["ip", "link"]`) && (len(w.Command) == 0 || w.Command[0] == "") {
		c.fail(join(path, "command"), "no program", `the program and its arguments, e.g. ["ip", "link"]`)
	}
}

func (c *checker) destination(path string, w *Workload) {
	if !c.require(path, "to", "the namespace of the server") {
		return
	}
	at := join(path, "to")
	netns, _, named := strings.Cut(w.To, "/")
	if named && c.NIC(w.To) == nil {
		c.nicRef(at, "to", w.To)
		return
	}
	if !c.netnsRef(path, "to", netns) {
		return
	}
	if netns == w.From {
		c.fail(at, "from and to are the same netns", "two, with a link between them")
		return
	}
	if !c.Target(w).IsValid() && !c.incomplete("nic") {
		family := "IPv4"
		if w.IPv6 {
			family = "IPv6"
		}
		c.fail(at, fmt.Sprintf("to: no NIC of %s has an %s address", quoted(w.To), family), "an addr of that family for one")
	}
}

func (c *checker) iperf3(path string, w *Workload) {
	c.within(path, "flows", w.Flows, 1, maxFlows)
	c.within(path, "port", w.Port, 1, 65535)
	c.within(path, "cport", w.Cport, 1, 65535-max(0, w.Flows-1))
	most := maxTransfer
	if w.Proto == UDP {
		most = 65507
		if c.require(path, "rate", "a rate per flow: with proto udp nothing else limits it") && w.Rate == 0 {
			c.fail(join(path, "rate"), "rate is 0", "more than 0bit with proto udp")
		}
	}
	c.size(path, "length", w.Length, 16, most)
}

// CheckPrograms finds what the programs of the workloads cannot do and models
// can. The error is of type Errors.
func (s *Scenario) CheckPrograms() error {
	for _, p := range s.Cases() {
		s := p.Scenario
		for i := range s.Workloads {
			w := &s.Workloads[i]
			if d := s.lasting(w); w.Kind == KindIperf3 && d%units.Second != 0 {
				at := join(element("workload", i), "duration")
				if !s.given(at) {
					at = "duration"
				}
				return s.Fault(at, fmt.Sprintf("workload %s would last %v", w.Name, d), "whole seconds, as iperf3 counts, or --kernel model")
			}
		}
	}
	return nil
}

func (c *checker) rr(i int, path string, w *Workload) {
	c.size(path, "request", w.Request, 1, maxTransfer)
	c.size(path, "response", w.Response, 1, maxTransfer)
	c.within(path, "port", w.Port, 1, 65535)
	c.within(path, "priority", w.Priority, 0, 15)
	if d := c.lasting(w); d > 0 && c.warmup(i) >= d {
		c.fail(join(path, "warmup"), fmt.Sprintf("warmup is %v, the workload lasts %v", c.warmup(i), d), "less than that")
	}
}

func (c *checker) ping(path string, w *Workload) {
	c.size(path, "length", w.Length, minPing, maxPing)
	if c.given(join(path, "interval")) && w.Interval < units.Millisecond {
		c.fail(join(path, "interval"), fmt.Sprintf("interval is %v", w.Interval), "at least 1ms")
	}
}

func (c *checker) size(path, key string, size, least, most units.Size) {
	at := join(path, key)
	if c.given(at) && (size < least || size > most) {
		c.fail(at, fmt.Sprintf("%s is %v", key, size), fmt.Sprintf("%v to %v", least, most))
	}
}

// ports notes two servers on one port of a namespace.
func (c *checker) ports() {
	type end struct {
		netns string
		port  int
	}
	taken := map[end]string{}
	for i := range c.Workloads {
		w := &c.Workloads[i]
		if w.Port == 0 {
			continue
		}
		at := end{w.TargetNetns(), w.Port}
		if other, ok := taken[at]; ok {
			c.fail(join(element("workload", i), "port"), fmt.Sprintf("port %d in netns %s belongs to workload %s already", w.Port, at.netns, other), "a port of its own, or none to have one assigned")
		}
		taken[at] = w.Name
	}
}
