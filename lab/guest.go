package lab

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultMemory is the guest's memory if [Guest.Memory] is 0, in bytes. The host
// only provides what the guest touches.
const DefaultMemory = 1 << 30

// DefaultStall is how long a guest may show no progress if [Guest.StallLimit] is 0.
const DefaultStall = 60 * time.Second

// Guest describes one boot of the lab kernel and the command that runs in it, as
// root. The guest's file tree is the host's, read with the rights of the calling
// user; what the guest writes stays in its memory, except below JobDir.
type Guest struct {
	Kernel string   // from [Build]
	Init   string   // host program that calls [Init] first in main; empty: this program
	Argv   []string // the command; Argv[0] is looked up in PATH of Env
	Env    []string // its environment; nil: [DefaultEnv]
	Dir    string   // its working directory; empty: JobDir, or / without one
	JobDir string   // host directory that the guest may write, at the same path; may be empty

	Stdin  io.Reader // read to its end before the boot; nil: /dev/null
	Stdout io.Writer // nil: discarded
	Stderr io.Writer

	Memory int64 // bytes; 0: DefaultMemory

	// VirtualTime lets processor work take no time and jumps over idle time
	// (time-travel=inf-cpu). Clock is then where the guest's calendar starts
	// (zero: now).
	VirtualTime bool
	Clock       time.Time

	// Seed, unless 0, replaces the host's entropy: sequence numbers, ports and
	// hash keys of two runs with virtual time, Clock and Seed are the same.
	Seed uint64

	VirtualLimit time.Duration // guest time the command may take; 0: no limit
	WallLimit    time.Duration // real time from boot to power-off; 0: no limit
	StallLimit   time.Duration // real time without a sign of life, see [Stalled]; 0: DefaultStall
}

// DefaultEnv is the environment of commands in the guest: TERM and language of
// the caller, PATH and HOME of root.
func DefaultEnv() []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "USER=root", "LOGNAME=root",
	}
	for _, name := range []string{"TERM", "LANG", "LC_ALL"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// initMarker is the environment variable that tells a program with process id 1
// that it is in the lab, not in a container.
const initMarker = "NICEMU_LAB"

// kernelArgs is the kernel's command line. console is the host descriptor pair of
// the console, control the descriptor that messages go to.
func (g *Guest) kernelArgs(console string, control int) []string {
	memory := g.Memory
	if memory == 0 {
		memory = DefaultMemory
	}
	args := []string{
		fmt.Sprintf("mem=%dM", memory>>20),
		"uml_dir=./", "umid=uml", "noreboot",
		"root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro",
		"init=" + runDirInGuest + "/" + initLink,
		"con=null", "con0=" + console,
		"ssl=null", fmt.Sprintf("ssl0=null,fd:%d", control),
		"quiet", "loglevel=4",
		// Unknown words become init's environment. One processor, no collector:
		// its runtime has nothing to wake up for.
		initMarker + "=1", "GOMAXPROCS=1", "GOGC=off",
	}
	if g.VirtualTime {
		args = append(args, "time-travel=inf-cpu")
		if !g.Clock.IsZero() {
			args = append(args, fmt.Sprintf("time-travel-start=%d", g.Clock.UnixNano()))
		}
	}
	if g.Seed != 0 {
		args = append(args, fmt.Sprintf("rng_seed=%d", g.Seed))
	}
	return args
}

// kernelEnv is the environment of the kernel as a host process. glibc's restartable
// sequences, registered by the kernel's own start-up code, kill the first guest
// process. memDir is where the file behind the guest's memory lies.
func kernelEnv(memDir string) []string {
	return []string{"GLIBC_TUNABLES=glibc.pthread.rseq=0", "TMPDIR=" + memDir, "PATH=" + os.Getenv("PATH"), "HOME=/"}
}

// memoryDir chooses the directory for the guest's memory file: it must allow
// execution, and should be in memory and large enough.
func memoryDir(candidates []string, size int64) (string, error) {
	var problems []string
	for _, dir := range candidates {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil {
			problems = append(problems, dir+": "+err.Error())
			continue
		}
		switch free := int64(st.Bavail) * st.Bsize; {
		case unix.Access(dir, unix.W_OK|unix.X_OK) != nil:
			problems = append(problems, dir+": not writable")
		case st.Flags&unix.MS_NOEXEC != 0: // ST_NOEXEC has the same value
			problems = append(problems, dir+": mounted noexec")
		case free < size:
			problems = append(problems, fmt.Sprintf("%s: %d MB free, %d MB needed", dir, free>>20, size>>20))
		default:
			return dir, nil
		}
	}
	return "", fmt.Errorf("no place for the guest's memory: %s", strings.Join(problems, "; "))
}
