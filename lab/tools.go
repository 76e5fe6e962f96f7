package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// buildTools are the programs a build calls and Debian's packages they are in.
var buildTools = []struct{ program, pkg string }{
	{"apt-get", "apt"},
	{"bc", "bc"},
	{"bison", "bison"},
	{"dpkg-deb", "dpkg"},
	{"flex", "flex"},
	{"gcc", "gcc"},
	{"ld", "binutils"},
	{"make", "make"},
	{"patch", "patch"},
	{"strip", "binutils"},
	{"tar", "tar"},
	{"xz", "xz-utils"},
}

// MissingTools says that the kernel cannot be built because programs (or the
// static C library) are not installed.
type MissingTools struct {
	Names    []string // programs and files, sorted
	Packages []string // the Debian packages they come in, sorted
}

func (e *MissingTools) Error() string {
	return "building the lab kernel needs " + strings.Join(e.Names, ", ") +
		": apt-get install " + strings.Join(e.Packages, " ")
}

// checkTools returns a *MissingTools, or nil if everything is there. look finds
// a program, as exec.LookPath does.
func checkTools(look func(string) (string, error)) error {
	e := &MissingTools{}
	for _, t := range buildTools {
		if _, err := look(t.program); err != nil {
			e.Names = append(e.Names, t.program)
			e.Packages = append(e.Packages, t.pkg)
		}
	}
	if gcc, err := look("gcc"); err == nil && !hasStaticC(gcc) {
		e.Names = append(e.Names, "libc.a")
		e.Packages = append(e.Packages, "libc6-dev")
	}
	if e.Names == nil {
		return nil
	}
	slices.Sort(e.Names)
	slices.Sort(e.Packages)
	e.Packages = slices.Compact(e.Packages)
	return e
}

// hasStaticC reports whether the compiler finds libc.a: the kernel is linked
// statically, and the package with libc.a also has the headers it needs.
func hasStaticC(gcc string) bool {
	out, err := exec.Command(gcc, "-print-file-name=libc.a").Output()
	path := strings.TrimSpace(string(out))
	if err != nil || !filepath.IsAbs(path) {
		return false // gcc prints the bare name back if it finds nothing
	}
	_, err = os.Stat(path)
	return err == nil
}
