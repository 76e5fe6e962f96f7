package lab

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernel is the User Mode Linux process group.
type kernel struct {
	cmd   *exec.Cmd
	began time.Time
	done  chan struct{} // closed when it is gone
	err   error         // of Wait, valid then
}

// startKernel starts the kernel with dir as its working directory, in its own
// process group: when it panics it signals all of its group. It dies with us.
func startKernel(dir string, g *Guest, args []string, stdin, console, control *os.File) (*kernel, error) {
	if g.Kernel == "" {
		return nil, errors.New("no kernel given")
	}
	size := g.Memory
	if size == 0 {
		size = DefaultMemory
	}
	memDir, err := memoryDir([]string{"/dev/shm", os.TempDir(), "/tmp", "/var/tmp"}, size)
	if err != nil {
		return nil, err
	}
	path, err := filepath.Abs(g.Kernel) // its working directory is another one
	if err != nil {
		return nil, err
	}
	k := &kernel{cmd: exec.Command(path, args...), done: make(chan struct{})}
	k.cmd.Dir = dir
	k.cmd.Env = kernelEnv(memDir)
	k.cmd.Stdout, k.cmd.Stderr = console, console
	if stdin != nil {
		k.cmd.Stdin = stdin
	}
	k.cmd.ExtraFiles = []*os.File{control}
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	k.began = time.Now()
	started := make(chan error)
	go func() {
		err := onOneThread(k.cmd)
		started <- err
		if err == nil {
			k.err = k.cmd.Wait()
		}
		close(k.done)
	}()
	return k, <-started
}

// kill ends the kernel and its processes, waits until they are gone and leaves no
// zombie behind. The guest's processes are children of the kernel; for the moment
// we take its place as their parent.
func (k *kernel) kill() {
	var before int32
	unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&before)), 0, 0, 0)
	unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	defer unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, uintptr(before), 0, 0, 0)
	group := -k.cmd.Process.Pid
	unix.Kill(group, unix.SIGKILL)
	<-k.done
	for {
		if _, err := unix.Wait4(group, nil, 0, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return // ECHILD: nobody left
		}
	}
}

// status tells how the kernel ended.
func (k *kernel) status() string {
	if k.err != nil {
		return k.err.Error()
	}
	return "powered off before the command ended"
}
