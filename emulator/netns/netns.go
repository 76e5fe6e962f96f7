package netns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	vns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	// Prefix is what the name of every namespace made here starts with.
	Prefix = "nicemu-"
	// MountDir is where iproute2 keeps named network namespaces.
	MountDir = "/run/netns"
)

// nameRule is narrower than a file name, so that a name may stand in a command line or a label unquoted.
var nameRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// NS is an open named network namespace. Its methods may be called from any goroutine.
type NS struct {
	name   string
	handle vns.NsHandle
}

// Create makes a network namespace called name, with Prefix put in front if it is missing, and brings its loopback
// device up. It fails with *NeedsPrivilege without the capabilities, and with an error that is fs.ErrExist if the name
// is taken.
func Create(name string) (*NS, error) {
	name = Prefix + strings.TrimPrefix(name, Prefix)
	if !nameRule.MatchString(name) {
		return nil, fmt.Errorf("namespace %q: a name is up to 64 letters, digits, dots, underscores and dashes", name)
	}
	if err := CheckPrivilege(); err != nil {
		return nil, err
	}
	if err := shareMountDir(); err != nil {
		return nil, privileged(err)
	}
	if _, err := os.Lstat(path(name)); err == nil {
		return nil, fmt.Errorf("namespace %s: %w", name, os.ErrExist)
	}
	if err := run.record(name); err != nil {
		return nil, err
	}
	var handle vns.NsHandle
	err := onThread(func() (err error) {
		if handle, err = vns.NewNamed(name); err != nil {
			return privileged(err)
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	if err != nil {
		if handle > 0 {
			handle.Close()
		}
		if !errors.Is(err, os.ErrExist) { // another process may have been quicker
			remove(name)
		}
		run.forget(name)
		return nil, fmt.Errorf("namespace %s: %w", name, err)
	}
	return &NS{name: name, handle: handle}, nil
}

// Open opens a namespace that `ip netns` lists, whoever made it. Closing it leaves it in place.
func Open(name string) (*NS, error) {
	handle, err := vns.GetFromName(name)
	if err != nil {
		return nil, fmt.Errorf("namespace %s: %w", name, privileged(err))
	}
	return &NS{name: name, handle: handle}, nil
}

// Name is the name `ip netns` shows.
func (ns *NS) Name() string { return ns.name }

// FD is the open descriptor of the namespace, owned by ns.
func (ns *NS) FD() int { return int(ns.handle) }

// Do runs fn on a thread that is inside the namespace, in a goroutine of its own, and waits for it. Sockets opened by fn
// stay in the namespace for their whole life, whatever thread uses them later.
func (ns *NS) Do(fn func() error) error {
	return onThread(func() error {
		if err := vns.Set(ns.handle); err != nil {
			return fmt.Errorf("enter namespace %s: %w", ns.name, privileged(err))
		}
		return fn()
	})
}

// Command is a program to be run inside the namespace by `ip netns exec`, which also gives it the namespace's view of
// /sys. The program takes over the process, so signals and its exit status arrive unchanged. Real-time priority of this
// process is not passed on.
func (ns *NS) Command(ctx context.Context, argv ...string) *exec.Cmd {
	argv = append([]string{"ip", "netns", "exec", ns.name}, argv...)
	if a, err := unix.SchedGetAttr(os.Getpid(), 0); err == nil && a.Policy == unix.SCHED_FIFO {
		argv = append([]string{"chrt", "--other", "0"}, argv...)
	}
	return exec.CommandContext(ctx, argv[0], argv[1:]...)
}

// Close closes the descriptor and leaves the namespace in place.
func (ns *NS) Close() error {
	if !ns.handle.IsOpen() {
		return nil
	}
	return ns.handle.Close()
}

// Delete kills the programs that still run inside the namespace, removes it, and closes ns. Devices inside it go with it.
// It may be called twice. Only namespaces with our Prefix can be deleted.
func (ns *NS) Delete() error {
	if !strings.HasPrefix(ns.name, Prefix) {
		return fmt.Errorf("namespace %s: not ours to delete, its name does not start with %s", ns.name, Prefix)
	}
	if !ns.handle.IsOpen() {
		return nil
	}
	err := remove(ns.name)
	run.forget(ns.name)
	return errors.Join(err, ns.Close())
}

// onThread runs fn on a thread of its own, in whatever network namespace fn leaves it, and brings the thread back. A
// thread that cannot be brought back dies with its goroutine.
func onThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := vns.Get()
		if err != nil {
			done <- err
			return
		}
		defer home.Close()
		err = fn()
		if vns.Set(home) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

func path(name string) string { return filepath.Join(MountDir, name) }

// shareMountDir makes MountDir a shared mount point as `ip netns add` does. Otherwise a later `ip netns add` would mount
// the directory over itself, and our namespaces would be busy in the copy below.
func shareMountDir() error {
	if err := os.MkdirAll(MountDir, 0o755); err != nil {
		return err
	}
	err := unix.Mount("", MountDir, "none", unix.MS_SHARED|unix.MS_REC, "")
	if err == unix.EINVAL { // not a mount point yet
		if err = unix.Mount(MountDir, MountDir, "none", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			err = unix.Mount("", MountDir, "none", unix.MS_SHARED|unix.MS_REC, "")
		}
	}
	return err
}
