// Package trace reads rate traces in mahimahi's format: when a link could deliver, recorded once and replayed for ever.
//
// The format, as mm-link of mahimahi reads it (src/frontend/link_queue.cc):
//
//   - Text, one decimal number per line: milliseconds since the start, never falling. Empty lines, signs, comments and fractions are errors.
//   - Every line is one delivery opportunity of 1504 bytes at that millisecond: an IP packet of 1500 bytes and the 4 bytes that a TUN device puts
//     before it. So "1" alone is 12 Mbit/s of IP, and a millisecond that stands on three lines carries three packets.
//   - The trace repeats with the last number as its period, which must not be 0. A number 0 falls together with the last one of the round before.
//   - Several small packets share an opportunity, in whole or in part; a packet larger than what is left takes the rest and goes on with the
//     next one, and leaves when its last byte does. What no packet uses is lost: opportunities do not add up.
//
// Here a line may end in CR LF besides, and numbers end at 4294967295 (49 days). Left out: mm-link's own queues (the card and the qdisc above it are the queue), its meters and --once.
package trace

import (
	"math"
	"sort"
)

const (
	OpportunityBytes = 1504 // bytes one opportunity carries
	PacketOverhead   = 4    // bytes a packet costs beyond its IP length; an Ethernet frame of n bytes costs n − 14 + 4
	ipBytes          = OpportunityBytes - PacketOverhead
	ethernetHeader   = 14
)

const ms = int64(1e6) // ns

// Trace is a schedule of delivery opportunities in nanoseconds since the start of the link. It is immutable.
type Trace struct {
	at       []uint32 // the milliseconds that have opportunities, rising
	upTo     []uint32 // opportunities up to and with at[i]
	warnings []Warning
}

// Period is the length of one round in ns.
func (t *Trace) Period() int64 { return int64(t.at[len(t.at)-1]) * ms }

// Opportunities is the number of them in one round.
func (t *Trace) Opportunities() int64 { return int64(t.upTo[len(t.upTo)-1]) }

// Warnings are what is legal and yet unlikely to be meant.
func (t *Trace) Warnings() []Warning { return t.warnings }

// Next returns the first instant after the given one (both in ns since the start; -1 to include 0) that has opportunities, and how many.
// At the end of time (2⁶³ ns) it returns math.MaxInt64 and 0.
func (t *Trace) Next(after int64) (at int64, opportunities int) {
	if after == math.MaxInt64 {
		return after, 0
	}
	from, period := max(0, after+1), t.Period()
	round, rest := from/period, from%period
	if rest == 0 && round > 0 { // the end of the round before
		round, rest = round-1, period
	}
	i := t.search(rest)
	if int64(t.at[i])*ms > math.MaxInt64-round*period {
		return math.MaxInt64, 0
	}
	n := t.count(i)
	if i == len(t.at)-1 && t.at[0] == 0 {
		n += t.count(0)
	}
	return round*period + int64(t.at[i])*ms, int(n)
}

// Count is the number of opportunities from an instant on, up to and without another, in ns since the start.
func (t *Trace) Count(from, to int64) int64 { return t.before(to) - t.before(from) }

// Rate is the mean rate of IP in bit/s over [from, to) in ns, every opportunity used: 1500 bytes each.
func (t *Trace) Rate(from, to int64) float64 {
	if to <= from {
		return 0
	}
	return float64(t.Count(from, to)) * ipBytes * 8 * 1e9 / float64(to-from)
}

// Mean is the rate of IP in bit/s over a whole round, every opportunity used.
func (t *Trace) Mean() float64 { return t.Rate(1, t.Period()+1) }

// before counts the opportunities before x.
func (t *Trace) before(x int64) int64 {
	if x <= 0 {
		return 0
	}
	round, rest := x/t.Period(), x%t.Period()
	n := round * t.Opportunities()
	if rest == 0 {
		return n - t.count(len(t.at)-1) // they are at x
	}
	if i := t.search(rest); i > 0 {
		n += int64(t.upTo[i-1])
	}
	return n
}

// search finds the first millisecond of the round at or after rest, which is at most the period.
func (t *Trace) search(rest int64) int {
	return sort.Search(len(t.at), func(i int) bool { return int64(t.at[i])*ms >= rest })
}

// count is the number of opportunities at at[i].
func (t *Trace) count(i int) int64 {
	if i == 0 {
		return int64(t.upTo[0])
	}
	return int64(t.upTo[i] - t.upTo[i-1])
}
