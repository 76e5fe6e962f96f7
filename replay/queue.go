package replay

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"nicemu/replay/capture"
)

// QueueRule chooses the transmit queue of a packet. The zero value goes by flow hash.
type QueueRule struct {
	By  QueueBy
	Map QueueMap // for pcp, dscp and interface
}

// QueueBy is what a packet's queue is chosen by.
//
//	hash       RSS hash of addresses and ports, scaled to the queues as skb_tx_hash does
//	pcp        VLAN priority, 0 without a tag
//	dscp       DSCP, 0 without IP
//	interface  interface of the capture, counted over all files as mergecap does
//	fixed:N    always queue N
//
// Without a map pcp, and the upper three bits of dscp, go by IEEE 802.1Q table 8-5, the most urgent class to queue 0, which strict arbitration
// prefers; interfaces go to the queue of their number, and begin again at 0 after the last queue.
type QueueBy struct {
	key   queueKey
	fixed int
}

type queueKey int

const (
	byHash queueKey = iota
	byPCP
	byDSCP
	byInterface
	byFixed
)

var queueKeys = [...]struct {
	name string
	keys int // that a map can list
}{byHash: {"hash", 0}, byPCP: {"pcp", 8}, byDSCP: {"dscp", 64}, byInterface: {"interface", 1 << 16}, byFixed: {"fixed", 0}}

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *QueueBy) UnmarshalText(text []byte) error {
	name, number, numbered := strings.Cut(string(text), ":")
	for k := range queueKeys {
		if queueKeys[k].name != name || numbered != (queueKey(k) == byFixed) {
			continue
		}
		*b = QueueBy{key: queueKey(k)}
		if !numbered {
			return nil
		}
		if n, err := strconv.ParseUint(number, 10, 16); err == nil {
			b.fixed = int(n)
			return nil
		}
	}
	return fmt.Errorf("queue key %q: expected hash, pcp, dscp, interface or fixed:N", text)
}

func (b QueueBy) String() string {
	if b.key == byFixed {
		return fmt.Sprintf("fixed:%d", b.fixed)
	}
	return queueKeys[b.key].name
}

// MarshalText implements encoding.TextMarshaler.
func (b QueueBy) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// of is the packet's key; iface is the capture interface's number.
func (b QueueBy) of(f *capture.Fields, iface int) int {
	switch b.key {
	case byFixed:
		return b.fixed
	case byPCP:
		return int(f.PCP)
	case byDSCP:
		return int(f.DSCP)
	case byInterface:
		return iface
	}
	return 0
}

// QueueMap says which key goes to which queue, as "46:0,34:1,*:3"; without * what is not listed goes to the last queue. The zero value is no map.
type QueueMap struct {
	queues map[int]int
	rest   int // lastQueue if there is no *
	text   string
}

const lastQueue = -1

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *QueueMap) UnmarshalText(text []byte) error {
	*m = QueueMap{queues: map[int]int{}, rest: lastQueue, text: string(text)}
	for entry := range strings.SplitSeq(m.text, ",") {
		key, queue, _ := strings.Cut(strings.TrimSpace(entry), ":")
		q, err := strconv.ParseUint(queue, 10, 16)
		if err == nil && key == "*" && m.rest == lastQueue {
			m.rest = int(q)
			continue
		}
		k, kerr := strconv.ParseUint(key, 10, 16)
		if _, twice := m.queues[int(k)]; err != nil || kerr != nil || twice {
			return fmt.Errorf("queue map entry %q: expected KEY:QUEUE with each key once, or *:QUEUE, e.g. 5:0,4:1,*:3", entry)
		}
		m.queues[int(k)] = int(q)
	}
	return nil
}

func (m QueueMap) String() string { return m.text }

// MarshalText implements encoding.TextMarshaler.
func (m QueueMap) MarshalText() ([]byte, error) { return []byte(m.text), nil }

func (m *QueueMap) queue(key, queues int) int {
	if q, listed := m.queues[key]; listed {
		return q
	}
	if m.rest == lastQueue {
		return queues - 1
	}
	return m.rest
}

func (r QueueRule) String() string { return strings.TrimSpace(r.By.String() + " " + r.Map.text) }

// check refuses keys that cannot be and queues that the card does not have.
func (r *QueueRule) check(queues int) error {
	keys := queueKeys[r.By.key].keys
	if r.Map.queues != nil && keys == 0 {
		return fmt.Errorf("queue map %q: queues by %v take none", r.Map, r.By)
	}
	named := []int{r.By.fixed, r.Map.rest}
	for k, q := range r.Map.queues {
		if k >= keys {
			return fmt.Errorf("queue map %q: key %d, expected 0 to %d", r.Map, k, keys-1)
		}
		named = append(named, q)
	}
	if q := slices.Max(named); q >= queues {
		return fmt.Errorf("queue %d in %q: the card has queues 0 to %d", q, r, queues-1)
	}
	return nil
}

// classify is the recommended traffic class of a priority, by number of classes (IEEE 802.1Q-2018 table 8-5).
var classify = [8][8]uint8{
	{0, 0, 0, 0, 0, 1, 1, 1},
	{0, 0, 0, 0, 0, 0, 0, 0},
	{0, 0, 0, 1, 1, 2, 2, 2},
	{0, 0, 0, 1, 1, 2, 3, 3},
	{0, 1, 1, 2, 2, 3, 4, 4},
	{0, 1, 1, 2, 2, 3, 4, 5},
	{0, 1, 2, 3, 3, 4, 5, 6},
	{0, 1, 2, 3, 4, 5, 6, 7},
}

func urgency(priority, queues int) int {
	classes := min(queues, 8)
	return classes - 1 - int(classify[priority][classes-1])
}

// priorities are those of sockets that fit into the priority map of a root qdisc (TC_PRIO_MAX).
const priorities = 16

// priority chooses a socket's priority by the same keys: PCP, the upper three bits of DSCP and the numbers of interfaces as they are, or what the map
// says for them, 0 without *. By hash all have 0.
func (r *QueueRule) priority(f *capture.Fields, iface int) int {
	key := r.By.of(f, iface)
	switch {
	case r.By.key == byFixed:
		return key
	case r.Map.queues != nil:
		if _, listed := r.Map.queues[key]; !listed && r.Map.rest == lastQueue {
			return 0
		}
		return r.Map.queue(key, priorities)
	case r.By.key == byDSCP:
		return key >> 3
	}
	return key % priorities
}

// queue chooses among the card's queues.
func (r *QueueRule) queue(f *capture.Fields, hash uint32, iface, queues int) int {
	key := r.By.of(f, iface)
	switch {
	case r.By.key == byHash:
		return int(uint64(hash) * uint64(queues) >> 32)
	case r.By.key == byFixed:
		return key
	case r.Map.queues != nil:
		return r.Map.queue(key, queues)
	case r.By.key == byPCP:
		return urgency(key, queues)
	case r.By.key == byDSCP:
		return urgency(key>>3, queues)
	}
	return key % queues
}
