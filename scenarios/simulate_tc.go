package scenarios

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"nicemu/lab"
	"nicemu/replay/qdisc"
	"nicemu/scenarios/format"
)

// qdiscs are what makes the qdisc of each of card i's transmit queues, as its tc
// lines say. Without any it is the kernel's default, pfifo_fast, on each.
func (m *model) qdiscs(i int) ([]func() qdisc.Qdisc, error) {
	spec := &m.s.NICs[i]
	t := tcModel{queues: make([]func() qdisc.Qdisc, spec.Queues), root: "mq"}
	t.fill(pfifoFast)
	for j, args := range spec.TCCommands() {
		if err := t.command(spec, args); err != nil {
			var none *qdisc.NoModelError
			if kind := qdiscKind(args); errors.As(err, &none) && (kind == "" || lab.HasQdisc(kind)) {
				err = fmt.Errorf("%w, or a kernel that has it: --kernel host or lab", err)
			}
			return nil, m.s.Fault(fmt.Sprintf("nic[%d].tc[%d]", i, j), fmt.Sprintf("tc %s: %v", strings.Join(args, " "), err), "")
		}
	}
	return t.queues, nil
}

func pfifoFast() qdisc.Qdisc { return qdisc.NewPFIFOFast(qdisc.TxQueueLen) }

// tcModel is what a card's tc lines have made so far: one root qdisc, or mq with
// one below it for each transmit queue.
type tcModel struct {
	root   string // kind
	handle string // major number of the root, hexadecimal
	queues []func() qdisc.Qdisc
}

func (t *tcModel) fill(build func() qdisc.Qdisc) {
	for q := range t.queues {
		t.queues[q] = build
	}
}

// command carries out one tc command.
func (t *tcModel) command(spec *format.NIC, args []string) error {
	if args[0] != "qdisc" {
		return &qdisc.NoModelError{What: "there is no model of tc " + args[0], Expected: "tc qdisc with one of " + strings.Join(qdisc.Kinds, ", ")}
	}
	verb, rest := args[1], args[2:]
	if !slices.Contains([]string{"add", "replace", "change", "del", "delete"}, verb) {
		return fmt.Errorf("expected tc qdisc add, replace, change or del")
	}
	// First what there is no model of: its place may be none of mq either.
	if kind := qdiscKind(args); kind != "" && kind != "mq" && !slices.Contains(qdisc.Kinds, kind) {
		return &qdisc.NoModelError{What: "there is no model of the qdisc " + kind, Expected: "one of mq, " + strings.Join(qdisc.Kinds, ", ")}
	}
	place, kind, err := t.place(spec, rest)
	if err != nil {
		return err
	}
	if verb == "del" || verb == "delete" {
		kind = []string{"pfifo_fast"}
		if place == rootPlace {
			kind = []string{"mq"}
		}
	}
	if len(kind) == 0 {
		return fmt.Errorf("no qdisc named")
	}
	return t.graft(place, kind)
}

// rootPlace is the place of the root; the others are transmit queues.
const rootPlace = -1

// place reads what stands before the kind.
func (t *tcModel) place(spec *format.NIC, words []string) (place int, kind []string, err error) {
	place = rootPlace
	for len(words) > 0 {
		n, before := tcWords[words[0]]
		if !before {
			break
		}
		if len(words) < n+1 {
			return 0, nil, fmt.Errorf("no value after %s", words[0])
		}
		switch words[0] {
		case "root":
		case "dev":
			if words[1] != spec.Name {
				return 0, nil, fmt.Errorf("the device is %s; expected {dev}, which is %s", words[1], spec.Name)
			}
		case "handle":
			t.handle = strings.TrimSuffix(words[1], ":")
		case "parent":
			if words[1] == "root" {
				break
			}
			if place, err = t.queue(words[1]); err != nil {
				return 0, nil, err
			}
		default:
			return 0, nil, &qdisc.NoModelError{What: "there is no model of " + words[0], Expected: "root, parent or handle before one of " + strings.Join(qdisc.Kinds, ", ")}
		}
		words = words[n+1:]
	}
	return place, words, nil
}

// queue reads the place of a transmit queue below mq, "1:3" for the third.
func (t *tcModel) queue(parent string) (int, error) {
	major, minor, ok := strings.Cut(parent, ":")
	n, err := strconv.ParseUint(minor, 16, 16)
	if !ok || err != nil || t.root != "mq" || major != t.handle || n < 1 || n > uint64(len(t.queues)) {
		return 0, fmt.Errorf("parent %s is no class of mq: expected `root handle 1: mq` before it, and 1:1 to 1:%x", parent, len(t.queues))
	}
	return int(n) - 1, nil
}

// graft puts a qdisc in its place.
func (t *tcModel) graft(place int, kind []string) error {
	if kind[0] == "mq" && place == rootPlace {
		if len(kind) > 1 {
			return fmt.Errorf("mq has no options, not %q", kind[1])
		}
		t.root = "mq"
		t.fill(pfifoFast)
		return nil
	}
	build, err := qdisc.ParseTC(kind)
	if err != nil {
		return err
	}
	if place != rootPlace {
		t.queues[place] = build
		return nil
	}
	if len(t.queues) > 1 {
		return fmt.Errorf("as the root of %d transmit queues %s would be one for all, of which there is no model: expected `root handle 1: mq` and `parent 1:N %s` for each, or queues = 1", len(t.queues), kind[0], kind[0])
	}
	t.root = kind[0]
	t.fill(build)
	return nil
}
