// Package dql is the kernel's dynamic queue limits, bit for bit: the algorithm
// behind byte queue limits (BQL).
//
// It follows lib/dynamic_queue_limits.c and
// include/linux/dynamic_queue_limits.h of Linux 6.12, with its 32-bit wrapping
// counters and its quirks, stall detection included. It leaves out the memory
// barriers (one goroutine owns a DQL) and the tracepoint of a detected stall.
//
// Amounts are objects; every network driver counts bytes.
package dql

import "math"

const (
	// MaxObject is the largest amount that one Queued call records.
	MaxObject = math.MaxUint32 / 16
	// MaxLimit is the largest limit: DQL_MAX_LIMIT.
	MaxLimit = math.MaxUint32/2 - MaxObject

	historyWords = 4  // DQL_HIST_LEN
	wordBits     = 64 // BITS_PER_LONG
)

// DQL is the limit of one transmit queue. Use [New]; times are in jiffies.
type DQL struct {
	numQueued    uint32 // total ever queued
	adjLimit     uint32 // limit + total completed
	lastObj      uint32 // the newest Queued call
	limit        uint32
	numCompleted uint32

	prevOvlimit   uint32
	prevNumQueued uint32
	prevLastObj   uint32
	lowestSlack   uint32
	slackStart    uint64

	minLimit, maxLimit uint32
	slackHold          uint32

	stallThrs   uint16
	stallMax    uint16
	stallCnt    uint64
	lastReap    uint64
	historyHead uint64
	history     [historyWords]uint64
}

// New returns a limit at 0 whose slack is held for hold jiffies before the
// limit may shrink (the kernel's default is HZ, one second).
func New(hold uint32, jiffies uint64) *DQL {
	d := &DQL{maxLimit: MaxLimit, slackHold: hold}
	d.Reset(jiffies)
	return d
}

// Reset forgets what was queued, as dql_reset does: the adjusted limit keeps
// its old value until the first completion.
func (d *DQL) Reset(jiffies uint64) {
	d.limit = d.minLimit
	d.numQueued, d.numCompleted, d.lastObj = 0, 0, 0
	d.prevNumQueued, d.prevLastObj, d.prevOvlimit = 0, 0, 0
	d.lowestSlack = math.MaxUint32
	d.slackStart = jiffies
	d.lastReap = jiffies
	d.historyHead = jiffies / wordBits
	d.history = [historyWords]uint64{}
}

// Avail is what may still be queued: negative means over the limit, and zero
// still admits one more.
func (d *DQL) Avail() int32 { return int32(d.adjLimit - d.numQueued) }

// Limit is the current limit.
func (d *DQL) Limit() uint32 { return d.limit }

// Inflight is what has been queued and not completed.
func (d *DQL) Inflight() uint32 { return d.numQueued - d.numCompleted }

// SetMinMax bounds the limit; it takes effect at the next completion, as a
// write to limit_min or limit_max in sysfs does. The maximum wins.
func (d *DQL) SetMinMax(minLimit, maxLimit uint32) { d.minLimit, d.maxLimit = minLimit, maxLimit }

// SetStallThreshold turns stall detection on (jiffies, 4 to 128) or off (0).
func (d *DQL) SetStallThreshold(threshold uint16, jiffies uint64) {
	d.lastReap = jiffies
	d.stallThrs = threshold
}

// Stalls returns how often completions stalled and the longest stall in jiffies.
func (d *DQL) Stalls() (count uint64, longest uint16) { return d.stallCnt, d.stallMax }

// Queued records n objects handed to the hardware. It may overshoot the limit
// by the whole of n; more than [MaxObject] is not recorded.
func (d *DQL) Queued(n uint32, jiffies uint64) {
	if n > MaxObject {
		return
	}
	d.lastObj = n
	d.numQueued += n
	if d.stallThrs != 0 {
		d.recordHistory(jiffies)
	}
}

// Completed records that c objects were completed since the last call, and
// moves the limit. Completing more than was queued is a bug of the caller: the
// kernel halts there, and so does this.
func (d *DQL) Completed(c uint32, jiffies uint64) {
	queued := d.numQueued
	if c > queued-d.numCompleted {
		panic("dql: more completed than queued")
	}
	completed := d.numCompleted + c
	limit := d.limit
	ovlimit := posDiff(queued-d.numCompleted, limit)
	inprogress := queued - completed
	prevInprogress := d.prevNumQueued - d.numCompleted
	allPrevCompleted := int32(completed-d.prevNumQueued) >= 0

	switch {
	case ovlimit != 0 && inprogress == 0 || d.prevOvlimit != 0 && allPrevCompleted:
		// Starved: the queue ran empty while the limit held frames back.
		limit += posDiff(completed, d.prevNumQueued) + d.prevOvlimit
		d.slackStart = jiffies
		d.lowestSlack = math.MaxUint32
	case inprogress != 0 && prevInprogress != 0 && !allPrevCompleted:
		// Busy throughout the interval: what of the limit was not needed?
		slack := posDiff(limit+d.prevOvlimit, 2*(completed-d.numCompleted))
		if d.prevOvlimit != 0 {
			slack = max(slack, posDiff(d.prevLastObj, d.prevOvlimit))
		}
		d.lowestSlack = min(d.lowestSlack, slack)
		if int64(jiffies-d.slackStart-uint64(d.slackHold)) > 0 {
			limit = posDiff(limit, d.lowestSlack)
			d.slackStart = jiffies
			d.lowestSlack = math.MaxUint32
		}
	}

	if limit >= d.maxLimit {
		limit = d.maxLimit
	} else if limit <= d.minLimit {
		limit = d.minLimit
	}
	if limit != d.limit {
		d.limit = limit
		ovlimit = 0
	}
	d.adjLimit = limit + completed
	d.prevOvlimit = ovlimit
	d.prevLastObj = d.lastObj
	d.numCompleted = completed
	d.prevNumQueued = queued
	if d.stallThrs != 0 {
		d.checkStall(jiffies)
	}
}

// posDiff is a-b modulo 2^32 if that is positive as a signed number, else 0.
func posDiff(a, b uint32) uint32 {
	if int32(a-b) > 0 {
		return a - b
	}
	return 0
}

// recordHistory sets the bit of this jiffy in a ring of 256.
func (d *DQL) recordHistory(jiffies uint64) {
	word := jiffies / wordBits
	if word != d.historyHead {
		for i := uint64(0); i < historyWords; i++ {
			if word*wordBits == (d.historyHead+i)*wordBits {
				break
			}
			d.history[(d.historyHead+i+1)%historyWords] = 0
		}
		d.historyHead = word
	}
	d.history[word%historyWords] |= 1 << (jiffies % wordBits)
}

// checkStall looks for the oldest jiffy since the last completion in which
// something was queued, half the threshold ago or earlier.
func (d *DQL) checkStall(jiffies uint64) {
	threshold := uint64(d.stallThrs)
	if int64(jiffies-d.lastReap-threshold) >= 0 {
		start := (d.historyHead - (historyWords - 1)) * wordBits
		if int64(start-d.lastReap-1) < 0 {
			start = d.lastReap + 1
		}
		end := d.historyHead*wordBits + wordBits - 1
		if int64(jiffies-end-threshold/2) < 0 {
			end = jiffies - threshold/2
		}
		for t := start; int64(t-end) <= 0; t++ {
			if d.history[t/wordBits%historyWords]&(1<<(t%wordBits)) != 0 {
				d.stallCnt++
				d.stallMax = max(d.stallMax, uint16(jiffies-t))
				break
			}
		}
	}
	d.lastReap = jiffies
}
