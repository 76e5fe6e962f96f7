package format

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"nicemu/devices/units"
)

// checker collects what is wrong with a scenario whose values have the right types.
type checker struct {
	*Scenario
	unread []string // paths of values that could not be read: reported, so not judged
	errs   Errors
}

// fail notes a fault of the value at a path.
func (c *checker) fail(path, problem, expected string) {
	c.suggest(path, problem, expected, "")
}

func (c *checker) suggest(path, problem, expected, suggestion string) {
	for _, p := range c.unread {
		if p == path || strings.HasPrefix(p, path+"[") && path != "" {
			return
		}
	}
	c.errs = append(c.errs, c.errorAt(path, &fault{problem, expected, suggestion}))
}

// require notes a missing key of the table at a path.
func (c *checker) require(path, key, expected string) bool {
	if c.given(join(path, key)) {
		return true
	}
	c.fail(path, fmt.Sprintf("%sthe key %s is missing", placeOf(path), key), expected)
	return false
}

// placeOf is how messages call a table: "[[nic]]: ".
func placeOf(path string) string {
	if path == "" {
		return ""
	}
	name, _, _ := strings.Cut(path, "[")
	return "[[" + name + "]]: "
}

// within notes a number outside its range, if the key is there.
func (c *checker) within(path, key string, n, least, most int) {
	at := join(path, key)
	if c.given(at) && (n < least || n > most) {
		c.fail(at, fmt.Sprintf("%s is %d", key, n), fmt.Sprintf("%d to %d", least, most))
	}
}

// incomplete says whether part of an array of tables could not be read, so that a
// reference into it cannot be judged.
func (c *checker) incomplete(table string) bool {
	return slices.ContainsFunc(c.unread, func(p string) bool { return p == table || strings.HasPrefix(p, table+"[") })
}

// checkFile checks all that a file says, but for the values that could not be read.
func (s *Scenario) checkFile(unread []string) Errors {
	c := checker{Scenario: s, unread: unread}
	c.scenario()
	c.expectations()
	if len(c.errs)+len(unread) > 0 {
		return c.errs
	}
	return s.checkCases()
}

// check checks a scenario after assignments: its expectations may then speak of cases that are gone.
func (s *Scenario) check() Errors {
	c := checker{Scenario: s}
	c.scenario()
	if len(c.errs) > 0 {
		return c.errs
	}
	return s.checkCases()
}

// checkAxes checks that each swept key can have each of its values.
func (s *Scenario) checkAxes() Errors {
	var errs Errors
	for _, axis := range s.Sweep {
		bad := 0
		var faults Errors
		for i, value := range axis.Values {
			from, _ := s.where(element(axis.path, i))
			wrong := s.clone().apply(assignment{axis.Key, value, axis.text, from})
			if len(wrong) > 0 {
				bad++
			}
			faults = append(faults, wrong...)
		}
		if bad > 1 && bad == len(axis.Values) {
			// All of them: it is the key that is wrong.
			key := s.errorAt(axis.path, &fault{faults[0].Problem, faults[0].Expected, faults[0].Suggestion})
			faults = Errors{key}
		}
		errs = append(errs, faults...)
	}
	return errs
}

// checkCases checks every case of the sweep and reports the first that is wrong.
func (s *Scenario) checkCases() Errors {
	if len(s.Sweep) == 0 {
		return nil
	}
	if errs := s.checkAxes(); len(errs) > 0 {
		return errs
	}
	for picked := range s.combinations() {
		built, errs := s.build(picked)
		if len(errs) == 0 {
			c := checker{Scenario: built.Scenario}
			c.scenario()
			errs = c.errs
		}
		if len(errs) == 0 {
			continue
		}
		for _, e := range errs {
			if e.Set == "" {
				e.Problem = fmt.Sprintf("in the case %s: %s", built.String(), e.Problem)
			}
		}
		return errs
	}
	return nil
}

// scenario checks everything but the expectations.
func (c *checker) scenario() {
	if c.require("", "name", `the scenario's name, e.g. name = "bql-latency"`) && !isBareKey(c.Name) {
		c.fail("name", "name is "+quoted(c.Name), "letters, digits, - and _")
	}
	if c.Seed < 0 {
		c.fail("seed", fmt.Sprintf("seed is %d", c.Seed), "0 or more")
	}
	if c.require("", "duration", `how long the workloads last, e.g. duration = "5s"`) && c.Duration == 0 {
		c.fail("duration", "duration is 0", "more than 0s")
	}
	c.netns()
	c.nics()
	c.links()
	c.workloads()
}

func (c *checker) netns() {
	seen := map[string]bool{}
	for i, n := range c.Netns {
		path := element("netns", i)
		if !c.require(path, "name", "the namespace's name") {
			continue
		}
		at := join(path, "name")
		if !isBareKey(n.Name) || len(n.Name) > 32 {
			c.fail(at, "netns name "+quoted(n.Name), "1 to 32 letters, digits, - and _")
		}
		if seen[n.Name] {
			c.fail(at, fmt.Sprintf("netns %s is there twice", quoted(n.Name)), "a name of its own")
		}
		seen[n.Name] = true
	}
}

// netnsRef checks a reference to a namespace.
func (c *checker) netnsRef(path, key, name string) bool {
	var names []string
	for _, n := range c.Netns {
		if n.Name != "" {
			names = append(names, n.Name)
		}
	}
	if slices.Contains(names, name) || c.incomplete("netns") {
		return true
	}
	expected := "one of " + strings.Join(names, ", ")
	if len(names) == 0 {
		expected = "a [[netns]] of that name"
	}
	c.suggest(join(path, key), fmt.Sprintf("%s: there is no netns %s", key, quoted(name)), expected, nearest(name, names))
	return false
}

func (c *checker) nics() {
	if len(c.NICs) == 0 {
		c.fail("nic", "the scenario has no NIC", "at least one [[nic]]")
	}
	names, addrs := map[string]bool{}, map[netip.Addr]string{}
	for i := range c.NICs {
		n, path := &c.NICs[i], element("nic", i)
		if c.require(path, "name", `the interface's name, e.g. name = "eth0"`) {
			c.interfaceName(join(path, "name"), n.Name)
		}
		if c.require(path, "netns", "the namespace the NIC is in") && c.netnsRef(path, "netns", n.Netns) && names[n.ID()] {
			c.fail(join(path, "name"), fmt.Sprintf("NIC %s is there twice", quoted(n.ID())), "a name of its own in its netns")
		}
		names[n.ID()] = true
		c.device(path, n)
		c.within(path, "queues", n.Queues, 1, 16)
		c.within(path, "mtu", n.MTU, 68, 65521)
		if n.TSO && !n.Csum {
			c.fail(join(path, "csum"), "csum is false but tso is true", "tso = false too: the kernel does not segment what it must checksum")
		}
		c.addresses(path, n, addrs)
		for j, line := range n.TC {
			c.tcLine(element(join(path, "tc"), j), line)
		}
	}
}

// interfaceName follows dev_valid_name() in net/core/dev.c.
func (c *checker) interfaceName(path, name string) {
	if name == "" || len(name) > 15 || name == "." || name == ".." || strings.ContainsAny(name, "/: \t") {
		c.fail(path, "interface name "+quoted(name), "1 to 15 bytes without / : and space")
	} else if name == "lo" || name == "all" || name == "default" {
		c.fail(path, "interface name "+quoted(name)+" is taken in every namespace", "another name, e.g. eth0")
	} else if strings.ContainsAny(name, "{}%") {
		c.fail(path, "interface name "+quoted(name), "a name without { } %")
	}
}

func (c *checker) device(path string, n *NIC) {
	known := c.opts.KnownDevices
	expected := "the card's profile"
	if len(known) > 0 {
		expected = "one of " + strings.Join(known, ", ")
	}
	if !c.require(path, "device", expected) {
		return
	}
	if len(known) > 0 && !slices.Contains(known, n.Device) {
		c.suggest(join(path, "device"), "unknown device "+quoted(n.Device), expected, nearest(n.Device, known))
		return
	}
	if c.opts.CheckKnob == nil {
		return
	}
	for _, key := range sortedKeys(n.Set) {
		if err := c.opts.CheckKnob(n.Device, key, n.Set[key]); err != nil {
			c.fail(join(join(path, "set"), key), fmt.Sprintf("device %s: %v", n.Device, err), "")
		}
	}
}

func (c *checker) addresses(path string, n *NIC, taken map[netip.Addr]string) {
	for j, p := range n.Addr {
		at := element(join(path, "addr"), j)
		switch a := p.Addr(); {
		case !p.IsValid():
			// already reported as unreadable
		case a.IsMulticast() || a.IsUnspecified() || a.IsLoopback() || a.Is4In6():
			c.fail(at, fmt.Sprintf("%v is no address for an interface", a), "a unicast address")
		case taken[a] != "":
			c.fail(at, fmt.Sprintf("%v belongs to %s already", a, taken[a]), "an address of its own")
		case a.Is6() && n.MTU < 1280:
			c.fail(at, fmt.Sprintf("%v on an interface of mtu %d", a, n.MTU), "an mtu of at least 1280, without which there is no IPv6")
		default:
			taken[a] = n.ID()
		}
	}
}

// tcObjects are the first words a tc line of a NIC may have.
var tcObjects = []string{"qdisc", "class", "filter", "chain", "action", "actions"}

func (c *checker) tcLine(path, line string) {
	words := strings.Fields(line)
	if len(words) < 2 {
		c.fail(path, "tc line "+quoted(line), "what follows the word tc, e.g. qdisc replace dev {dev} root fq_codel")
		return
	}
	if words[0] == "tc" {
		c.fail(path, "the tc line starts with the word tc", "what follows it, e.g. "+strings.Join(words[1:min(len(words), 3)], " ")+" …")
		return
	}
	if !slices.Contains(tcObjects, words[0]) {
		c.suggest(path, "unknown tc object "+quoted(words[0]), "one of "+strings.Join(tcObjects, ", "), nearest(words[0], tcObjects))
		return
	}
	for rest := line; ; {
		_, after, ok := strings.Cut(rest, "{")
		if !ok {
			return
		}
		name, after, closed := strings.Cut(after, "}")
		if !closed || name != "dev" {
			c.fail(path, "unknown placeholder {"+name+"} in the tc line", "{dev}")
			return
		}
		rest = after
	}
}

func (c *checker) links() {
	linked := map[string]bool{}
	for i := range c.Links {
		l, path := &c.Links[i], element("link", i)
		if c.require(path, "ends", `two NICs as netns/name, e.g. ends = ["a/eth0", "b/eth0"]`) {
			c.ends(path, l, linked)
		}
		rate := c.given(join(path, "rate"))
		if rate && l.Rate == 0 {
			c.fail(join(path, "rate"), "rate is 0", "more than 0bit")
		}
		slow := c.slower(l)
		c.reach(join(path, "rate"), slow, l.Rate)
		if !c.given(join(path, "steps")) && !c.given(join(path, "trace")) {
			c.require(path, "rate", `the rate of the wire, e.g. rate = "1gbit"`)
		}
		if l.Loss > units.Whole {
			c.fail(join(path, "loss"), fmt.Sprintf("loss is %v", l.Loss), "0% to 100%")
		}
		c.steps(path, l, rate, slow)
		c.trace(path, l)
	}
}

func (c *checker) ends(path string, l *Link, linked map[string]bool) {
	at := join(path, "ends")
	if len(l.Ends) != 2 {
		c.fail(at, fmt.Sprintf("a link with %d ends", len(l.Ends)), `two NICs as netns/name, e.g. ["a/eth0", "b/eth0"]`)
		return
	}
	for j, id := range l.Ends {
		if c.NIC(id) == nil {
			c.nicRef(element(at, j), "ends", id)
		} else if linked[id] {
			c.fail(element(at, j), fmt.Sprintf("NIC %s is the end of a link already", quoted(id)), "a NIC without a link")
		}
		linked[id] = true
	}
}

// nicRef notes a reference to a NIC that does not exist.
func (c *checker) nicRef(path, key, id string) {
	if c.incomplete("nic") {
		return
	}
	var ids []string
	for i := range c.NICs {
		ids = append(ids, c.NICs[i].ID())
	}
	expected := "one of " + strings.Join(ids, ", ")
	if len(ids) == 0 {
		expected = "a [[nic]] of that netns and name"
	}
	c.suggest(path, fmt.Sprintf("%s: there is no NIC %s", key, quoted(id)), expected, nearest(id, ids))
}

func (c *checker) steps(path string, l *Link, rate bool, slow end) {
	if c.given(join(path, "steps")) && len(l.Steps) == 0 {
		c.fail(join(path, "steps"), "no steps", `a list, e.g. [{at = "1s", rate = "100mbit"}]`)
	}
	for j, step := range l.Steps {
		at := element(join(path, "steps"), j)
		if c.require(at, "at", "when the rate changes") && j > 0 && step.At <= l.Steps[j-1].At {
			c.fail(join(at, "at"), fmt.Sprintf("at is %v, the step before it is at %v", step.At, l.Steps[j-1].At), "steps in order of time")
		}
		if c.require(at, "rate", "the new rate") && step.Rate == 0 {
			c.fail(join(at, "rate"), "rate is 0", "more than 0bit")
		}
		c.reach(join(at, "rate"), slow, step.Rate)
	}
	if len(l.Steps) > 0 && l.Steps[0].At > 0 && !rate {
		c.fail(join(path, "steps"), fmt.Sprintf("no rate before %v", l.Steps[0].At), "a rate for the link, or a first step at 0s")
	}
}

// end is a card of a link and the fastest that it can be; 0 is without limit.
type end struct {
	nic     *NIC
	maxRate units.Rate
}

// slower is the card that bounds the rate of a link.
func (c *checker) slower(l *Link) (slow end) {
	if c.opts.MaxRate == nil {
		return slow
	}
	for _, id := range l.Ends {
		n := c.NIC(id)
		if n == nil || !slices.Contains(c.opts.KnownDevices, n.Device) {
			continue // already reported
		}
		if r := c.opts.MaxRate(n.Device); r > 0 && (slow.maxRate == 0 || r < slow.maxRate) {
			slow = end{n, r}
		}
	}
	return slow
}

// reach refuses a rate that the slower card cannot have. A link may be slower
// than its cards.
func (c *checker) reach(path string, slow end, rate units.Rate) {
	if slow.maxRate > 0 && rate > slow.maxRate {
		c.fail(path, fmt.Sprintf("rate is %v, too fast for %s, device %s", rate, slow.nic.ID(), slow.nic.Device), fmt.Sprintf("at most %v", slow.maxRate))
	}
}

func (c *checker) trace(path string, l *Link) {
	at := join(path, "trace")
	if !c.given(at) {
		return
	}
	if l.Trace == "" {
		c.fail(at, "trace is empty", "the name of a file")
	}
	for _, key := range []string{"rate", "steps"} {
		if c.given(join(path, key)) {
			c.fail(at, "trace and "+key+" are both given", "one of them")
		}
	}
}
