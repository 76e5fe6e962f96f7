package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"nicemu/lab"
)

func labCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "The lab kernel: genuine fq_codel, taprio, etf and the rest on any host, in virtual time",
		Long: `The lab kernel is Linux 6.12 as a User Mode Linux program: it has every qdisc, needs
neither root nor KVM, and its clock can be virtual: processor work takes no
time, timers are exact, and a busy host changes nothing.

"nicemu run" uses it by itself where the host's kernel lacks something.`,
		Example: `  nicemu lab build
  nicemu lab exec -- tc qdisc add dev lo root fq_codel
  nicemu lab shell`,
	}
	cmd.AddCommand(labBuildCommand(), labShellCommand(), labExecCommand(), labJobCommand())
	return cmd
}

func labBuildCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "build",
		Short: "Build the lab kernel into the cache directory, once; takes minutes",
		Long: `Download Debian's kernel source, compile it, and keep the kernel in the user's
cache directory. Nothing is installed and no privilege is needed. A build that
was interrupted goes on where it was. Prints the kernel's path.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			kernel, err := labKernel(cmd.Context())
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), kernel)
			}
			return err
		},
	}
}

// labKernel is the lab kernel, built if the cache has none.
func labKernel(ctx context.Context) (string, error) {
	return lab.Build(ctx, lab.BuildOptions{Progress: lab.PrintProgress(os.Stderr, isTerminal(os.Stderr))})
}

func labShellCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "shell [-- COMMAND…]",
		Short: "A shell as root in the lab kernel, in real time",
		Long: `Boot the lab kernel on this terminal: a shell as root over the host's files, which
it may read but not change. "exit" powers off.`,
		Example: "  nicemu lab shell",
		RunE: func(cmd *cobra.Command, args []string) error {
			g, err := labGuest(cmd.Context(), args)
			if err != nil {
				return err
			}
			r, err := lab.Shell(cmd.Context(), g)
			return commandStatus(r, err)
		},
	}
}

func labExecCommand() *cobra.Command {
	var (
		realTime bool
		writable string
		seed     uint64
	)
	cmd := &cobra.Command{
		Use:   "exec -- COMMAND…",
		Short: "Run a command as root in the lab kernel, in virtual time",
		Long: `Boot the lab kernel, run a command in it as root, and exit with its status. The
command sees the host's files; what it writes is gone afterwards, except below
the directory of --writable. In virtual time the processor's work takes no time
and idle time is jumped over, so a program that spins until the clock moves never ends.`,
		Example: `  nicemu lab exec -- sh -c 'date; sleep 86400; date'
  nicemu lab exec --writable out -- ./measure.sh`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			g, err := labGuest(cmd.Context(), args)
			if err != nil {
				return err
			}
			g.VirtualTime, g.JobDir, g.Seed = !realTime, writable, seed
			g.Stdout, g.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
			if !isTerminal(os.Stdin) {
				g.Stdin = os.Stdin
			}
			if seed != 0 {
				g.Clock = fixedClock
			}
			r, err := lab.Run(cmd.Context(), g)
			return commandStatus(r, err)
		},
	}
	cmd.Flags().SetInterspersed(false) // flags after the command are the command's
	cmd.Flags().BoolVar(&realTime, "real-time", false, "let the clock run as the host's does")
	cmd.Flags().StringVar(&writable, "writable", "", "a `DIRECTORY` of the host that the command may change")
	cmd.Flags().Uint64Var(&seed, "seed", 0, "replaces the host's entropy and date, so that two runs draw the same random numbers; 0 = neither")
	return cmd
}

// fixedClock is the guest's date at boot where a seed asks for repeatable runs.
var fixedClock = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// labGuest is a command in the directory we are in.
func labGuest(ctx context.Context, argv []string) (g lab.Guest, err error) {
	if g.Kernel, err = labKernel(ctx); err != nil {
		return g, err
	}
	g.Argv = argv
	g.Dir, err = os.Getwd()
	return g, err
}

// exitStatus is a command's own status, which becomes ours. It has spoken for
// itself.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

func commandStatus(r lab.Result, err error) error {
	if err != nil {
		return err
	}
	if r.Status != 0 {
		return exitStatus(r.Status)
	}
	return nil
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// cleanLab removes what guests of killed runs left behind.
func cleanLab(out io.Writer) (n int, err error) {
	removed, err := lab.Clean()
	for _, dir := range removed {
		fmt.Fprintf(out, "removed directory %s\n", strings.TrimSuffix(dir, "/"))
	}
	return len(removed), err
}
