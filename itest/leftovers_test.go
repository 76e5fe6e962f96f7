package itest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// buildCommand builds nicemu once for all tests.
func buildCommand(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "nicemu")
	out, err := exec.Command("go", "build", "-o", bin, "nicemu/cmd/nicemu").CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return bin
}

// mark is a variable in the environment of a run and of all that it starts.
const mark = "NICEMU_ITEST_RUN"

// traced is a run of nicemu whose traces can be told from other runs'.
type traced struct {
	*exec.Cmd
	stderr bytes.Buffer
	mark   string
	host   []string // interfaces and qdiscs of this namespace before the run
}

func trace(t *testing.T, bin string, args ...string) *traced {
	t.Helper()
	r := &traced{Cmd: exec.Command(bin, args...), mark: fmt.Sprintf("%s=%d-%s-%d", mark, os.Getpid(), t.Name(), time.Now().UnixNano())}
	r.Cmd.Env = append(os.Environ(), r.mark)
	r.Cmd.Stderr = &r.stderr
	r.host = hostState(t)
	t.Cleanup(func() {
		if r.Process != nil {
			r.Process.Kill()
		}
	})
	return r
}

func hostState(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, argv := range [][]string{{"ip", "-o", "link"}, {"tc", "qdisc", "show"}} {
		out, err := exec.Command(argv[0], argv[1:]...).Output()
		if err != nil {
			t.Fatal(err)
		}
		all = slices.AppendSeq(all, strings.Lines(string(out)))
	}
	return all
}

// left is what there still is of a run that has ended: namespaces, notes of
// who owns them, processes, and changes to this namespace.
func (r *traced) left(t *testing.T) []string {
	t.Helper()
	var left []string
	for _, pattern := range []string{"/run/netns/nicemu-%d-*", "/run/nicemu/%d-*"} {
		found, _ := filepath.Glob(fmt.Sprintf(pattern, r.Process.Pid))
		left = append(left, found...)
	}
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range environs {
		if env, err := os.ReadFile(name); err == nil && bytes.Contains(env, []byte(r.mark)) {
			comm, _ := os.ReadFile(filepath.Dir(name) + "/comm")
			left = append(left, fmt.Sprintf("process %s %s", filepath.Dir(name), comm))
		}
	}
	for _, line := range hostState(t) {
		if !slices.Contains(r.host, line) {
			left = append(left, "in the host's namespace: "+line)
		}
	}
	return left
}

// leavesNothing allows the kernel a moment: it takes namespaces down in the
// background.
func (r *traced) leavesNothing(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; {
		left := r.left(t)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left behind:\n%s", strings.Join(left, "\n"))
		}
	}
}

// started returns once the traffic of the run flows.
func started(t *testing.T, bin string, args ...string) *traced {
	t.Helper()
	r := trace(t, bin, args...)
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	client := fmt.Sprintf("nicemu-%d-client", r.Process.Pid)
	for deadline := time.Now().Add(20 * time.Second); !running("iperf3", client); {
		if time.Now().After(deadline) {
			t.Fatalf("no iperf3 in %s after 20 s; stderr: %s", client, &r.stderr)
		}
	}
	return r
}

// running reports whether a program of that name runs in a named namespace.
func running(program, netns string) bool {
	out, err := exec.Command("ip", "netns", "pids", netns).Output()
	if err != nil {
		return false
	}
	for pid := range strings.FieldsSeq(string(out)) {
		comm, _ := os.ReadFile("/proc/" + pid + "/comm")
		if strings.TrimSpace(string(comm)) == program {
			return true
		}
	}
	return false
}

func TestIntegrationSignalsLeaveNothingBehind(t *testing.T) {
	needRoot(t)
	bin := buildCommand(t)
	for _, sig := range []syscall.Signal{unix.SIGINT, unix.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			r := started(t, bin, "run", "bql-latency", "--duration", "60s")
			sent := time.Now()
			r.Process.Signal(sig)
			r.Wait()
			if took := time.Since(sent); took > time.Second {
				t.Errorf("ended %v after the signal, want within 1 s", took)
			}
			if code := r.ProcessState.ExitCode(); code != 130 {
				t.Errorf("exit status %d, want 130; stderr: %s", code, &r.stderr)
			}
			r.leavesNothing(t)
		})
	}
}

func TestIntegrationKilledRunIsCleanedUpByClean(t *testing.T) {
	needRoot(t)
	bin := buildCommand(t)
	alive := started(t, bin, "run", "bql-latency", "--duration", "60s")
	killed := started(t, bin, "run", "bql-latency", "--duration", "60s")
	killed.Process.Kill()
	killed.Wait()
	out, err := exec.Command(bin, "clean").CombinedOutput()
	if err != nil {
		t.Fatalf("clean: %v\n%s", err, out)
	}
	if want := fmt.Sprintf("nicemu-%d-client", killed.Process.Pid); !strings.Contains(string(out), want) {
		t.Errorf("clean did not name %s: %s", want, out)
	}
	if !running("iperf3", fmt.Sprintf("nicemu-%d-client", alive.Process.Pid)) {
		t.Error("clean took a living run's workload")
	}
	killed.leavesNothing(t)
	alive.Process.Signal(unix.SIGINT)
	alive.Wait()
	alive.leavesNothing(t)
}

func TestIntegrationFailingRunsLeaveNothingBehind(t *testing.T) {
	needRoot(t)
	bin := buildCommand(t)
	for _, c := range []struct {
		name, extra, says string
		status            int
	}{
		{"failing workload", "\n[[workload]]\nname = \"w\"\nkind = \"exec\"\nfrom = \"a\"\ncommand = [\"false\"]\n", "workload w", 1},
		{"missing program", "\n[[workload]]\nname = \"w\"\nkind = \"exec\"\nfrom = \"a\"\ncommand = [\"no-such-program\"]\n", "no-such-program", 2},
		{"broken scenario", "\n[[workload]]\nname = 7\n", "test.toml:", 1},
		{"qdisc that tc refuses", "\n[[workload]]\nname = \"w\"\nkind = \"exec\"\nfrom = \"a\"\ncommand = [\"tc\", \"qdisc\", \"add\", \"dev\", \"eth0\", \"root\", \"nonsense\"]\n", "kind is unknown", 1},
		{"failed expectation", "\n[[workload]]\nname = \"w\"\nkind = \"exec\"\nfrom = \"a\"\ncommand = [\"true\"]\n\n[[expect]]\nname = \"wrong\"\nmetric = \"nics.a/eth0.sent\"\nop = \">\"\nvalue = 1000000\n", "", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "test.toml")
			if err := os.WriteFile(file, []byte(fmt.Sprintf(pair, "1s")+c.extra), 0o600); err != nil {
				t.Fatal(err)
			}
			r := trace(t, bin, "run", file)
			var exit *exec.ExitError
			if err := r.Run(); !errors.As(err, &exit) || exit.ExitCode() != c.status || !strings.Contains(r.stderr.String(), c.says) {
				t.Errorf("%v, want status %d and %q; stderr: %s", err, c.status, c.says, &r.stderr)
			}
			r.leavesNothing(t)
		})
	}
}

// Without rights a run says so in one sentence and makes nothing.
func TestIntegrationWithoutRightsIsOneSentence(t *testing.T) {
	needRoot(t)
	bin := buildCommand(t)
	if err := os.Chmod(filepath.Dir(bin), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(filepath.Dir(bin)), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "run", "bql-latency", "--kernel", "host")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || strings.Count(strings.TrimSpace(string(out)), "\n") != 0 || !strings.Contains(string(out), "root") {
		t.Errorf("%v: %q; want status 2 and one line that names root", err, out)
	}
}
