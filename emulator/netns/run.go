package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// RunDir holds one file per process that made namespaces: locked while the process lives, one name per line.
const RunDir = "/run/nicemu"

// run is this process's own run file, made with the first namespace and removed with the last.
var run runFile

type runFile struct {
	mu    sync.Mutex
	file  *os.File
	names []string
}

// record notes that the process is about to make the namespace.
func (r *runFile) record(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil {
		if err := r.open(); err != nil {
			return fmt.Errorf("run file: %w", err)
		}
	}
	r.names = append(r.names, name)
	if _, err := fmt.Fprintln(r.file, name); err != nil {
		return fmt.Errorf("run file: %w", err)
	}
	return nil
}

// open makes and locks the file while holding the directory, so that no Clean sees it unlocked.
func (r *runFile) open() error {
	unlock, err := lockRunDir()
	if err != nil {
		return err
	}
	defer unlock()
	f, err := os.CreateTemp(RunDir, fmt.Sprintf("%d-", os.Getpid()))
	if err != nil {
		return err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	r.file = f
	return nil
}

// forget drops a namespace that is gone.
func (r *runFile) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names = slices.DeleteFunc(r.names, func(n string) bool { return n == name })
	if len(r.names) == 0 && r.file != nil {
		os.Remove(r.file.Name())
		r.file.Close()
		r.file = nil
	}
}

// lockRunDir makes RunDir if needed and keeps every other process out of it until unlock.
func lockRunDir() (unlock func(), err error) {
	if err := os.MkdirAll(RunDir, 0o755); err != nil {
		return nil, privileged(err)
	}
	dir, err := os.Open(RunDir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return func() { dir.Close() }, nil
}

// owner is what one run file says.
type owner struct {
	file   string
	alive  bool
	spaces []string
}

// owners reads all run files. The caller holds the directory.
func owners() ([]owner, error) {
	entries, err := os.ReadDir(RunDir)
	if err != nil {
		return nil, err
	}
	var all []owner
	for _, e := range entries {
		o, err := readOwner(filepath.Join(RunDir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) { // its process ended just now
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

func readOwner(name string) (owner, error) {
	f, err := os.Open(name)
	if err != nil {
		return owner{}, err
	}
	defer f.Close()
	text, err := os.ReadFile(name)
	if err != nil {
		return owner{}, err
	}
	held := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	return owner{file: name, alive: held == unix.EWOULDBLOCK, spaces: strings.Fields(string(text))}, nil
}
