package itest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"nicemu/emulator/netns"
)

// newNS makes a namespace that lives as long as the test. The name is unique to this test process.
func newNS(t testing.TB, label string) *netns.NS {
	t.Helper()
	if err := netns.CheckPrivilege(); err != nil {
		t.Skip(err)
	}
	ns, err := netns.Create(fmt.Sprintf("it%d-%s", os.Getpid(), label))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Delete(); err != nil {
			t.Error(err)
		}
	})
	return ns
}

func TestIntegrationNamespaceIsSeenByIPNetnsAndHasItsLoopbackUp(t *testing.T) {
	ns := newNS(t, "seen")
	list, err := exec.Command("ip", "netns", "list").Output()
	if err != nil || !strings.Contains(string(list), ns.Name()) {
		t.Fatalf("ip netns list does not show %s: %s %v", ns.Name(), list, err)
	}
	err = ns.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err == nil && lo.Attrs().Flags&net.FlagUp == 0 {
			err = errors.New("lo is down")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestIntegrationNamespaceNameIsTakenOnce(t *testing.T) {
	ns := newNS(t, "once")
	if _, err := netns.Create(ns.Name()); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("second Create: %v, want fs.ErrExist", err)
	}
	if names, _ := netns.List(); !slices.Contains(names, ns.Name()) {
		t.Fatalf("the failed Create took %s away: %v", ns.Name(), names)
	}
}

func TestIntegrationDoLeavesTheCallerWhereItWas(t *testing.T) {
	ns := newNS(t, "do")
	inode := func() string { s, _ := os.Readlink("/proc/thread-self/ns/net"); return s }
	home := inode()
	var inside string
	want := errors.New("told to")
	if err := ns.Do(func() error { inside = inode(); return want }); err != want {
		t.Fatalf("Do returned %v, want %v", err, want)
	}
	if inside == home || inode() != home {
		t.Fatalf("home %s, inside %s, afterwards %s", home, inside, inode())
	}
}

func TestIntegrationDeleteKillsTheProgramsInside(t *testing.T) {
	ns := newNS(t, "kill")
	cmd := ns.Command(context.Background(), "sh", "-c", "echo here; exec sleep 1000")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("program inside said %q: %v", line, err)
	}
	if err := ns.Delete(); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
		t.Fatalf("program inside ended with %v", err)
	}
	if names, _ := netns.List(); slices.Contains(names, ns.Name()) {
		t.Fatalf("%s is still there", ns.Name())
	}
}

// TestIntegrationCleanRemovesWhatAKilledRunLeftAndNothingElse kills a child process (this test binary, below) with
// SIGKILL while it has a namespace with a program inside.
func TestIntegrationCleanRemovesWhatAKilledRunLeftAndNothingElse(t *testing.T) {
	living := newNS(t, "living")
	name := fmt.Sprintf("%sit%d-killed", netns.Prefix, os.Getpid())
	child := exec.Command(os.Args[0], "-test.run=^TestHelperRunUntilKilled$")
	child.Env = append(os.Environ(), "NICEMU_ITEST_NS="+name)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "ready" {
	}
	if removed, err := netns.Clean(false); err != nil || slices.Contains(removed, name) {
		t.Fatalf("Clean while the run lives removed %v: %v", removed, err)
	}
	child.Process.Kill()
	child.Wait()
	removed, err := netns.Clean(false)
	if err != nil || !slices.Contains(removed, name) {
		t.Fatalf("Clean after kill -9 removed %v: %v", removed, err)
	}
	names, _ := netns.List()
	if slices.Contains(names, name) || !slices.Contains(names, living.Name()) {
		t.Fatalf("afterwards there are %v, want %s and not %s", names, living.Name(), name)
	}
	if again, err := netns.Clean(false); err != nil || slices.Contains(again, name) {
		t.Fatalf("second Clean removed %v: %v", again, err)
	}
}

func TestHelperRunUntilKilled(t *testing.T) {
	name := os.Getenv("NICEMU_ITEST_NS")
	if name == "" {
		t.Skip("runs only as the child of another test")
	}
	ns, err := netns.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	inside := ns.Command(context.Background(), "sh", "-c", "echo ready; exec sleep 1000")
	inside.Stdout = os.Stdout
	t.Fatal(inside.Run())
}
