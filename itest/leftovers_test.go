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

// traces is what a run could leave behind: namespaces, interfaces and qdiscs of
// this namespace, and processes that use a namespace of ours.
func traces(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, argv := range [][]string{{"ip", "netns", "list"}, {"ip", "-o", "link"}, {"tc", "qdisc", "show"}} {
		out, err := exec.Command(argv[0], argv[1:]...).Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			all = append(all, strings.TrimSpace(line))
		}
	}
	names, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, name := range names {
		comm, err := os.ReadFile(name)
		if err == nil && strings.HasPrefix(string(comm), "iperf3") {
			all = append(all, name)
		}
	}
	runs, _ := filepath.Glob("/run/nicemu/*")
	return append(all, runs...)
}

// sameTraces waits a moment for the kernel to finish taking namespaces down:
// it does so in the background.
func sameTraces(t *testing.T, before []string) {
	t.Helper()
	var extra []string
	deadline := time.Now().Add(5 * time.Second)
	for {
		extra = nil
		for _, line := range traces(t) {
			if !slices.Contains(before, line) {
				extra = append(extra, line)
			}
		}
		if len(extra) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left behind:\n%s", strings.Join(extra, "\n"))
		}
	}
}

// started runs nicemu and returns once its traffic flows.
func started(t *testing.T, bin string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := exec.Command(bin, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	client := fmt.Sprintf("nicemu-%d-client", cmd.Process.Pid)
	deadline := time.Now().Add(20 * time.Second)
	for !running("iperf3", client) {
		if time.Now().After(deadline) {
			t.Fatalf("no iperf3 in %s after 20 s; stderr: %s", client, &stderr)
		}
	}
	return cmd, &stderr
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
			before := traces(t)
			cmd, stderr := started(t, bin, "run", "bql-latency", "--duration", "60s")
			sent := time.Now()
			cmd.Process.Signal(sig)
			cmd.Wait()
			if took := time.Since(sent); took > time.Second {
				t.Errorf("ended %v after the signal, want within 1 s", took)
			}
			if code := cmd.ProcessState.ExitCode(); code != 130 {
				t.Errorf("exit status %d, want 130; stderr: %s", code, stderr)
			}
			sameTraces(t, before)
		})
	}
}

func TestIntegrationKilledRunIsCleanedUpByClean(t *testing.T) {
	needRoot(t)
	bin := buildCommand(t)
	before := traces(t)
	alive, _ := started(t, bin, "run", "bql-latency", "--duration", "60s")
	killed, _ := started(t, bin, "run", "bql-latency", "--duration", "60s")
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
	alive.Process.Signal(unix.SIGINT)
	alive.Wait()
	sameTraces(t, before)
}

func TestIntegrationFailingRunsLeaveNothingBehind(t *testing.T) {
	needRoot(t)
	bin := buildCommand(t)
	for _, c := range []struct {
		name, extra, says string
		status            int
	}{
		{"failing workload", "\n[[workload]]\nname = \"w\"\nkind = \"exec\"\nfrom = \"a\"\ncommand = [\"false\"]\n", "workload w", 1},
		{"missing program", "\n[[workload]]\nname = \"w\"\nkind = \"exec\"\nfrom = \"a\"\ncommand = [\"no-such-program\"]\n", "no-such-program", 1},
		{"broken scenario", "\n[[workload]]\nname = 7\n", "test.toml:", 1},
		{"qdisc that tc refuses", "\n[[workload]]\nname = \"w\"\nkind = \"exec\"\nfrom = \"a\"\ncommand = [\"tc\", \"qdisc\", \"add\", \"dev\", \"eth0\", \"root\", \"nonsense\"]\n", "nonsense", 1},
		{"failed expectation", "\n[[workload]]\nname = \"w\"\nkind = \"exec\"\nfrom = \"a\"\ncommand = [\"true\"]\n\n[[expect]]\nname = \"wrong\"\nmetric = \"nics.a/eth0.sent\"\nop = \">\"\nvalue = 1000000\n", "", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := traces(t)
			file := filepath.Join(t.TempDir(), "test.toml")
			if err := os.WriteFile(file, []byte(fmt.Sprintf(pair, "1s")+c.extra), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(bin, "run", file)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			var exit *exec.ExitError
			if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != c.status || !strings.Contains(stderr.String(), c.says) {
				t.Errorf("%v, want status %d and %q; stderr: %s", err, c.status, c.says, &stderr)
			}
			sameTraces(t, before)
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
	cmd := exec.Command(bin, "run", "bql-latency")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || strings.Count(strings.TrimSpace(string(out)), "\n") != 0 || !strings.Contains(string(out), "root") {
		t.Errorf("%v: %q; want status 2 and one line that names root", err, out)
	}
}
