package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	vns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// List names the namespaces in MountDir that carry our Prefix, in order.
func List() ([]string, error) {
	entries, err := os.ReadDir(MountDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), Prefix) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// Clean removes the namespaces of processes that are dead, with the programs that still run inside, and returns the
// names of those removed. With force it removes every namespace with our Prefix, also those of living runs and those
// nobody has a record of.
func Clean(force bool) (removed []string, err error) {
	if err := CheckPrivilege(); err != nil {
		return nil, err
	}
	unlock, err := lockRunDir()
	if err != nil {
		return nil, err
	}
	defer unlock()
	all, err := owners()
	if err != nil {
		return nil, err
	}
	names, err := List()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, name := range names {
		if !force && !leftBehind(name, all) {
			continue
		}
		if err := remove(name); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, name)
	}
	if len(errs) > 0 { // keep the record for the next attempt
		return removed, errors.Join(errs...)
	}
	for _, o := range all {
		if !o.alive {
			errs = append(errs, os.Remove(o.file))
		}
	}
	return removed, errors.Join(errs...)
}

// leftBehind says whether a dead process made the namespace and no living one claims it.
func leftBehind(name string, all []owner) bool {
	dead := false
	for _, o := range all {
		if slices.Contains(o.spaces, name) {
			if o.alive {
				return false
			}
			dead = true
		}
	}
	return dead
}

// remove kills what runs in the namespace, unmounts it and removes its name. A namespace that is not there is fine.
func remove(name string) error {
	var id unix.Stat_t
	switch err := unix.Stat(path(name), &id); err {
	case nil:
	case unix.ENOENT:
		return nil
	default:
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	if err := killInside(id); err != nil {
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	err := vns.DeleteNamed(name)
	if err == unix.EINVAL { // a name whose mount failed or was taken away
		err = os.Remove(path(name))
	}
	if err != nil {
		return fmt.Errorf("remove namespace %s: %w", name, err)
	}
	return nil
}

// killInside kills every other process whose network namespace is id. A process may have forked in the meantime, so it
// looks until nobody is left.
func killInside(id unix.Stat_t) error {
	for range 100 {
		pids, err := inside(id)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := kill(pid, id); err != nil {
				return fmt.Errorf("kill process %d inside: %w", pid, err)
			}
		}
	}
	return errors.New("programs inside multiply faster than they can be killed")
}

// kill ends the process and waits until it is gone, unless it left the namespace or died by itself.
func kill(pid int, id unix.Stat_t) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if !livesIn(pid, id) { // the number may have been taken over between the look and the open
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
		return err
	}
	const grace = 2000 // ms
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, grace)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return err
		case n == 0:
			return fmt.Errorf("still there %d ms after SIGKILL", grace)
		default:
			return nil
		}
	}
}

// inside lists the processes, this one excepted, whose main thread is in the namespace.
func inside(id unix.Stat_t) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && pid != os.Getpid() && livesIn(pid, id) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func livesIn(pid int, id unix.Stat_t) bool {
	var st unix.Stat_t
	err := unix.Stat(fmt.Sprintf("/proc/%d/ns/net", pid), &st)
	return err == nil && st.Ino == id.Ino && st.Dev == id.Dev
}
