package lab

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// compiledObjects is how many files the compiler and assembler make of
// kernel.config, counted in a build of 6.12.117. It only scales the progress shown.
const compiledObjects = 847

// diskSpace is what a build needs while it runs, in bytes.
const diskSpace = 2 << 30

// BuildOptions say where a kernel goes and who hears about it.
type BuildOptions struct {
	CacheDir string         // where kernels are kept; empty is [DefaultCacheDir]
	Progress func(Progress) // called from the building goroutine; may be nil
}

// Build returns the path of the lab kernel, building it first if the cache has
// none. Nothing is installed on the system and no privilege is needed. A build
// that was interrupted, by ctx or otherwise, resumes at the object it was at; a
// second caller waits for the first. Errors: *[MissingTools]; a missing source
// package with the remedy; the last lines of the tool that failed.
func Build(ctx context.Context, opt BuildOptions) (string, error) {
	cacheDir, err := orDefault(opt.CacheDir)
	if err != nil {
		return "", err
	}
	hash := recipeHash(kernelConfig, kernelPatch)
	if kernel := newestKernel(cacheDir, hash); kernel != "" {
		return kernel, nil
	}
	if err := checkTools(exec.LookPath); err != nil {
		return "", err
	}
	if err := os.MkdirAll(cacheDir, 0o755); err != nil {
		return "", err
	}
	b := &builder{cacheDir: cacheDir, report: opt.Progress}
	if b.report == nil {
		b.report = func(Progress) {}
	}
	unlock, err := lockCache(ctx, cacheDir, func() {
		b.report(Progress{Stage: "wait", Note: "for another build of it"})
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if kernel := newestKernel(cacheDir, hash); kernel != "" {
		return kernel, nil
	}
	kernel, err := b.build(ctx, hash)
	if err != nil {
		return "", fmt.Errorf("lab kernel: %w", err)
	}
	return kernel, nil
}

// builder is one build. Its work directory holds one result per finished step,
// each put in place by a rename, so that a later build can start at any of them.
type builder struct {
	cacheDir string
	version  string // of the source package
	work     string
	report   func(Progress)
}

func (b *builder) path(name string) string { return filepath.Join(b.work, name) }
func (b *builder) source() string          { return b.path("source") }

func (b *builder) build(ctx context.Context, hash string) (kernel string, err error) {
	if b.version, err = b.findSource(ctx); err != nil {
		return "", err
	}
	key := kernelKey(b.version, hash)
	b.work = filepath.Join(b.cacheDir, "build-"+key)
	if err := b.removeStale(); err != nil {
		return "", err
	}
	if err := os.MkdirAll(b.work, 0o755); err != nil {
		return "", err
	}
	for _, step := range []func(context.Context) error{b.fetch, b.unpack, b.configure, b.compile} {
		if err := step(ctx); err != nil {
			return "", err
		}
	}
	return b.install(ctx, filepath.Join(b.cacheDir, key))
}

// removeStale removes what builds of other versions left behind, then checks
// that there is room.
func (b *builder) removeStale() error {
	old, _ := filepath.Glob(filepath.Join(b.cacheDir, "build-*")) // the pattern is well formed
	for _, dir := range old {
		if dir != b.work {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(b.cacheDir, &st); err != nil {
		return &os.PathError{Op: "statfs", Path: b.cacheDir, Err: err}
	}
	if free := st.Bavail * uint64(st.Bsize); free < diskSpace && !exists(b.source()) {
		return fmt.Errorf("%s has %d MB free, a build needs %d MB", b.cacheDir, free>>20, diskSpace>>20)
	}
	return nil
}

// configure starts from nothing and adds our options.
func (b *builder) configure(ctx context.Context) error {
	config := filepath.Join(b.source(), ".config")
	if !exists(config) {
		b.report(Progress{Stage: "configure"})
		fragment := b.path("kernel.config")
		if err := os.WriteFile(fragment, []byte(kernelConfig), 0o644); err != nil {
			return err
		}
		if err := b.make(ctx, nil, "KCONFIG_ALLCONFIG="+fragment, "allnoconfig"); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	if refused := refusedOptions(kernelConfig, string(text)); len(refused) > 0 {
		return fmt.Errorf("the source %s does not take %s", b.version, strings.Join(refused, ", "))
	}
	return nil
}

// refusedOptions lists the options that the fragment sets and the configuration
// made from it lacks: renamed, or missing something they depend on.
func refusedOptions(fragment, config string) []string {
	set := make(map[string]bool)
	for line := range strings.Lines(config) {
		set[strings.TrimSpace(line)] = true
	}
	var refused []string
	for line := range strings.Lines(fragment) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "CONFIG_") && !strings.HasSuffix(line, "=n") && !set[line] {
			refused = append(refused, line)
		}
	}
	return refused
}

func (b *builder) compile(ctx context.Context) error {
	m := newMeter(b.report, time.Now, countObjects(b.source()), compiledObjects)
	b.report(Progress{Stage: "compile", Done: m.done, Total: m.total})
	err := b.make(ctx, func(line string) {
		if name, ok := compiledObject(line); ok {
			m.step(name)
		}
	}, fmt.Sprintf("-j%d", runtime.NumCPU()), "linux")
	if err == nil {
		m.finish()
	}
	return err
}

// compiledObject recognises make's line for one object, "  CC      net/core/dev.o".
func compiledObject(line string) (name string, ok bool) {
	fields := strings.Fields(line)
	if len(fields) != 2 || (fields[0] != "CC" && fields[0] != "AS") {
		return "", false
	}
	return fields[1], true
}

// countObjects counts what an earlier run has compiled.
func countObjects(tree string) (n int) {
	filepath.WalkDir(tree, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(d.Name(), ".o") {
			n++
		}
		return nil // what cannot be read is not counted
	})
	return n
}

// make runs make in the source tree. Fixed names and date: the kernel's version
// text goes into its random pool, and equal sources shall give equal runs.
func (b *builder) make(ctx context.Context, line func(string), args ...string) error {
	args = append([]string{"ARCH=um", "SUBARCH=x86_64", "KBUILD_BUILD_USER=nicemu", "KBUILD_BUILD_HOST=lab", "KBUILD_BUILD_TIMESTAMP=Thu Jan  1 00:00:00 UTC 2026"}, args...)
	return b.run(ctx, b.source(), line, "make", args...)
}

// install strips the kernel into its place and gives the disk space back.
func (b *builder) install(ctx context.Context, dir string) (kernel string, err error) {
	stripped := b.path(kernelName)
	if err := b.run(ctx, b.work, nil, "strip", "-o", stripped, filepath.Join(b.source(), "linux")); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	kernel = filepath.Join(dir, kernelName)
	if err := os.Rename(stripped, kernel); err != nil {
		return "", err
	}
	return kernel, os.RemoveAll(b.work)
}

// emptyDir makes name in the work directory, without what an earlier run left in it.
func (b *builder) emptyDir(name string) (string, error) {
	dir := b.path(name)
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	return dir, os.Mkdir(dir, 0o755)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
