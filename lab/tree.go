package lab

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// makeTree replaces the guest's root, the host's files read-only, by an overlay
// of them and guest memory, with the kernel's file systems in their places. /dev
// is a devtmpfs already.
func makeTree(jobDir string) error {
	const stage = "/tmp" // exists on every host; what we mount there is gone with the old root
	if err := mount("tmpfs", stage, "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	root := stage + "/root"
	for _, dir := range []string{stage + "/upper", stage + "/work", root} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := mount("overlay", root, "overlay", 0, "lowerdir=/,upperdir="+stage+"/upper,workdir="+stage+"/work"); err != nil {
		return err
	}
	for _, m := range []struct {
		fstype, dir, data string
	}{
		{"proc", "/proc", ""},
		{"sysfs", "/sys", ""},
		{"bpf", "/sys/fs/bpf", "mode=0700"},
		{"devtmpfs", "/dev", ""},
		{"devpts", "/dev/pts", "mode=0620,ptmxmode=0666"},
		{"tmpfs", "/dev/shm", "mode=1777"},
		{"tmpfs", "/run", "mode=0755"},
	} {
		if err := os.MkdirAll(root+m.dir, 0o755); err != nil {
			return err
		}
		if err := mount(m.fstype, root+m.dir, m.fstype, unix.MS_NOSUID, m.data); err != nil {
			return err
		}
	}
	if err := ownHome(root + "/root"); err != nil {
		return err
	}
	if jobDir != "" {
		if err := os.MkdirAll(root+jobDir, 0o755); err != nil {
			return err
		}
		if err := mount("hostfs", root+jobDir, "hostfs", 0, jobDir); err != nil {
			return err
		}
	}
	return switchRoot(root)
}

// ownHome gives the guest's root a home of its own if the user who runs the guest
// may not read the host's.
func ownHome(dir string) error {
	if unix.Access(dir, unix.R_OK|unix.X_OK) == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return mount("tmpfs", dir, "tmpfs", 0, "mode=0700")
}

// switchRoot makes dir, a mount point, the root of everything.
func switchRoot(dir string) error {
	if err := os.Chdir(dir); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return &os.PathError{Op: "move mount to /", Path: dir, Err: err}
	}
	if err := unix.Chroot("."); err != nil {
		return &os.PathError{Op: "chroot", Path: dir, Err: err}
	}
	return os.Chdir("/")
}

func mount(source, dir, fstype string, flags uintptr, data string) error {
	if err := unix.Mount(source, dir, fstype, flags, data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", fstype, filepath.Clean(dir), err)
	}
	return nil
}

// loopbackUp sets the guest's lo up.
func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(s, unix.SIOCGIFFLAGS, ifr); err != nil {
		return fmt.Errorf("lo: %w", err)
	}
	ifr.SetUint16(ifr.Uint16() | unix.IFF_UP)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, ifr); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	return nil
}
