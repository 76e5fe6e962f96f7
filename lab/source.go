package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// sourcePackage is Debian's kernel source: bookworm has it through
// bookworm-security, trixie in main.
const sourcePackage = "linux-source-6.12"

// findSource asks apt which version of the source it would download.
func (b *builder) findSource(ctx context.Context) (version string, err error) {
	out, err := b.output(ctx, "apt-get", "download", "--print-uris", sourcePackage)
	version, ok := parseURIs(out)
	if err != nil || !ok {
		return "", fmt.Errorf("apt knows no package %s: run apt-get update as root; if that does not help, Debian 12 or 13 with its security archive in /etc/apt has it", sourcePackage)
	}
	return version, nil
}

// parseURIs reads the answer of apt-get --print-uris, one line of the form
//
//	'http://…/linux-source-6.12_6.12.117-1~deb12u1_all.deb' linux-source-6.12_6.12.117-1~deb12u1_all.deb 153476148 SHA256:…
//
// and returns the version.
func parseURIs(out string) (version string, ok bool) {
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		file, ok := strings.CutPrefix(fields[1], sourcePackage+"_")
		if !ok {
			continue
		}
		version, _, ok = strings.Cut(file, "_")
		if ok && version != "" && !strings.ContainsAny(version, "/") {
			return strings.ReplaceAll(version, "%3a", ":"), true
		}
	}
	return "", false
}

// fetch downloads the package of the source into the work directory; apt checks
// its signature chain.
func (b *builder) fetch(ctx context.Context) error {
	deb := b.path("source.deb")
	if exists(deb) {
		return nil
	}
	b.report(Progress{Stage: "download", Note: sourcePackage + " " + b.version})
	tmp, err := b.emptyDir("download.tmp")
	if err != nil {
		return err
	}
	// The sandbox user of apt cannot write here, and says so at length.
	if err := b.run(ctx, tmp, nil, "apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", sourcePackage); err != nil {
		return err
	}
	got, _ := filepath.Glob(filepath.Join(tmp, sourcePackage+"_*.deb")) // the pattern is well formed
	if len(got) != 1 {
		return fmt.Errorf("apt-get download %s left %d packages", sourcePackage, len(got))
	}
	return os.Rename(got[0], deb)
}

// unneeded are the parts of the source that no build of ours reads: two thirds
// of it. Their Kconfig files and Makefiles stay, other ones refer to them.
var unneeded = []string{"drivers/gpu", "drivers/media", "drivers/net/ethernet", "drivers/net/wireless", "drivers/scsi", "drivers/staging", "sound"}

// unpack makes the patched source tree.
func (b *builder) unpack(ctx context.Context) error {
	if exists(b.source()) {
		return nil
	}
	b.report(Progress{Stage: "unpack", Note: sourcePackage + " " + b.version})
	tmp, err := b.emptyDir("unpack.tmp")
	if err != nil {
		return err
	}
	if err := b.run(ctx, tmp, nil, "dpkg-deb", "-x", b.path("source.deb"), "."); err != nil {
		return err
	}
	args := []string{"-xJf", "usr/src/" + sourcePackage + ".tar.xz"}
	for _, dir := range unneeded {
		args = append(args, "--exclude="+sourcePackage+"/"+dir+"/*.[chS]")
	}
	if err := b.run(ctx, tmp, nil, "tar", args...); err != nil {
		return err
	}
	tree := filepath.Join(tmp, sourcePackage)
	patch := filepath.Join(tmp, "kernel.patch")
	if err := os.WriteFile(patch, []byte(kernelPatch), 0o644); err != nil {
		return err
	}
	if err := b.run(ctx, tree, nil, "patch", "-p1", "-N", "-i", patch); err != nil {
		return err
	}
	if err := os.Rename(tree, b.source()); err != nil {
		return err
	}
	return os.RemoveAll(tmp)
}
