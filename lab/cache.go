package lab

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

//go:embed kernel.config
var kernelConfig string

//go:embed kernel.patch
var kernelPatch string

// kernelName is the stripped kernel's file name in its cache entry.
const kernelName = "linux"

// DefaultCacheDir returns nicemu/lab under the user's cache directory
// (os.UserCacheDir, so $XDG_CACHE_HOME or $HOME/.cache).
func DefaultCacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(base, "nicemu", "lab"), nil
}

// Cached returns the kernel that [Build] would return without building, or ""
// if there is none. An empty cacheDir is [DefaultCacheDir]. It only looks at the
// cache directory: no apt, no compiler.
func Cached(cacheDir string) (string, error) {
	cacheDir, err := orDefault(cacheDir)
	if err != nil {
		return "", err
	}
	return newestKernel(cacheDir, recipeHash(kernelConfig, kernelPatch)), nil
}

func orDefault(cacheDir string) (string, error) {
	if cacheDir == "" {
		return DefaultCacheDir()
	}
	return filepath.Abs(cacheDir)
}

// recipeHash identifies everything of ours that goes into a kernel. The order of
// the configuration's lines and its comments do not.
func recipeHash(config, patch string) string {
	var options []string
	for line := range strings.Lines(config) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "CONFIG_") {
			options = append(options, line)
		}
	}
	slices.Sort(options)
	h := sha256.New()
	h.Write([]byte(strings.Join(options, "\n")))
	h.Write([]byte{0})
	h.Write([]byte(patch))
	return hex.EncodeToString(h.Sum(nil))[:12]
}

// kernelKey names a cache entry.
func kernelKey(sourceVersion, hash string) string { return sourceVersion + "-" + hash }

// newestKernel finds the kernel built last by the recipe, of whatever source
// version: a security update of the source is no reason to make users wait.
func newestKernel(cacheDir, hash string) string {
	paths, _ := filepath.Glob(filepath.Join(cacheDir, "*-"+hash, kernelName)) // the pattern is well formed
	var newest string
	var when time.Time
	for _, p := range paths {
		if fi, err := os.Stat(p); err == nil && (newest == "" || fi.ModTime().After(when)) {
			newest, when = p, fi.ModTime()
		}
	}
	return newest
}
