package emulator

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Hurry gives all threads of the process the loop's real-time priority, until
// calm. Every 10 ms the Go scheduler takes the processor from a goroutine that
// runs, the loop's too, and another of its threads has to give it back: on a busy
// host that one waits for a core, and the loop with it. Without the right to
// hurry a run is as precise as the host allows.
//
// Programs that [netns.NS.Command] starts meanwhile run at the usual priority.
func Hurry() (calm func()) {
	setScheduler(&unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1})
	return func() { setScheduler(&unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}) }
}

// setScheduler is for all threads; those to come inherit it.
func setScheduler(a *unix.SchedAttr) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, t := range threads {
		if id, err := strconv.Atoi(t.Name()); err == nil {
			unix.SchedSetAttr(id, a, 0) // a thread may have ended; without the right, see Hurry
		}
	}
}
