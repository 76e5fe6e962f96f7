package workload

import (
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// grace is how long a program has to end after SIGTERM before SIGKILL.
const grace = 300 * time.Millisecond

// process is a running program with everything it started, in a process group
// of its own so that it can be ended as a whole and the terminal's Ctrl-C does not reach it.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait; read after done
}

// start runs a program until it ends or its context does. A fault in starting it is
// reported here, before anything runs.
func start(cmd *exec.Cmd) (*process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = grace
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go p.reap()
	return p, nil
}

// reap waits for the program, ends what it left running, and collects it. The
// program is collected last: until then nobody else can have its group's number.
func (p *process) reap() {
	defer close(p.done)
	pid := p.cmd.Process.Pid
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	syscall.Kill(-pid, syscall.SIGKILL)
	p.err = p.cmd.Wait()
}

// wait returns when the program is gone, with the error of exec.Cmd.Wait.
func (p *process) wait() error {
	<-p.done
	return p.err
}

// stop ends the program and waits for it.
func (p *process) stop() {
	p.cmd.Process.Kill() // fails if it has ended, which is as good
	<-p.done
}

// status is the exit status as shells give it: 128 + N for signal N.
func (p *process) status() int {
	<-p.done
	s, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && s.Signaled() {
		return 128 + int(s.Signal())
	}
	return p.cmd.ProcessState.ExitCode()
}

// installed finds a program or says how to get it.
func installed(program, debian string) error {
	if _, err := exec.LookPath(program); err != nil && !errors.Is(err, exec.ErrDot) {
		return &MissingProgram{program, debian}
	}
	return nil
}

// buffer keeps the end of what a program writes: at most limit bytes.
type buffer struct {
	limit   int
	kept    []byte
	dropped int
}

// Write implements io.Writer; it never fails.
func (b *buffer) Write(p []byte) (int, error) {
	b.kept = append(b.kept, p...)
	// Moving the rest to the front only when half is waste keeps writing linear.
	if over := len(b.kept) - b.limit; over > b.limit {
		b.dropped += over
		b.kept = append(b.kept[:0], b.kept[over:]...)
	}
	return len(p), nil
}

// bytes are what was kept, and whether that is all.
func (b *buffer) bytes() (kept []byte, all bool) {
	over := max(0, len(b.kept)-b.limit)
	return b.kept[over:], b.dropped+over == 0
}

// text is what was kept, as text.
func (b *buffer) text() string {
	kept, all := b.bytes()
	s := strings.ToValidUTF8(string(kept), "�")
	if !all {
		s = "…" + s
	}
	return s
}
