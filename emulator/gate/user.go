package gate

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// tree is what the user has put somewhere: a qdisc and all that hangs on it, as the kernel describes it. Options are kept
// as they are, and given back without being understood.
type tree struct {
	qdiscs  []object // the first is the root; parents before children
	classes []object // parents before children
	filters []object
}

// at finds the qdisc at a place.
func at(qdiscs []object, parent uint32) *object {
	for i := range qdiscs {
		if qdiscs[i].parent == parent {
			return &qdiscs[i]
		}
	}
	return nil
}

// capture describes the tree with the root.
func (g *Gate) capture(qdiscs []object, root object) (tree, error) {
	user := tree{qdiscs: []object{root}}
	if root.handle == 0 { // a default one: nothing can hang on it
		return user, nil
	}
	classes, err := g.tc.list(unix.RTM_GETTCLASS, unix.RTM_NEWTCLASS, 0)
	if err != nil {
		return user, err
	}
	for i := 0; i < len(user.qdiscs); i++ {
		parent := user.qdiscs[i].handle
		if parent == 0 {
			continue
		}
		for _, q := range qdiscs {
			if major(q.parent) == major(parent) && major(q.handle) != major(parent) {
				user.qdiscs = append(user.qdiscs, q)
			}
		}
		for _, c := range classes {
			if major(c.handle) == major(parent) && canAddClass(user.qdiscs[i].kind) {
				user.classes = append(user.classes, c)
			}
		}
	}
	parentsFirst(user.classes)
	for _, o := range append(slices.Clone(user.qdiscs), user.classes...) {
		filters, err := g.tc.list(unix.RTM_GETTFILTER, unix.RTM_NEWTFILTER, o.handle)
		if err != nil {
			continue // a qdisc that takes no filters
		}
		user.filters = append(user.filters, filters...)
	}
	user.filters = slices.DeleteFunc(user.filters, func(f object) bool { return f.options == nil || f.handle == 0 || isTable(f) })
	return user, nil
}

// canAddClass says whether classes of the kind are made by the user. The classes of others come with the qdisc.
func canAddClass(kind string) bool {
	return slices.Contains([]string{"htb", "hfsc", "drr", "qfq", "cbq"}, kind)
}

// isTable recognizes u32's hash table that comes with the first filter of a priority.
func isTable(f object) bool { return f.kind == "u32" && f.handle&0xfffff == 0 }

// parentsFirst sorts classes so that each comes after the one it is in.
func parentsFirst(classes []object) {
	parent := make(map[uint32]uint32, len(classes))
	for _, c := range classes {
		parent[c.handle] = c.parent
	}
	depth := func(c object) (n int) {
		for h, ok := c.parent, true; ok && n <= len(classes); n++ {
			h, ok = parent[h]
		}
		return n
	}
	slices.SortStableFunc(classes, func(a, b object) int { return depth(a) - depth(b) })
}

// plant makes the tree anew with its root at parent.
func (g *Gate) plant(user tree, parent uint32) error {
	if len(user.qdiscs) == 0 {
		user.qdiscs = []object{{kind: defaultQdisc()}}
	}
	for i, q := range user.qdiscs {
		if i == 0 {
			q.parent = parent
			q.options = g.defaultLimit(q)
			if user.isLeaf() {
				q.handle = 0
			}
		}
		if err := g.tc.send(unix.RTM_NEWQDISC, replace, replayable(q)); err != nil {
			return fmt.Errorf("put the qdisc of the user back: %w", err)
		}
		if i > 0 {
			continue
		}
		for _, c := range user.classes {
			if err := g.tc.send(unix.RTM_NEWTCLASS, replace, c); err != nil {
				return fmt.Errorf("put a class of the user back: %w", err)
			}
		}
	}
	for _, f := range user.filters {
		if err := g.tc.send(unix.RTM_NEWTFILTER, create, replayable(f)); err != nil {
			return fmt.Errorf("put a filter of the user back: %w", err)
		}
	}
	return nil
}

// isLeaf says whether nothing is or will be attached by the handle of the tree's root. Then the kernel gives it another
// handle, so that the same `tc qdisc replace … handle X:` can be typed again: the kernel refuses to move a qdisc.
func (t tree) isLeaf() bool {
	root := t.qdiscs[0]
	return len(t.qdiscs) == 1 && len(t.classes) == 0 && len(t.filters) == 0 && slices.Contains(classless, root.kind)
}

var classless = []string{
	"bfifo", "cake", "choke", "codel", "dualpi2", "fq", "fq_codel", "fq_pie", "gred", "hhf", "pfifo", "pfifo_fast",
	"pfifo_head_drop", "pie", "sfq", "skbprio",
}

// replayable makes up for what a kind writes in another form than it reads.
func replayable(o object) object {
	if o.options == nil {
		return o
	}
	// The kernel writes options without the mark that they are nested, and some kinds want it.
	o.options = &attr{o.options.kind | nl.NLA_F_NESTED, slices.Clone(o.options.data)}
	amend := func(kind uint16, change func(uint32) uint32) {
		if a := find(o.options.data, kind); len(a) >= 4 {
			binary.NativeEndian.PutUint32(a, change(binary.NativeEndian.Uint32(a)))
		}
	}
	switch o.kind {
	case "htb": // the version (struct tc_htb_glob), written with its minor part
		amend(nl.TCA_HTB_INIT, func(uint32) uint32 { return 3 })
	case "cake": // a kernel without conntrack refuses to hear that there is no NAT
		if nat := find(o.options.data, cakeNAT); len(nat) >= 4 && binary.NativeEndian.Uint32(nat) == 0 {
			o.options.data = without(o.options.data, cakeNAT)
		}
	case "codel", "fq_codel": // target, interval and ce_threshold, kept in units of 1024 ns and written rounded down to 1 us
		for _, kind := range codelTimes[o.kind] {
			amend(kind, func(us uint32) uint32 { return us + 1 })
		}
	}
	if kind, ok := filterFlags[o.kind]; ok { // whether a card has taken the filter over
		const inHardware, notInHardware = 1 << 2, 1 << 3 // TCA_CLS_FLAGS_IN_HW, _NOT_IN_HW
		amend(kind, func(flags uint32) uint32 { return flags &^ (inHardware | notInHardware) })
	}
	return o
}

const cakeNAT = 11 // TCA_CAKE_NAT

// codelTimes are TCA_CODEL_… and TCA_FQ_CODEL_TARGET, _INTERVAL and _CE_THRESHOLD in include/uapi/linux/pkt_sched.h.
var codelTimes = map[string][]uint16{"codel": {1, 3, 5}, "fq_codel": {1, 3, 7}}

// filterFlags is the attribute with the flags, TCA_…_FLAGS in include/uapi/linux/pkt_cls.h.
var filterFlags = map[string]uint16{"u32": 11, "flower": 22, "matchall": 3, "bpf": 9}

// each calls fn with every attribute of the options: its type, all of it, and its payload.
func each(options []byte, fn func(kind uint16, whole, payload []byte)) {
	for len(options) >= unix.SizeofRtAttr {
		n := int(binary.NativeEndian.Uint16(options))
		if n < unix.SizeofRtAttr || n > len(options) {
			return
		}
		end := min((n+3)&^3, len(options))
		fn(binary.NativeEndian.Uint16(options[2:])&typeMask, options[:end], options[unix.SizeofRtAttr:n])
		options = options[end:]
	}
}

// find returns the payload of an attribute within options, nil if it is not there.
func find(options []byte, kind uint16) (found []byte) {
	each(options, func(k uint16, _, payload []byte) {
		if k == kind && found == nil {
			found = payload
		}
	})
	return found
}

// without returns a copy of the options that lacks some attributes.
func without(options []byte, kinds ...uint16) (rest []byte) {
	each(options, func(k uint16, whole, _ []byte) {
		if !slices.Contains(kinds, k) {
			rest = append(rest, whole...)
		}
	})
	return rest
}

// fifoLimit is the limit of a fifo in its own unit, ok if the qdisc is one.
func fifoLimit(q object) (limit uint32, ok bool) {
	switch q.kind {
	case "pfifo", "bfifo", "pfifo_head_drop":
		if q.options != nil && len(q.options.data) >= 4 {
			return binary.NativeEndian.Uint32(q.options.data), true
		}
	}
	return 0, false
}

// defaultLimit returns the options of a fifo with the limit it would have had on an interface whose txqueuelen the gate
// has not raised.
func (g *Gate) defaultLimit(q object) *attr {
	limit, ok := fifoLimit(q)
	switch {
	case ok && q.kind != "bfifo" && limit == Ring:
		return fifoOptions(uint32(g.txQueueLen))
	case ok && q.kind == "bfifo" && limit == Ring*uint32(g.frameLen):
		return fifoOptions(uint32(g.txQueueLen) * uint32(g.frameLen))
	}
	return q.options
}

// defaultQdisc is what the kernel puts on an interface that nobody configured.
func defaultQdisc() string {
	kind, err := os.ReadFile("/proc/sys/net/core/default_qdisc")
	if err != nil {
		return "pfifo_fast"
	}
	return strings.TrimSpace(string(kind))
}
