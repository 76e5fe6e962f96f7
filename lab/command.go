package lab

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// run runs a build tool in dir. line, if not nil, sees each line of its output.
// The error carries the last lines of it.
func (b *builder) run(ctx context.Context, dir string, line func(string), name string, args ...string) error {
	pr, pw := io.Pipe()
	tail := newTail(30)
	scanned := make(chan struct{})
	go func() {
		defer close(scanned)
		for s := bufio.NewScanner(pr); s.Scan(); {
			tail.add(s.Text())
			if line != nil {
				line(s.Text())
			}
		}
		io.Copy(io.Discard, pr) // a line beyond the scanner's limit must not block the tool
	}()
	cmd := command(ctx, dir, name, args...)
	cmd.Stdout, cmd.Stderr = pw, pw
	err := runTied(cmd)
	pw.Close()
	<-scanned
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("%s: %w\n%s", strings.Join(append([]string{name}, args...), " "), err, tail)
	}
	return nil
}

// output runs a build tool and returns what it writes to its standard output.
func (b *builder) output(ctx context.Context, name string, args ...string) (string, error) {
	var out strings.Builder
	cmd := command(ctx, b.cacheDir, name, args...)
	cmd.Stdout = &out
	err := runTied(cmd)
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	return out.String(), err
}

// command prepares a tool that gets its own process group, so that cancelling
// reaches the compilers below make too.
func command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = toolEnv(os.Environ())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// toolEnv keeps what tools need to work and apt to reach the network, and drops
// what would change the result: MAKEFLAGS of a make above us, CFLAGS, ARCH …
func toolEnv(environ []string) []string {
	env := []string{"LC_ALL=C"}
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		switch {
		case name == "PATH", name == "HOME", name == "TMPDIR", name == "APT_CONFIG",
			strings.HasSuffix(strings.ToLower(name), "_proxy"):
			env = append(env, kv)
		}
	}
	return env
}

// runTied runs a command whose Pdeathsig is set. The signal is sent when the
// thread that started the command ends, so that thread must stay.
func runTied(cmd *exec.Cmd) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Run()
		if cmd.Process != nil {
			unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // what ignored SIGTERM; usually nobody is left
		}
		done <- err
	}()
	return <-done
}

// tail keeps the last lines of an output.
type tail struct {
	lines []string
	limit int
}

func newTail(limit int) *tail { return &tail{limit: limit} }

// maxTailLine bounds what one line may occupy, in bytes.
const maxTailLine = 1024

func (t *tail) add(line string) {
	if len(line) > maxTailLine {
		line = line[:maxTailLine]
	}
	if len(t.lines) == t.limit {
		t.lines = append(t.lines[:0], t.lines[1:]...)
	}
	t.lines = append(t.lines, line)
}

func (t *tail) String() string { return strings.Join(t.lines, "\n") }
