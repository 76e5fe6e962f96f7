package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakeTools puts a directory of scripts first in PATH that stand for apt, tar, the
// compiler and make. make "compiles" the objects listed in $FAKE/objects, one file
// each, and, while $FAKE/interrupt exists, says so and waits after the second. Every
// call is a line in $FAKE/calls.
func fakeTools(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	libc := filepath.Join(dir, "libc.a")
	writeFile(t, libc, "", 0o644)
	writeFile(t, filepath.Join(dir, "objects"), "a.o b.o c.o d.o", 0o644)
	log := "#!/bin/sh\nFAKE=" + dir + "\necho \"$(basename $0) $*\" >>$FAKE/calls\n"
	for name, body := range map[string]string{
		"apt-get": `test -e $FAKE/nosource && exit 100
f=linux-source-6.12_6.12.9-1_all.deb
case "$*" in *--print-uris*) echo "'http://x/$f' $f 10 SHA256:0";; *) echo deb >$f;; esac`,
		"dpkg-deb": `mkdir -p usr/src && echo tar >usr/src/linux-source-6.12.tar.xz`,
		"tar":      `mkdir linux-source-6.12`,
		"patch":    `:`,
		"strip":    `cp "$3" "$2"`,
		"gcc":      `echo ` + libc,
		"make": `case "$*" in
*allnoconfig*) for a in "$@"; do case $a in KCONFIG_ALLCONFIG=*) cp ${a#*=} .config;; esac; done; exit;;
esac
n=0
for o in $(cat $FAKE/objects); do
	test -e $o && continue
	echo $o >tmp; mv tmp $o; echo "  CC      $o"; n=$((n+1))
	if test $n = 2 -a -e $FAKE/interrupt; then echo waiting; exec sleep 60; fi
	if test -e $FAKE/broken; then echo "$o: error: no such thing"; exit 2; fi
done
cat *.o >linux`,
	} {
		writeFile(t, filepath.Join(dir, "bin", name), log+body+"\n", 0o755)
	}
	for _, name := range []string{"bc", "bison", "flex", "ld", "xz"} {
		writeFile(t, filepath.Join(dir, "bin", name), log, 0o755)
	}
	t.Setenv("PATH", filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	return dir
}

func calls(t *testing.T, fake string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(fake, "calls"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	os.Remove(filepath.Join(fake, "calls"))
	return string(text)
}

func TestBuildMakesAKernelOnceAndLeavesNothingElse(t *testing.T) {
	fake := fakeTools(t)
	cache := filepath.Join(t.TempDir(), "cache")
	kernel, err := Build(t.Context(), BuildOptions{CacheDir: cache})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(kernel); err != nil || string(text) != "a.o\nb.o\nc.o\nd.o\n" {
		t.Errorf("kernel: %q, %v", text, err)
	}
	if calls(t, fake) == "" {
		t.Error("no tool was called")
	}
	left, _ := filepath.Glob(filepath.Join(cache, "*"))
	if len(left) != 2 { // the entry and the lock
		t.Errorf("left in the cache: %q", left)
	}
	again, err := Build(t.Context(), BuildOptions{CacheDir: cache})
	if err != nil || again != kernel {
		t.Errorf("second build: %q, %v", again, err)
	}
	if got := calls(t, fake); got != "" {
		t.Errorf("a cached kernel cost:\n%s", got)
	}
}

func TestInterruptedBuildResumesAtTheNextObject(t *testing.T) {
	fake := fakeTools(t)
	cache := t.TempDir()
	writeFile(t, filepath.Join(fake, "interrupt"), "", 0o644)
	ctx, cancel := context.WithCancel(t.Context())
	began := time.Now()
	_, err := Build(ctx, BuildOptions{CacheDir: cache, Progress: func(p Progress) {
		if p.Note == "b.o" {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("make was not ended: %v", took)
	}
	if got := calls(t, fake); !strings.Contains(got, "apt-get -q") || !strings.Contains(got, "patch") {
		t.Errorf("first run:\n%s", got)
	}

	os.Remove(filepath.Join(fake, "interrupt"))
	var compiled []string
	first := Progress{}
	kernel, err := Build(t.Context(), BuildOptions{CacheDir: cache, Progress: func(p Progress) {
		if p.Stage == "compile" && first.Total == 0 {
			first = p
		}
		if p.Note != "" && p.Stage == "compile" {
			compiled = append(compiled, p.Note)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(compiled, " "); got != "c.o d.o" {
		t.Errorf("the second run compiled %s", got)
	}
	if first.Done != 2 {
		t.Errorf("the second run's progress starts at %d", first.Done)
	}
	if got := calls(t, fake); strings.Contains(got, "apt-get -q") || strings.Contains(got, "tar ") || strings.Contains(got, "allnoconfig") {
		t.Errorf("the second run repeated finished steps:\n%s", got)
	}
	if text, err := os.ReadFile(kernel); err != nil || string(text) != "a.o\nb.o\nc.o\nd.o\n" {
		t.Errorf("kernel: %q, %v", text, err)
	}
}

func TestFailedBuildShowsTheToolsLastLines(t *testing.T) {
	fake := fakeTools(t)
	writeFile(t, filepath.Join(fake, "broken"), "", 0o644)
	_, err := Build(t.Context(), BuildOptions{CacheDir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "exit status 2") || !strings.Contains(err.Error(), "a.o: error: no such thing") {
		t.Errorf("got %v", err)
	}
}

func TestUnknownSourcePackageNamesTheRemedy(t *testing.T) {
	fake := fakeTools(t)
	writeFile(t, filepath.Join(fake, "nosource"), "", 0o644)
	_, err := Build(t.Context(), BuildOptions{CacheDir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "linux-source-6.12: run apt-get update") {
		t.Errorf("got %v", err)
	}
}

func TestSecondBuilderWaitsAndTakesTheFirstOnesKernel(t *testing.T) {
	fake := fakeTools(t)
	cache := t.TempDir()
	unlock, err := lockCache(t.Context(), cache, func() { t.Error("an unlocked cache made us wait") })
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan struct{})
	type outcome struct {
		kernel string
		err    error
	}
	second := make(chan outcome)
	go func() {
		kernel, err := Build(t.Context(), BuildOptions{CacheDir: cache, Progress: func(p Progress) {
			if p.Stage == "wait" {
				close(waiting)
			}
		}})
		second <- outcome{kernel, err}
	}()
	<-waiting
	want := filepath.Join(cache, kernelKey("6.12.8-1", recipeHash(kernelConfig, kernelPatch)), kernelName)
	writeFile(t, want, "the first one's", 0o755)
	unlock()
	if got := <-second; got.err != nil || got.kernel != want {
		t.Errorf("got %+v", got)
	}
	if got := calls(t, fake); strings.Contains(got, "make") {
		t.Errorf("the second builder built:\n%s", got)
	}
}

func TestWaitingForTheLockEndsWithTheContext(t *testing.T) {
	cache := t.TempDir()
	unlock, err := lockCache(t.Context(), cache, func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := lockCache(ctx, cache, cancel); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
