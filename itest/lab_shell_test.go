package itest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"nicemu/lab"
)

// openPty returns a pseudo terminal of 33 rows and 77 columns.
func openPty(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 77}); err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

func TestIntegrationLabShellIsATerminalSession(t *testing.T) {
	if kernel := os.Getenv(childEnv); kernel != "" {
		g := lab.Guest{Kernel: kernel, Argv: []string{"sh", "-c", `
			echo "tty $(tty) size $(stty size)"
			read -r line
			echo "read $line"
			trap 'echo interrupted; exit 5' INT
			echo waiting
			while :; do sleep 1; done`}}
		r, err := lab.Shell(t.Context(), g)
		fmt.Printf("status %d error %v\n", r.Status, err)
		return
	}
	master, slave := openPty(t)
	before, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestIntegrationLabShellIsATerminalSession$")
	cmd.Env = append(os.Environ(), childEnv+"="+guest(t).Kernel)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var seen []byte
	for _, step := range []struct{ until, then string }{
		{"tty /dev/tty0 size 33 77", "hello there\r"},
		{"read hello there", ""},
		{"waiting", "\x03"}, // Ctrl-C belongs to the guest
		{"interrupted", ""},
		{"status 5 error <nil>", ""},
	} {
		for buf := make([]byte, 1024); !bytes.Contains(seen, []byte(step.until)); {
			n, err := master.Read(buf)
			seen = append(seen, buf[:n]...)
			if err != nil {
				t.Fatalf("%v while waiting for %q in\n%s", err, step.until, seen)
			}
		}
		if _, err := master.WriteString(step.then); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, seen)
	}
	after, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	if *after != *before {
		t.Errorf("the terminal's settings changed from %+v to %+v", before, after)
	}
	slave.Close()
}

func TestIntegrationLabShellWantsATerminal(t *testing.T) {
	if _, err := unix.IoctlGetTermios(0, unix.TCGETS); err == nil {
		t.Skip("standard input is a terminal here")
	}
	if _, err := lab.Shell(t.Context(), guest(t)); !errors.Is(err, lab.ErrNoTerminal) {
		t.Errorf("got %v", err)
	}
}

func TestIntegrationLabGuestsRunSideBySide(t *testing.T) {
	for i := range 3 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			job := t.TempDir()
			g := guest(t, sh(fmt.Sprintf("sleep 5; echo %d | tee result", i))...)
			g.JobDir = job
			out, _ := runGuest(t, g)
			text, err := os.ReadFile(filepath.Join(job, "result"))
			if err != nil || string(text) != out || strings.TrimSpace(out) != fmt.Sprint(i) {
				t.Errorf("guest %d: output %q, file %q, %v", i, out, text, err)
			}
		})
	}
}
