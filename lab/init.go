package lab

import (
	"encoding/json"
	"errors"
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

// Init must be called first in the main function of a program that serves as a
// guest's init. Outside the lab it returns at once. In the lab it never returns:
// it prepares the system, runs the command, reports to the host and powers off.
func Init() {
	if os.Getpid() != 1 || os.Getenv(initMarker) == "" {
		return
	}
	runtime.LockOSThread() // scheduling is a thread's
	preferInit()
	s := &initState{}
	if err := s.run(); err != nil {
		fmt.Fprintln(os.Stderr, "lab init:", err) // the console
		if s.host.w != nil {
			s.host.send(msgFailed, []byte(err.Error()))
		}
	}
	powerOff()
}

// preferInit lets the calling thread run whenever it can, so that a command's
// output leaves the guest before the command goes on: a program that spins holds
// the processor for ever in virtual time. Children are not preferred.
func preferInit() {
	schedule(unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 1, Flags: unix.SCHED_FLAG_RESET_ON_FORK})
}

func schedule(a unix.SchedAttr) {
	a.Size = unix.SizeofSchedAttr
	unix.SchedSetAttr(0, &a, 0) // without it the guest is slower to speak, no more
}

// powerOff ends the guest. What the command wrote below JobDir reaches the host.
func powerOff() {
	unix.Sync()
	os.WriteFile("/proc/sys/kernel/printk", []byte("0"), 0) // no farewell on the console
	unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	os.Exit(1) // not reached; the death of process 1 is a panic, which the host sees
}

type initState struct {
	host messageWriter
	job  job
}

func (s *initState) run() error {
	// Device nodes first: without them nobody hears what goes wrong later.
	if err := mount("devtmpfs", "/dev", "devtmpfs", 0, ""); err != nil {
		return err
	}
	line, err := openControl("/dev/ttyS0")
	if err != nil {
		return err
	}
	s.host.w = line
	text, err := os.ReadFile(runDirInGuest + "/" + jobFile)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &s.job); err != nil {
		return err
	}
	stdin, err := os.Open(runDirInGuest + "/" + stdinFile)
	if errors.Is(err, os.ErrNotExist) {
		stdin, err = os.Open("/dev/null")
	}
	if err != nil {
		return err
	}
	if err := makeTree(s.job.JobDir); err != nil {
		return err
	}
	if err := loopbackUp(); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte("lab")); err != nil {
		return err
	}
	time.Sleep(firstTick)
	if s.job.Interactive {
		return s.runOnConsole()
	}
	return s.runCommand(stdin)
}

// firstTick is when the kernel has had its first tick (HZ 250) and its timers are
// exact: until then they wait for it.
const firstTick = 10 * time.Millisecond

// openControl opens the serial line to the host, as a byte pipe.
func openControl(path string) (io.Writer, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return nil, &os.PathError{Op: "get line settings", Path: path, Err: err}
	}
	t.Iflag, t.Oflag, t.Lflag = 0, 0, 0
	if err := unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, t); err != nil {
		return nil, &os.PathError{Op: "set line settings", Path: path, Err: err}
	}
	return f, nil
}

// beat is how often init shows that guest time moves.
const beat = 100 * time.Millisecond

// runCommand runs the command to its end. One thread polls everything: in virtual
// time each wake-up of the Go scheduler would be real work.
func (s *initState) runCommand(stdin *os.File) error {
	var out, errs [2]int
	if err := unix.Pipe2(out[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	if err := unix.Pipe2(errs[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	began := monotonic()
	if err := s.host.send(msgStarted, clockPayload(began)); err != nil {
		return err
	}
	child, err := s.start([]uintptr{stdin.Fd(), uintptr(out[1]), uintptr(errs[1])}, false)
	if err != nil {
		return err
	}
	unix.Close(out[1])
	unix.Close(errs[1])
	stdin.Close()
	pidfd, err := unix.PidfdOpen(child, 0)
	if err != nil {
		return err
	}
	timer, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC)
	if err != nil {
		return err
	}
	every := unix.NsecToTimespec(int64(beat))
	if err := unix.TimerfdSettime(timer, 0, &unix.ItimerSpec{Interval: every, Value: every}, nil); err != nil {
		return err
	}

	fds := []unix.PollFd{
		{Fd: int32(out[0]), Events: unix.POLLIN},
		{Fd: int32(errs[0]), Events: unix.POLLIN},
		{Fd: int32(timer), Events: unix.POLLIN},
		{Fd: int32(pidfd), Events: unix.POLLIN},
	}
	for {
		if err := poll(fds, -1); err != nil {
			return err
		}
		if err := s.forward(fds[:2]); err != nil {
			return err
		}
		if fds[2].Revents != 0 {
			unix.Read(timer, make([]byte, 8))
			now := monotonic()
			if limit := s.job.VirtualLimit; limit > 0 && now-began >= limit {
				return s.host.send(msgTimeout, clockPayload(now))
			}
			if err := s.host.send(msgBeat, clockPayload(now)); err != nil {
				return err
			}
		}
		if fds[2].Revents == 0 && fds[3].Revents == 0 {
			continue
		}
		status, ended := reap(child)
		if !ended {
			continue
		}
		now := monotonic()
		if err := s.drain(fds[:2]); err != nil {
			return err
		}
		unix.Sync()
		return s.host.send(msgExit, exitPayload(status, now))
	}
}

// runOnConsole runs an interactive command on the console, its controlling terminal.
func (s *initState) runOnConsole() error {
	tty, err := os.OpenFile("/dev/tty0", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	child, err := s.start([]uintptr{tty.Fd(), tty.Fd(), tty.Fd()}, true)
	if err != nil {
		return err
	}
	began := monotonic()
	if err := s.host.send(msgStarted, clockPayload(began)); err != nil {
		return err
	}
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, 0, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if pid == child {
			unix.Kill(-1, unix.SIGHUP)
			return s.host.send(msgExit, exitPayload(exitStatus(ws), monotonic()))
		}
	}
}

// start runs the command in a session of its own.
func (s *initState) start(files []uintptr, terminal bool) (pid int, err error) {
	for _, kv := range s.job.Env {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			os.Setenv("PATH", path)
		}
	}
	if err := os.Chdir(s.job.Dir); err != nil {
		return 0, err
	}
	path, err := exec.LookPath(s.job.Argv[0])
	if err != nil {
		return 0, err
	}
	pid, err = syscall.ForkExec(path, s.job.Argv, &syscall.ProcAttr{
		Env: s.job.Env, Files: files,
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: terminal},
	})
	if err != nil {
		return 0, &os.PathError{Op: "exec", Path: path, Err: err}
	}
	return pid, nil
}

var outputKinds = [2]messageKind{msgStdout, msgStderr}

// forward passes on what the ready ones of the two output pipes hold, and stops
// polling one that nobody writes to any more.
func (s *initState) forward(pipes []unix.PollFd) error {
	var buf [maxMessage]byte
	for i := range pipes {
		if pipes[i].Revents == 0 {
			continue
		}
		n, err := unix.Read(int(pipes[i].Fd), buf[:])
		if n > 0 {
			if err := s.host.send(outputKinds[i], buf[:n]); err != nil {
				return err
			}
		} else if err == nil {
			pipes[i].Fd = -1 // poll skips it
		}
	}
	return nil
}

// drain ends what the command left running and passes on the rest of the output.
func (s *initState) drain(pipes []unix.PollFd) error {
	unix.Kill(-1, unix.SIGKILL)
	for pipes[0].Fd >= 0 || pipes[1].Fd >= 0 {
		if err := poll(pipes, -1); err != nil {
			return err
		}
		if err := s.forward(pipes); err != nil {
			return err
		}
	}
	return nil
}

func poll(fds []unix.PollFd, timeout int) error {
	for {
		_, err := unix.Poll(fds, timeout)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// reap collects every process that ended; ended is true if child was among them.
func reap(child int) (status int, ended bool) {
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return status, ended
		}
		if pid == child {
			status, ended = exitStatus(ws), true
		}
	}
}

// exitStatus is the status as a shell tells it.
func exitStatus(ws unix.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

func monotonic() time.Duration {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail for this clock
	return time.Duration(ts.Nano())
}
