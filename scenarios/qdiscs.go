package scenarios

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"nicemu/emulator/gate"
	"nicemu/emulator/netns"

	"github.com/vishvananda/netlink"
	vns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// samplePeriod is how often backlogs are looked at while workloads run.
const samplePeriod = 20 * time.Millisecond

// backlogs are what the qdiscs of all cards held, by card and handle.
type backlogs map[string]map[uint32]*backlog

type backlog struct{ sum, n, max uint64 }

func (b *backlog) add(bytes uint64) {
	b.sum += bytes
	b.n++
	b.max = max(b.max, bytes)
}

func (b *backlog) mean() uint64 { return b.sum / max(1, b.n) }

// sampling looks at the backlogs in the background.
type sampling struct {
	stop context.CancelFunc
	done chan struct{}
	seen backlogs
	err  error
}

// startSampling begins to look; finish ends it.
func (t *topology) startSampling(ctx context.Context) *sampling {
	ctx, stop := context.WithCancel(ctx)
	s := &sampling{stop: stop, done: make(chan struct{}), seen: backlogs{}}
	go func() {
		defer close(s.done)
		s.err = t.sample(ctx, s.seen)
	}()
	return s
}

func (s *sampling) finish() (backlogs, error) {
	s.stop()
	<-s.done
	return s.seen, s.err
}

func (t *topology) sample(ctx context.Context, seen backlogs) error {
	handles := make([]*netlink.Handle, len(t.cards))
	for i, c := range t.cards {
		h, err := netlink.NewHandleAt(vns.NsHandle(c.ns.FD()), unix.NETLINK_ROUTE)
		if err != nil {
			return fmt.Errorf("watching qdiscs: %w", err)
		}
		defer h.Close()
		handles[i] = h
		seen[c.spec.ID()] = map[uint32]*backlog{}
	}
	tick := time.NewTicker(samplePeriod)
	defer tick.Stop()
	for {
		for i, c := range t.cards {
			link := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: c.TAP().Ifindex()}}
			list, err := handles[i].QdiscList(link)
			if errors.Is(err, netlink.ErrDumpInterrupted) {
				continue
			}
			if err != nil {
				return fmt.Errorf("watching qdiscs: %w", err)
			}
			at := seen[c.spec.ID()]
			for _, q := range list {
				a := q.Attrs()
				if a.Statistics == nil || a.Statistics.Queue == nil {
					continue
				}
				if at[a.Handle] == nil {
					at[a.Handle] = &backlog{}
				}
				at[a.Handle].add(uint64(a.Statistics.Queue.Backlog))
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (b backlogs) of(card string, handle uint32) *backlog {
	if x := b[card][handle]; x != nil {
		return x
	}
	return &backlog{}
}

// qdiscs are the qdiscs of all cards as `tc -j -s qdisc show` prints them, with
// netns and the backlogs seen while the workloads ran. Those of the gate are
// left out.
func (t *topology) qdiscs(ctx context.Context, seen backlogs) ([]map[string]any, error) {
	all := []map[string]any{}
	for _, c := range t.cards {
		list, err := Qdiscs(ctx, c.ns, c.spec.Name)
		if err != nil {
			return nil, err
		}
		for _, q := range list {
			if OfGate(q) {
				continue
			}
			b := seen.of(c.spec.ID(), handleOf(q))
			q["netns"], q["dev"] = c.spec.Netns, c.spec.Name // tc leaves out what it was asked for
			q["backlog_mean"], q["backlog_max"] = b.mean(), b.max
			all = append(all, q)
		}
	}
	return all, nil
}

// Qdiscs are those of an interface as `tc -j -s qdisc show` prints them, the
// gate's own among them.
func Qdiscs(ctx context.Context, ns *netns.NS, dev string) (list []map[string]any, err error) {
	out, err := ns.Command(ctx, "tc", "-j", "-s", "qdisc", "show", "dev", dev).Output()
	if err == nil {
		err = json.Unmarshal(repair(out), &list)
	}
	if err != nil {
		return nil, fmt.Errorf("tc -j -s qdisc show: %w", err)
	}
	return list, nil
}

// OfGate says whether a qdisc of [Qdiscs] is one that the user did not make.
func OfGate(q map[string]any) bool { return gate.Owns(handleOf(q)) }

// repair makes JSON of what iproute2 prints as such: of taprio, a schedule that
// waits for its base time is a member without a name (before 6.7); of hfsc, the
// options are plain text, which goes.
func repair(text []byte) []byte {
	text = bytes.ReplaceAll(text, []byte(`,{"base_time":`), []byte(`,"admin":{"base_time":`))
	return plainOptions.ReplaceAll(text, []byte(`"options":{}`))
}

var plainOptions = regexp.MustCompile(`"options":\{\s*[a-z][^{}"]*\}`)

// handleOf reads the handle as tc prints it, "8001:".
func handleOf(q map[string]any) uint32 {
	text, _ := q["handle"].(string)
	major, err := strconv.ParseUint(strings.TrimSuffix(text, ":"), 16, 16)
	if err != nil {
		return 0
	}
	return uint32(major) << 16
}
