package itest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"nicemu/lab"
)

// raceDetector is set in race_test.go.
var raceDetector bool

// In the guest this test binary is process 1.
func init() { lab.Init() }

var labKernel = sync.OnceValues(func() (string, error) {
	return lab.Build(context.Background(), lab.BuildOptions{Progress: lab.PrintProgress(os.Stderr, false)})
})

// guest is a lab guest with the lab kernel, built if this machine has none yet.
func guest(t *testing.T, argv ...string) lab.Guest {
	t.Helper()
	if testing.Short() {
		t.Skip("boots the lab kernel: not with -short")
	}
	if raceDetector {
		t.Skip("the race detector's shadow memory does not fit into a guest process's address space (512 GB)")
	}
	kernel, err := labKernel()
	var missing *lab.MissingTools
	if errors.As(err, &missing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return lab.Guest{Kernel: kernel, Argv: argv, VirtualTime: true, WallLimit: time.Minute}
}

// sh is the command line of a script that stops at its first error.
func sh(script string) []string { return []string{"sh", "-ec", script} }

// runGuest boots g, which must end with status 0, and returns its output.
func runGuest(t *testing.T, g lab.Guest) (stdout string, r lab.Result) {
	t.Helper()
	var out, errs bytes.Buffer
	g.Stdout, g.Stderr = &out, &errs
	r, err := lab.Run(t.Context(), g)
	if err != nil || r.Status != 0 {
		t.Fatalf("status %d, %v\nstdout: %s\nstderr: %s", r.Status, err, &out, &errs)
	}
	return out.String(), r
}

func TestIntegrationLabHasEveryQdisc(t *testing.T) {
	for _, spec := range []string{
		"fq_codel", "fq", "codel", "cake", "pie", "fq_pie", "sfq", "pfifo limit 10", "bfifo limit 10k", "pfifo_fast",
		"tbf rate 1bps burst 72000 latency 1s", "netem delay 1ms", "plug limit 10", "choke limit 100 min 10 max 30 avpkt 1000 burst 20 bandwidth 10mbit",
		"red limit 400000 avpkt 1000 bandwidth 10mbit", "prio", "drr", "ets bands 2 strict 1", "htb", "hfsc", "qfq", "multiq", "mq",
		"cbs", "etf clockid CLOCK_TAI delta 100000", "clsact", "ingress",
		"mqprio num_tc 2 map 0 1 queues 1@0 1@1 hw 0",
		"taprio num_tc 2 map 0 1 queues 1@0 1@1 base-time 0 sched-entry S 1 300000 sched-entry S 2 700000 clockid CLOCK_TAI",
	} {
		kind, _, _ := strings.Cut(spec, " ")
		t.Run(kind, func(t *testing.T) {
			where := "root"
			if kind == "clsact" || kind == "ingress" {
				where = ""
			}
			out, _ := runGuest(t, guest(t, sh(fmt.Sprintf(`
				ip link add d0 numtxqueues 4 type dummy
				tc qdisc add dev d0 %s %s
				ip link set d0 up
				tc qdisc show dev d0`, where, spec))...))
			if !strings.Contains(out, "qdisc "+kind+" ") {
				t.Errorf("tc shows %s", out)
			}
		})
	}
}

func TestIntegrationLabHasLinksClassifiersAndProtocols(t *testing.T) {
	out, _ := runGuest(t, guest(t, sh(`
		ip netns add nicemu-a
		ip netns add nicemu-b
		ip link add va netns nicemu-a type veth peer name vb netns nicemu-b
		ip -n nicemu-a address add 10.9.0.1/24 dev va
		ip -n nicemu-b address add 10.9.0.2/24 dev vb
		ip -n nicemu-a link set va up
		ip -n nicemu-b link set vb up
		tc -n nicemu-a qdisc add dev va root handle 1: prio
		tc -n nicemu-a filter add dev va parent 1: basic action skbedit priority 1:1
		tc -n nicemu-a filter add dev va parent 1: matchall action gact pass
		tc -n nicemu-a filter add dev va parent 1: protocol ip flower dst_ip 10.9.0.2 action gact pass
		tc -n nicemu-a filter add dev va parent 1: protocol ip u32 match ip dport 7 0xffff flowid 1:2
		for i in 1 2 3; do ip netns exec nicemu-a bash -c 'echo x >/dev/udp/10.9.0.2/7'; sleep 1; done
		ip netns exec nicemu-b nstat -asz UdpNoPorts | grep UdpNoPorts
		ip tuntap add mode tap name t0 multi_queue
		ip link add link t0 name t0.5 type vlan id 5
		ip link add br0 type bridge vlan_filtering 1
		ip link set t0 master br0
		ip link add i0 type ifb
		ss -tinm >&2
		ls -d /sys/fs/bpf /proc/net/pktgen /dev/net/tun >&2
		cat /proc/sys/net/ipv4/tcp_available_congestion_control
		ip -6 address show dev lo`)...))
	if f := strings.Fields(out); len(f) < 2 || f[0] != "UdpNoPorts" || f[1] != "3" {
		t.Errorf("3 datagrams sent over veth, arrived: %s", out)
	}
	for _, want := range []string{"bbr", "cubic", "reno", "::1/128"} {
		if !strings.Contains(out, want) {
			t.Errorf("%s is missing in %s", want, out)
		}
	}
}

func TestIntegrationLabShowsTapriosGateTimer(t *testing.T) {
	out, _ := runGuest(t, guest(t, sh(`
		ip link add d0 numtxqueues 4 type dummy
		ip link set d0 up
		tc qdisc add dev d0 root taprio num_tc 2 map 0 1 queues 1@0 1@1 base-time 0 \
			sched-entry S 1 300000 sched-entry S 2 700000 clockid CLOCK_TAI
		grep -c advance_sched /proc/timer_list`)...))
	if n, err := strconv.Atoi(strings.TrimSpace(out)); err != nil || n < 1 {
		t.Errorf("/proc/timer_list names advance_sched %q times", out)
	}
}

func TestIntegrationLabPassesStatusOutputAndInput(t *testing.T) {
	g := guest(t, "sh", "-c", `read a; echo "got $a"; echo "$LAB_TEST" >&2; head -c 100000 /dev/zero | tr '\0' x; exit 37`)
	g.Env = append(lab.DefaultEnv(), "LAB_TEST=from the environment")
	g.Stdin = strings.NewReader("a line\nanother\n")
	var out, errs bytes.Buffer
	g.Stdout, g.Stderr = &out, &errs
	r, err := lab.Run(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	if r.Status != 37 {
		t.Errorf("status %d", r.Status)
	}
	if want := "got a line\n" + strings.Repeat("x", 100000); out.String() != want {
		t.Errorf("stdout: %d bytes, want %d: %.40q", out.Len(), len(want), out.String())
	}
	if errs.String() != "from the environment\n" {
		t.Errorf("stderr: %q", errs.String())
	}
}

func TestIntegrationLabTellsASignalAsAShellDoes(t *testing.T) {
	r, err := lab.Run(t.Context(), guest(t, "sh", "-c", "kill -TERM $$"))
	if err != nil || r.Status != 128+int(syscall.SIGTERM) {
		t.Errorf("status %d, %v", r.Status, err)
	}
}

func TestIntegrationLabVirtualTimeJumpsOverSleepExactly(t *testing.T) {
	g := guest(t, "sh", "-c", "date +%s%N; sleep 100; date +%s%N")
	g.Clock = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	out, r := runGuest(t, g)
	var before, after int64
	if _, err := fmt.Sscan(out, &before, &after); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	// Starting two programs costs no time; reading a clock costs 256 ns.
	const most = int64(time.Millisecond)
	if d := after - before - int64(100*time.Second); d < 0 || d > most {
		t.Errorf("100 s took %d ns more", d)
	}
	if d := r.Elapsed - 100*time.Second; d < 0 || d > time.Duration(most) {
		t.Errorf("the command took %v", r.Elapsed)
	}
	if d := before - g.Clock.UnixNano(); d < 0 || d > 20*most { // it begins after the kernel's first ticks
		t.Errorf("the guest's calendar started %d ns after %v", d, g.Clock)
	}
	if r.Wall > 30*time.Second {
		t.Errorf("took %v of real time", r.Wall)
	}
	t.Logf("boot %v, 100 s of guest time in %v", r.Boot, r.Wall)
}

func TestIntegrationLabRealTimeIsReal(t *testing.T) {
	g := guest(t, "sleep", "1")
	g.VirtualTime = false
	if _, r := runGuest(t, g); r.Wall < time.Second || r.Elapsed < time.Second {
		t.Errorf("sleep 1 took %v, on the guest's clock %v", r.Wall, r.Elapsed)
	}
}

func TestIntegrationLabIsRepeatableFromItsSeed(t *testing.T) {
	const script = `
		cat /proc/sys/kernel/random/uuid
		ip link add d0 type dummy
		ip -o link show d0
		bash -c 'echo $RANDOM $$'
		date +%s.%N`
	run := func(seed uint64) string {
		g := guest(t, sh(script)...)
		g.Seed, g.Clock = seed, time.Unix(1_900_000_000, 0)
		out, _ := runGuest(t, g)
		return out
	}
	one, again, other := run(1), run(1), run(2)
	if one != again {
		t.Errorf("seed 1 gave\n%sand\n%s", one, again)
	}
	if one == other {
		t.Errorf("seeds 1 and 2 gave both\n%s", one)
	}
}

func TestIntegrationLabWritesOnlyIntoTheJobDirectory(t *testing.T) {
	outside := t.TempDir()
	job := t.TempDir()
	g := guest(t, sh(`
		echo changed >/etc/hostname
		echo x >"$1"/file
		mkdir sub
		head -c 3000000 /dev/zero >sub/big
		cat /etc/hostname "$1"/file`)...)
	g.Argv = append(g.Argv, "sh", outside)
	g.JobDir = job
	out, _ := runGuest(t, g)
	if out != "changed\nx\n" {
		t.Errorf("the guest does not see what it wrote: %q", out)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("the guest wrote outside: %v, %v", left, err)
	}
	if name, err := os.ReadFile("/etc/hostname"); err == nil && string(name) == "changed\n" {
		t.Error("the guest changed /etc/hostname")
	}
	if fi, err := os.Stat(filepath.Join(job, "sub", "big")); err != nil || fi.Size() != 3000000 {
		t.Errorf("result file: %v, %v", fi, err)
	}
}

// guestProcesses lists the living processes of kernels started as path.
func guestProcesses(t *testing.T, path string) (pids []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err == nil && strings.HasPrefix(string(text), path+"\x00") {
			pids = append(pids, filepath.Base(filepath.Dir(f)))
		}
	}
	return pids
}

// ownKernel gives g's kernel a path that no other guest has.
func ownKernel(t *testing.T, g *lab.Guest) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "linux")
	if err := os.Symlink(g.Kernel, path); err != nil {
		t.Fatal(err)
	}
	g.Kernel = path
}

func TestIntegrationLabEndsAGuestThatGetsNowhere(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		limit  func(*lab.Guest)
		want   error
	}{
		"spins":            {"echo begun; while :; do :; done", func(g *lab.Guest) { g.StallLimit = 2 * time.Second }, lab.Stalled},
		"waits for ever":   {"echo begun; sleep 1000000", func(g *lab.Guest) { g.VirtualLimit = time.Hour / 10 }, lab.VirtualTimeout},
		"takes too long":   {"echo begun; sleep 1000000000", func(g *lab.Guest) { g.WallLimit = 2 * time.Second }, lab.WallTimeout},
		"powers off":       {"echo begun; echo farewell >/dev/console; poweroff -f", func(*lab.Guest) {}, lab.Crashed},
		"has no such file": {"", func(g *lab.Guest) { g.Argv = []string{"/no/such/program"} }, lab.NotStarted},
	} {
		t.Run(name, func(t *testing.T) {
			g := guest(t, "sh", "-c", c.script)
			ownKernel(t, &g)
			c.limit(&g)
			var out bytes.Buffer
			g.Stdout = &out
			r, err := lab.Run(t.Context(), g)
			if !errors.Is(err, c.want) {
				t.Errorf("got %v", err)
			}
			if c.script != "" && !strings.HasPrefix(out.String(), "begun\n") {
				t.Errorf("output before the end was lost: %q", out.String())
			}
			if c.want == lab.Crashed && !strings.Contains(err.Error(), "farewell") {
				t.Errorf("the console's last words are missing: %v", err)
			}
			if c.want == lab.VirtualTimeout && (r.Elapsed < time.Hour/10 || r.Elapsed > time.Hour/10+time.Second) {
				t.Errorf("ended after %v", r.Elapsed)
			}
			if pids := guestProcesses(t, g.Kernel); pids != nil {
				t.Errorf("processes left: %v", pids)
			}
		})
	}
}

// onFirstWrite calls a function when something is written.
type onFirstWrite struct {
	once sync.Once
	call func()
}

func (w *onFirstWrite) Write(p []byte) (int, error) {
	w.once.Do(w.call)
	return len(p), nil
}

func TestIntegrationLabCancelLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	g := guest(t, "sh", "-c", "sleep 1000000 & sleep 1000000 & echo ready; while :; do sleep 0.1; done")
	ownKernel(t, &g)
	ctx, cancel := context.WithCancel(t.Context())
	g.Stdout = &onFirstWrite{call: cancel}
	if _, err := lab.Run(ctx, g); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if pids := guestProcesses(t, g.Kernel); pids != nil {
		t.Errorf("processes left: %v", pids)
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "nicemu-lab-*")); err != nil || left != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestIntegrationLabOutputErrorEndsTheGuest(t *testing.T) {
	g := guest(t, "sh", "-c", "while :; do echo x; sleep 1; done")
	ownKernel(t, &g)
	r, w := io.Pipe()
	broken := errors.New("reader went away")
	r.CloseWithError(broken)
	g.Stdout = w
	if _, err := lab.Run(t.Context(), g); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if pids := guestProcesses(t, g.Kernel); pids != nil {
		t.Errorf("processes left: %v", pids)
	}
}

// childEnv tells this test binary, started again, which kernel to boot and then
// either to return or to wait to be killed.
const childEnv = "NICEMU_ITEST_LAB"

// childCommand prepares this test binary to run one test again, as another user
// if the caller is root.
func childCommand(t *testing.T, test, mode, kernel string) *exec.Cmd {
	t.Helper()
	dir, err := os.MkdirTemp("", "nicemu-itest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	// Copies: the originals may lie where another user must not look.
	for name, from := range map[string]string{"itest": "/proc/self/exe", "linux": kernel} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(filepath.Join(dir, "itest"), "-test.run=^"+test+"$", "-test.v")
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, childEnv + "=" + mode}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if os.Getuid() == 0 {
		const nobody = 65534
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	return cmd
}

// childGuest is the guest of such a child: everything lies in its directory.
func childGuest(t *testing.T, argv ...string) lab.Guest {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return lab.Guest{Kernel: filepath.Join(dir, "linux"), Argv: argv, JobDir: dir, VirtualTime: true, WallLimit: time.Minute}
}

func TestIntegrationLabRunsForAnOrdinaryUser(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		if f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0); err == nil && os.Getuid() != 0 {
			f.Close()
			t.Log("this user may open /dev/net/tun; the lab does not need it")
		}
		out, _ := runGuest(t, childGuest(t, sh(`
			id -u
			ip tuntap add mode tap name t0
			tc qdisc add dev t0 root fq_codel
			echo private >/root/file
			ip netns add nicemu-x
			echo result >result`)...))
		if out != "0\n" {
			t.Errorf("not root in the guest: %q", out)
		}
		if text, err := os.ReadFile("result"); err != nil || string(text) != "result\n" {
			t.Errorf("result: %q, %v", text, err)
		}
		return
	}
	out, err := childCommand(t, "TestIntegrationLabRunsForAnOrdinaryUser", "run", guest(t).Kernel).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestIntegrationLabDiesWithAKilledParent(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		g := childGuest(t, "sh", "-c", "sleep 1000000 & echo ready; while :; do sleep 0.1; done")
		g.Stdout = os.Stdout
		lab.Run(t.Context(), g)
		t.Fatal("not killed")
	}
	cmd := childCommand(t, "TestIntegrationLabDiesWithAKilledParent", "wait", guest(t).Kernel)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var seen []byte
	for buf := make([]byte, 256); !bytes.Contains(seen, []byte("ready\n")); {
		n, err := stdout.Read(buf)
		seen = append(seen, buf[:n]...)
		if err != nil {
			t.Fatalf("%v after %s", err, seen)
		}
	}
	kernel := filepath.Join(cmd.Dir, "linux")
	if guestProcesses(t, kernel) == nil {
		t.Fatal("no guest processes found while it runs")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	deadline := time.Now().Add(10 * time.Second)
	for pids := guestProcesses(t, kernel); pids != nil; pids = guestProcesses(t, kernel) {
		if time.Now().After(deadline) {
			t.Fatalf("processes left: %v", pids)
		}
	}
}
