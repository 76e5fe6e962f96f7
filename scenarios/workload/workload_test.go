package workload

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"nicemu/devices/units"
	"nicemu/scenarios/format"
)

// here runs everything in the test's own namespace.
var here = &Runner{
	Exec: func(ctx context.Context, _ string, argv []string) *exec.Cmd {
		return exec.CommandContext(ctx, argv[0], argv[1:]...)
	},
	Do: func(_ string, fn func() error) error { return fn() },
}

var loopback = netip.MustParseAddr("127.0.0.1")

// freePort finds a TCP port nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func needs(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("%s is not installed", program)
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("never: %s", what)
		case <-tick.C:
		}
	}
}

// leavesNothing fails the test if it ends with more descriptors, goroutines or children than it began with.
func leavesNothing(t *testing.T) {
	t.Helper()
	goroutines, files, children := runtime.NumGoroutine(), descriptors(t), offspring(t)
	t.Cleanup(func() {
		eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= goroutines })
		eventually(t, "no descriptor is left", func() bool { return descriptors(t) <= files })
		eventually(t, "no process is left", func() bool { return offspring(t) <= children })
	})
}

func descriptors(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func offspring(t *testing.T) int {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, task := range tasks {
		list, _ := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		n += len(strings.Fields(string(list)))
	}
	return n
}

func command(argv ...string) *format.Workload {
	return &format.Workload{Name: "w", Kind: format.KindExec, Command: argv, Duration: units.Duration(10 * time.Second)}
}

func TestACommandsOutputAndStatusAreTheResult(t *testing.T) {
	leavesNothing(t)
	r, err := here.Run(t.Context(), command("sh", "-c", "echo one; echo two >&2"), loopback)
	if err != nil || *r.ExitStatus != 0 || r.Output != "one\ntwo\n" || r.Error != "" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestAFailingCommandIsAnErrorWithItsLastWords(t *testing.T) {
	leavesNothing(t)
	r, err := here.Run(t.Context(), command("sh", "-c", "echo one; echo it broke >&2; exit 7"), loopback)
	if err == nil || err.Error() != "workload w: sh: exit status 7: it broke" {
		t.Errorf("%v", err)
	}
	if *r.ExitStatus != 7 || r.Error != err.Error() {
		t.Errorf("%+v", r)
	}
}

func TestASignalIsAStatusAsInShells(t *testing.T) {
	r, _ := here.Run(t.Context(), command("sh", "-c", "kill -9 $$"), loopback)
	if *r.ExitStatus != 128+9 {
		t.Errorf("%d", *r.ExitStatus)
	}
}

func TestACommandEndsWithItsDuration(t *testing.T) {
	leavesNothing(t)
	w := command("sh", "-c", "echo begun; sleep 100")
	w.Duration = units.Duration(50 * time.Millisecond)
	r, err := here.Run(t.Context(), w, loopback)
	if err != nil || *r.ExitStatus != 128+15 || r.Output != "begun\n" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestACommandDeafToSIGTERMIsKilled(t *testing.T) {
	leavesNothing(t)
	w := command("sh", "-c", "trap '' TERM; while :; do sleep 100; done")
	w.Duration = units.Duration(50 * time.Millisecond)
	start := time.Now()
	r, err := here.Run(t.Context(), w, loopback)
	if err != nil || *r.ExitStatus != 128+9 {
		t.Errorf("%+v, %v", r, err)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("took %v", took)
	}
}

func TestWhatACommandLeavesInTheBackgroundIsEnded(t *testing.T) {
	leavesNothing(t)
	r, err := here.Run(t.Context(), command("sh", "-c", "sleep 1000 & echo $!"), loopback)
	if err != nil {
		t.Fatal(err)
	}
	proc := "/proc/" + strings.TrimSpace(r.Output)
	eventually(t, "the background process is gone", func() bool {
		state, err := os.ReadFile(proc + "/stat")
		return err != nil || strings.Contains(string(state), ") Z ")
	})
}

func TestTheEndOfALongOutputIsKept(t *testing.T) {
	r, err := here.Run(t.Context(), command("sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x; echo; echo done"), loopback)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Output) > maxOutput+len("…") || !strings.HasPrefix(r.Output, "…x") || !strings.HasSuffix(r.Output, "x\ndone\n") {
		t.Errorf("%d bytes: %.20q", len(r.Output), r.Output)
	}
}

func TestAMissingProgramIsNamed(t *testing.T) {
	_, err := here.Run(t.Context(), command("no-such-program"), loopback)
	var missing *MissingProgram
	if !errors.As(err, &missing) || missing.Program != "no-such-program" {
		t.Errorf("%v", err)
	}
	t.Setenv("PATH", "/nowhere")
	for kind, want := range map[format.Kind]string{
		format.KindIperf3: "workload w: the program iperf3 is not installed: apt-get install iperf3",
		format.KindPing:   "workload w: the program ping is not installed: apt-get install iputils-ping",
	} {
		_, err := here.Run(t.Context(), &format.Workload{Name: "w", Kind: kind}, loopback)
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestEveryKindEndsAtOnceWithItsContext(t *testing.T) {
	minute := units.Duration(time.Minute)
	for _, w := range []*format.Workload{
		command("sleep", "100"),
		{Kind: format.KindIperf3, Duration: minute, Flows: 2, Proto: format.TCP, Port: freePort(t)},
		{Kind: format.KindIperf3, Start: minute, Duration: minute, Flows: 1, Proto: format.UDP, Rate: units.Mbit, Port: freePort(t)},
		{Kind: format.KindRR, Duration: minute, Request: 1, Response: 1},
		{Kind: format.KindRR, Duration: minute, Request: 1, Response: 1, Interval: minute},
		{Kind: format.KindRR, Start: minute, Duration: minute, Request: 1, Response: 1},
		{Kind: format.KindPing, Duration: minute, Interval: 20 * units.Millisecond},
	} {
		t.Run(fmt.Sprintf("%s start %v interval %v", w.Kind, w.Start, w.Interval), func(t *testing.T) {
			if w.Kind == format.KindIperf3 || w.Kind == format.KindPing {
				needs(t, string(w.Kind))
			}
			leavesNothing(t)
			cause := errors.New("the user pressed Ctrl-C")
			ctx, cancel := context.WithCancelCause(t.Context())
			timer := time.AfterFunc(100*time.Millisecond, func() { cancel(cause) })
			defer timer.Stop()
			start := time.Now()
			r, err := here.Run(ctx, w, loopback)
			if !errors.Is(err, cause) || r.Error == "" {
				t.Errorf("%v", err)
			}
			if took := time.Since(start); took > time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}
