package lab

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// needed names what scenarios and the emulator rely on, one option each.
var needed = strings.Fields(`
	UML_TIME_TRAVEL_SUPPORT HIGH_RES_TIMERS STATIC_LINK HOSTFS OVERLAY_FS TMPFS DEVTMPFS PROC_FS SYSFS SSL KALLSYMS
	NET INET IPV6 UNIX PACKET NET_NS NETLINK_DIAG INET_DIAG BQL BPF_SYSCALL IO_URING TIMERFD EPOLL FUTEX
	TUN VETH DUMMY IFB BRIDGE VLAN_8021Q NET_PKTGEN VIRTIO_UML VIRTIO_NET TCP_CONG_CUBIC TCP_CONG_BBR
	NET_SCH_CAKE NET_SCH_CBS NET_SCH_CODEL NET_SCH_DRR NET_SCH_ETF NET_SCH_ETS NET_SCH_FQ NET_SCH_FQ_CODEL NET_SCH_HTB
	NET_SCH_INGRESS NET_SCH_MQPRIO NET_SCH_NETEM NET_SCH_PIE NET_SCH_PLUG NET_SCH_PRIO NET_SCH_RED NET_SCH_SFQ NET_SCH_TAPRIO NET_SCH_TBF
	NET_CLS_BASIC NET_CLS_BPF NET_CLS_FLOWER NET_CLS_FW NET_CLS_MATCHALL NET_CLS_U32 NET_ACT_BPF NET_ACT_GACT NET_ACT_MIRRED NET_ACT_SKBEDIT`)

func TestKernelConfigHasEveryNeededOption(t *testing.T) {
	lines := strings.Split(kernelConfig, "\n")
	for _, name := range needed {
		if !slices.Contains(lines, "CONFIG_"+name+"=y") {
			t.Errorf("kernel.config lacks CONFIG_%s=y", name)
		}
	}
}

func TestKernelConfigNamesAnOptionOnce(t *testing.T) {
	seen := make(map[string]int)
	for i, line := range strings.Split(kernelConfig, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok || !strings.HasPrefix(name, "CONFIG_") || (value != "y" && value != "n") {
			t.Errorf("line %d: %q is no option", i+1, line)
		}
		if first, twice := seen[name]; twice {
			t.Errorf("line %d: %s is already in line %d", i+1, name, first)
		}
		seen[name] = i + 1
	}
}

func TestRefusedOptionsAreThoseTheSourceDropped(t *testing.T) {
	fragment := "# CONFIG_NOT=y\nCONFIG_A=y\nCONFIG_B=y\nCONFIG_C=n\n"
	config := "CONFIG_A=y\n# CONFIG_B is not set\n"
	if diff := cmp.Diff([]string{"CONFIG_B=y"}, refusedOptions(fragment, config)); diff != "" {
		t.Error(diff)
	}
}

func TestKeyChangesWithSourceConfigAndPatch(t *testing.T) {
	const config = "CONFIG_A=y\nCONFIG_B=y\n"
	base := kernelKey("6.12.1-1", recipeHash(config, "p"))
	for what, other := range map[string]string{
		"source version": kernelKey("6.12.2-1", recipeHash(config, "p")),
		"configuration":  kernelKey("6.12.1-1", recipeHash(config+"CONFIG_C=y\n", "p")),
		"value":          kernelKey("6.12.1-1", recipeHash("CONFIG_A=y\nCONFIG_B=n\n", "p")),
		"patch":          kernelKey("6.12.1-1", recipeHash(config, "p2")),
	} {
		if other == base {
			t.Errorf("another %s gives the same key %s", what, base)
		}
	}
	for what, same := range map[string]string{
		"same input":          config,
		"comments and blanks": "# why\n\nCONFIG_A=y\n # and\nCONFIG_B=y",
		"another order":       "CONFIG_B=y\nCONFIG_A=y\n",
	} {
		if got := kernelKey("6.12.1-1", recipeHash(same, "p")); got != base {
			t.Errorf("%s: %s and %s", what, base, got)
		}
	}
}

func TestCachedFindsTheNewestKernelOfThisRecipeOnly(t *testing.T) {
	dir := t.TempDir()
	if got, err := Cached(dir); got != "" || err != nil {
		t.Fatalf("empty cache: %q, %v", got, err)
	}
	hash := recipeHash(kernelConfig, kernelPatch)
	age := time.Hour
	for _, key := range []string{"6.12.9-1-" + hash, "6.12.10-1-" + hash, "6.12.11-1-0123456789ab"} {
		path := filepath.Join(dir, key, kernelName)
		writeFile(t, path, "kernel", 0o755)
		stamp := time.Now().Add(-age)
		if err := os.Chtimes(path, stamp, stamp); err != nil {
			t.Fatal(err)
		}
		age -= time.Minute
	}
	got, err := Cached(dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(dir, "6.12.10-1-"+hash, kernelName); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestMissingToolsAreNamedWithTheirPackagesInOneSentence(t *testing.T) {
	err := checkTools(func(name string) (string, error) {
		switch name {
		case "flex", "bison", "ld", "strip", "gcc":
			return "", exec.ErrNotFound
		}
		return "/usr/bin/" + name, nil
	})
	var missing *MissingTools
	if !errors.As(err, &missing) {
		t.Fatalf("got %v", err)
	}
	want := "building the lab kernel needs bison, flex, gcc, ld, strip: apt-get install binutils bison flex gcc"
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
}

func TestNoToolMissingIsNoError(t *testing.T) {
	gcc := filepath.Join(t.TempDir(), "gcc")
	libc := filepath.Join(t.TempDir(), "libc.a")
	writeFile(t, libc, "", 0o644)
	writeFile(t, gcc, "#!/bin/sh\necho "+libc+"\n", 0o755)
	look := func(name string) (string, error) {
		if name == "gcc" {
			return gcc, nil
		}
		return "/usr/bin/" + name, nil
	}
	if err := checkTools(look); err != nil {
		t.Error(err)
	}
	writeFile(t, gcc, "#!/bin/sh\necho libc.a\n", 0o755) // what gcc says if it has none
	if err := checkTools(look); err == nil || !strings.Contains(err.Error(), "libc.a: apt-get install libc6-dev") {
		t.Errorf("without the static C library: %v", err)
	}
}

func TestSourceVersionComesFromAptsAnswer(t *testing.T) {
	const file = "linux-source-6.12_6.12.117-1~deb12u1_all.deb"
	out := "'http://deb.debian.org/debian-security/pool/updates/main/l/linux-6.12/" + file + "' " + file + " 153476148 SHA256:e849\n"
	if got, ok := parseURIs(out); !ok || got != "6.12.117-1~deb12u1" {
		t.Errorf("got %q, %v", got, ok)
	}
	for _, bad := range []string{"", "\n", "'http://x/y' other_1_all.deb 1 MD5:0", "linux-source-6.12_", "' linux-source-6.12__all.deb", "x linux-source-6.12_../../etc_all.deb"} {
		if got, ok := parseURIs(bad); ok {
			t.Errorf("%q gave version %q", bad, got)
		}
	}
}

func TestProgressCountsOnlyThisRunsRate(t *testing.T) {
	now := time.Unix(0, 0)
	var last Progress
	m := newMeter(func(p Progress) { last = p }, func() time.Time { return now }, 500, 800)
	for range 100 {
		now = now.Add(time.Second)
		m.step("x.o")
	}
	if want := (Progress{Stage: "compile", Done: 600, Total: 800, Left: 200 * time.Second, Note: "x.o"}); last != want {
		t.Errorf("got %+v, want %+v", last, want)
	}
	for range 250 { // more than measured
		m.step("y.o")
	}
	if last.Done != 850 || last.Total != 850 {
		t.Errorf("got %d of %d", last.Done, last.Total)
	}
}

func TestProgressIsALinePerStageAndTenthWithoutATerminal(t *testing.T) {
	var out strings.Builder
	report := PrintProgress(&out, false)
	report(Progress{Stage: "download", Note: "linux-source"})
	for done := range 101 {
		report(Progress{Stage: "compile", Done: done, Total: 100, Left: 90 * time.Second})
	}
	want := "lab kernel: download linux-source\n"
	for done := 0; done <= 100; done += 10 {
		want += fmt.Sprintf("lab kernel: compile %d of 100 objects, about 1m30s left\n", done)
	}
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestObjectsAreTheCompilersAndAssemblersLines(t *testing.T) {
	for line, want := range map[string]string{
		"  CC      net/core/dev.o":         "net/core/dev.o",
		"  AS      arch/x86/um/checksum.o": "arch/x86/um/checksum.o",
		"  AR      net/built-in.a":         "",
		"  HOSTCC  scripts/basic/fixdep":   "",
		"make[1]: Entering directory":      "",
		"":                                 "",
	} {
		if got, _ := compiledObject(line); got != want {
			t.Errorf("%q: got %q", line, got)
		}
	}
}

func TestToolEnvironmentDropsWhatAMakeAboveWouldChange(t *testing.T) {
	got := toolEnv([]string{"PATH=/bin", "MAKEFLAGS= -j8", "CFLAGS=-O0", "ARCH=arm", "HTTPS_PROXY=http://p", "http_proxy=http://q", "HOME=/h"})
	want := []string{"LC_ALL=C", "PATH=/bin", "HTTPS_PROXY=http://p", "http_proxy=http://q", "HOME=/h"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTailKeepsTheLastLinesAndBoundsThem(t *testing.T) {
	tl := newTail(2)
	for _, line := range []string{"one", "two", strings.Repeat("x", 10*maxTailLine)} {
		tl.add(line)
	}
	if want := "two\n" + strings.Repeat("x", maxTailLine); tl.String() != want {
		t.Errorf("got %d bytes: %.20q", len(tl.String()), tl)
	}
}

func TestMessagesArriveAsSent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		out := rapid.SliceOfN(rapid.Byte(), 1, 3*maxMessage).Draw(t, "out")
		status := rapid.IntRange(0, 255).Draw(t, "status")
		clock := time.Duration(rapid.Int64Range(0, 1<<62).Draw(t, "clock"))
		var line bytes.Buffer
		w := &messageWriter{w: &line}
		for _, err := range []error{
			w.send(msgStarted, clockPayload(clock)), w.send(msgStdout, out), w.send(msgExit, exitPayload(status, clock)),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		r := &messageReader{r: &line}
		m, err := r.next()
		if err != nil || m.kind != msgStarted || m.clock != clock {
			t.Fatalf("got %+v, %v", m, err)
		}
		var got []byte
		for m, err = r.next(); err == nil && m.kind == msgStdout; m, err = r.next() {
			got = append(got, m.data...)
		}
		if err != nil || m.kind != msgExit || m.status != status || m.clock != clock {
			t.Fatalf("got %+v, %v", m, err)
		}
		if !bytes.Equal(got, out) {
			t.Fatalf("got %d bytes, want %d", len(got), len(out))
		}
		if _, err := r.next(); err != io.EOF {
			t.Fatalf("after the last message: %v", err)
		}
	})
}

func TestMalformedMessagesAreErrorsNotMemory(t *testing.T) {
	huge := binary.LittleEndian.AppendUint32([]byte{byte(msgStdout)}, 1<<31)
	for name, in := range map[string][]byte{
		"huge length":  huge,
		"unknown kind": {'?', 0, 0, 0, 0},
		"short clock":  {byte(msgBeat), 1, 0, 0, 0, 9},
		"short exit":   {byte(msgExit), 4, 0, 0, 0, 1, 2, 3, 4},
	} {
		if _, err := (&messageReader{r: bytes.NewReader(in)}).next(); !errors.Is(err, errProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKernelArgumentsFollowTheGuest(t *testing.T) {
	g := Guest{Memory: 512 << 20, VirtualTime: true, Clock: time.Unix(1700000000, 0), Seed: 7}
	args := g.kernelArgs("null,fd:1", 3)
	for _, want := range []string{"mem=512M", "time-travel=inf-cpu", "time-travel-start=1700000000000000000", "rng_seed=7", "ro", "noreboot"} {
		if !slices.Contains(args, want) {
			t.Errorf("%s is missing in %q", want, args)
		}
	}
	real := (&Guest{}).kernelArgs("null,fd:1", 3)
	for _, arg := range real {
		if strings.HasPrefix(arg, "time-travel") || strings.HasPrefix(arg, "rng_seed") {
			t.Errorf("real time got %s", arg)
		}
	}
	if other := (&Guest{JobDir: "/some/dir", Init: "/some/nicemu"}).kernelArgs("null,fd:1", 3); !slices.Equal(real, other) {
		t.Errorf("a host path reached the kernel's command line, and so its random pool: %q", other)
	}
}

func TestMemoryGoesWhereItMayBeExecutedAndFits(t *testing.T) {
	dir := t.TempDir()
	got, err := memoryDir([]string{"/proc/no/such", "/proc", dir}, 4096)
	if err != nil || got != dir {
		t.Errorf("got %q, %v", got, err)
	}
	_, err = memoryDir([]string{dir}, 1<<60)
	if err == nil || !strings.Contains(err.Error(), dir+": ") || !strings.Contains(err.Error(), "MB needed") {
		t.Errorf("too large: %v", err)
	}
}

func TestCleanRemovesRunDirectoriesOfTheDeadOnly(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	g := &Guest{Argv: []string{"true"}, Init: "/bin/true"}
	living, err := g.makeRunDir(false)
	if err != nil {
		t.Fatal(err)
	}
	dead, err := g.makeRunDir(false)
	if err != nil {
		t.Fatal(err)
	}
	dead.lock.Close() // what the death of a process does
	foreign := filepath.Join(os.TempDir(), "other")
	writeFile(t, filepath.Join(foreign, "x"), "", 0o644)

	removed, err := Clean()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{dead.path}, removed); diff != "" {
		t.Error(diff)
	}
	living.remove()
	left, err := os.ReadDir(os.TempDir())
	if err != nil || len(left) != 1 || left[0].Name() != "other" {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestJobDirectoryMustBeADirectory(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file, "", 0o644)
	for _, bad := range []string{file, file + "-missing"} {
		g := &Guest{Argv: []string{"true"}, JobDir: bad}
		if _, err := g.makeRunDir(false); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("a failed start left %v, %v", left, err)
	}
}

func writeFile(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}
