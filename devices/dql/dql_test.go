package dql

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The vectors were printed by the kernel's own code (Linux 6.12) run in user
// space over a fake jiffies clock: two runs of mixed steps, through growth,
// decrease, minimum, maximum, stalls, reset and the 32-bit wrap.
func TestEveryVectorOfTheKernelIsEqual(t *testing.T) {
	f, err := os.Open("testdata/vectors.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var q Queue
	rows := 0
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		if strings.HasPrefix(sc.Text(), "#") || strings.HasPrefix(sc.Text(), "step") {
			continue
		}
		col := strings.Split(sc.Text(), ",")
		n := make([]int64, len(col))
		for i, c := range col {
			if i == 2 {
				continue
			}
			if n[i], err = strconv.ParseInt(c, 10, 64); err != nil {
				t.Fatal(err)
			}
		}
		jiffies, arg := uint64(n[1]), uint32(n[3])
		switch col[2] {
		case "init":
			q = Queue{DQL: *New(arg, jiffies)}
		case "q":
			q.Sent(arg, jiffies)
		case "c":
			q.Done(arg, jiffies)
		case "stall_thrs":
			q.SetStallThreshold(uint16(arg), jiffies)
		case "min":
			q.minLimit = arg
		case "max":
			q.maxLimit = arg
		case "reset":
			q.ResetQueue(jiffies)
		case "set":
			q.numQueued, q.numCompleted, q.prevNumQueued, q.adjLimit = arg, arg, arg, arg
		default:
			t.Fatalf("unknown step %q", col[2])
		}
		got := []int64{int64(q.numQueued), int64(q.numCompleted), int64(q.limit), int64(q.adjLimit), int64(q.lastObj),
			int64(q.prevOvlimit), int64(q.prevNumQueued), int64(q.lowestSlack), int64(q.Avail()), 0, int64(q.stallMax), int64(q.stallCnt)}
		if q.StackXOFF {
			got[9] = 1
		}
		for i := range got {
			if got[i] != n[4+i] {
				t.Fatalf("line %q: column %d is %d, the kernel has %d", sc.Text(), 4+i, got[i], n[4+i])
			}
		}
		rows++
	}
	if rows != 1700 {
		t.Fatalf("%d rows compared, want 1700", rows)
	}
}

// Whatever is queued and completed: bytes in flight are what was queued less
// what was completed, the limit keeps its bounds, and a queue with everything
// completed is never stopped for good.
func TestInflightAndBoundsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lo := rapid.Uint32Range(0, 20_000).Draw(t, "min")
		hi := rapid.Uint32Range(lo, 400_000).Draw(t, "max")
		q := Queue{DQL: *New(250, 0)}
		q.SetMinMax(lo, hi)
		var inflight, jiffies uint64
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			jiffies += rapid.Uint64Range(0, 100).Draw(t, "jiffies")
			if !q.StackXOFF && rapid.Bool().Draw(t, "send") {
				n := rapid.Uint32Range(1, 65536).Draw(t, "bytes")
				q.Sent(n, jiffies)
				inflight += uint64(n)
			} else {
				c := rapid.Uint64Range(0, inflight).Draw(t, "done")
				q.Done(uint32(c), jiffies)
				inflight -= c
				if c > 0 && (q.Limit() < lo || q.Limit() > hi) {
					t.Fatalf("limit %d outside %d..%d", q.Limit(), lo, hi)
				}
			}
			if uint64(q.Inflight()) != inflight {
				t.Fatalf("inflight %d, want %d", q.Inflight(), inflight)
			}
			if q.StackXOFF && q.Avail() >= 0 {
				t.Fatalf("stopped with %d available", q.Avail())
			}
			if inflight == 0 && q.StackXOFF {
				t.Fatal("nothing in flight and still stopped")
			}
		}
	})
}

func BenchmarkSentDone(b *testing.B) {
	q := Queue{DQL: *New(250, 0)}
	b.ReportAllocs()
	for b.Loop() {
		q.Sent(1514, 1)
		q.Done(1514, 1)
	}
}
