package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// job is the part of a Guest that init reads, from job.json in the run directory.
type job struct {
	Argv         []string
	Env          []string
	Dir          string
	JobDir       string
	Interactive  bool // on the console, not through messages
	VirtualLimit time.Duration
}

// Names in the run directory, which is the kernel's working directory: init finds
// it at runDirInGuest, so that no path of the host is on the kernel's command
// line (which goes into the random pool).
const (
	jobFile       = "job.json"
	stdinFile     = "stdin"
	initLink      = "init"
	runDirInGuest = "/proc/self/cwd"
)

// runDirPrefix starts the names of run directories, below os.TempDir.
const runDirPrefix = "nicemu-lab-"

// runDir is the private host directory of one boot, locked while it is in use.
type runDir struct {
	path string
	lock *os.File
}

func (d *runDir) remove() {
	os.RemoveAll(d.path)
	d.lock.Close()
}

// TempDir makes a directory for [Guest.JobDir]. remove removes it; [Clean] does if
// the calling process was killed before.
func TempDir() (path string, remove func(), err error) {
	d, err := newRunDir()
	if err != nil {
		return "", nil, fmt.Errorf("lab: %w", err)
	}
	return d.path, d.remove, nil
}

func newRunDir() (*runDir, error) {
	path, err := os.MkdirTemp("", runDirPrefix)
	if err != nil {
		return nil, err
	}
	d := &runDir{path: path}
	if d.lock, err = os.Open(path); err == nil {
		err = unix.Flock(int(d.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		d.remove()
		return nil, err
	}
	return d, nil
}

// makeRunDir writes down for init what it is to do.
func (g *Guest) makeRunDir(interactive bool) (*runDir, error) {
	d, err := newRunDir()
	if err != nil {
		return nil, err
	}
	if err := g.fillRunDir(d.path, interactive); err != nil {
		d.remove()
		return nil, err
	}
	return d, nil
}

func (g *Guest) fillRunDir(dir string, interactive bool) error {
	init, err := g.initProgram()
	if err != nil {
		return err
	}
	if err := os.Symlink(init, filepath.Join(dir, initLink)); err != nil {
		return err
	}
	j := job{Argv: g.Argv, Env: g.Env, Dir: g.Dir, JobDir: g.JobDir, Interactive: interactive, VirtualLimit: g.VirtualLimit}
	if j.Env == nil {
		j.Env = DefaultEnv()
	}
	if j.JobDir != "" {
		// Resolved: the guest makes the directory anew in its own tree, where a
		// symbolic link on the way would still point to the host's.
		if j.JobDir, err = realDir(j.JobDir); err != nil {
			return err
		}
	}
	if j.Dir == "" {
		j.Dir = "/"
		if j.JobDir != "" {
			j.Dir = j.JobDir
		}
	}
	text, err := json.Marshal(j)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, jobFile), text, 0o600); err != nil {
		return err
	}
	if g.Stdin == nil || interactive {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(dir, stdinFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, g.Stdin)
	return errors.Join(err, f.Close())
}

// initProgram is the absolute path of the guest's init.
func (g *Guest) initProgram() (string, error) {
	if g.Init == "" {
		return os.Executable()
	}
	return filepath.Abs(g.Init)
}

// realDir returns the absolute path of a directory without symbolic links.
func realDir(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", err
	}
	fi, err := os.Stat(dir)
	if err != nil {
		return "", err
	}
	if !fi.IsDir() {
		return "", &os.PathError{Op: "job directory", Path: dir, Err: unix.ENOTDIR}
	}
	return dir, nil
}

// Clean removes what boots left behind whose calling process was killed: their
// directories below os.TempDir. It returns those, and leaves alone the ones in use.
func Clean() (removed []string, err error) {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), runDirPrefix+"*")) // the pattern is well formed
	for _, path := range dirs {
		if gone, e := removeUnlocked(path); e != nil {
			err = errors.Join(err, e)
		} else if gone {
			removed = append(removed, path)
		}
	}
	return removed, err
}

func removeUnlocked(path string) (bool, error) {
	f, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false, ignoreForeign(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return false, nil
		}
		return false, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	if err := os.RemoveAll(path); err != nil {
		return false, ignoreForeign(err)
	}
	return true, nil
}

// ignoreForeign drops errors about directories that are another user's or just gone.
func ignoreForeign(err error) error {
	if errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	return err
}
