// Command nicemu is an emulated network card: models of real cards behind TAP
// devices in network namespaces, with the kernel's own qdiscs above them.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"nicemu/emulator/netns"
	"nicemu/emulator/tap"
	"nicemu/lab"
	"nicemu/scenarios"
	"nicemu/scenarios/workload"
)

// Exit codes.
const (
	exitOK          = 0
	exitUsage       = 1   // usage or configuration
	exitKernel      = 2   // the machine lacks or its kernel refused something
	exitExpectation = 3   // a stated expectation or a law failed
	exitInterrupted = 130 // after a clean shutdown
)

func main() {
	lab.Init() // does not return where this program is the lab kernel's init
	os.Exit(run())
}

// run is main with a value, so that scripted tests can be the command.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	err := rootCommand().ExecuteContext(ctx)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "nicemu: interrupted; everything it made has been removed")
		return exitInterrupted
	case err == nil:
		return exitOK
	}
	if !spoken(err) {
		fmt.Fprintf(os.Stderr, "nicemu: %v\n", err)
	}
	return exitCode(err)
}

// errReported ends a command whose output has already said what is wrong.
var errReported = errors.New("an expectation or a law failed")

// spoken says whether the user has been told already, by a table or by the
// program that failed.
func spoken(err error) bool {
	var status exitStatus
	var inGuest scenarios.GuestStatus
	return errors.Is(err, errReported) || errors.As(err, &status) || errors.As(err, &inGuest)
}

func exitCode(err error) int {
	var privilege *netns.NeedsPrivilege
	var unsupported *tap.Unsupported
	var refused *scenarios.KernelError
	var program *workload.MissingProgram
	var tools *lab.MissingTools
	var guest *lab.GuestError
	var status exitStatus
	var inGuest scenarios.GuestStatus
	switch {
	case errors.As(err, &privilege), errors.As(err, &unsupported), errors.As(err, &refused), errors.As(err, &program),
		errors.As(err, &tools), errors.As(err, &guest):
		return exitKernel
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &inGuest):
		return int(inGuest)
	case errors.Is(err, errReported):
		return exitExpectation
	}
	return exitUsage
}

func rootCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nicemu",
		Short: "An emulated network card: real card models behind TAP devices, real qdiscs above them",
		Long: `nicemu is a network card that is not there. It models how real cards and their
drivers transmit, behind TAP devices in network namespaces, and pushes back on
the kernel, so that the genuine qdiscs above queue where they would above the
real card.

  nicemu run bql-latency     run an experiment and see what it measured
  nicemu doctor              what this machine can do, and what to do about the rest`,
		SilenceUsage:  true,
		SilenceErrors: true,
		// A file that was asked for and is bad is a mistake also where no
		// default is wanted.
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("config") {
				return nil
			}
			_, err := loadConfig(cmd)
			return err
		},
	}
	cmd.PersistentFlags().String("config", "", "configuration file (default: config.toml in ., ~/.config/nicemu or /etc/nicemu)")
	cmd.AddCommand(
		runCommand(),
		reproduceCommand(),
		replayCommand(),
		simulateCommand(),
		scenariosCommand(),
		devicesCommand(),
		labCommand(),
		doctorCommand(),
		cleanCommand(),
		versionCommand(),
	)
	cmd.InitDefaultHelpCmd()
	cmd.InitDefaultCompletionCmd()
	for _, c := range cmd.Commands() {
		if c.Name() == "help" {
			c.Args = helpTopic
		} else if !c.Runnable() { // cobra takes an unknown command of a group for a request for help
			c.Args = cobra.NoArgs
			c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
	return cmd
}

// helpTopic refuses what is no command.
func helpTopic(cmd *cobra.Command, args []string) error {
	if c, rest, err := cmd.Root().Find(args); err != nil || c != cmd.Root() && c.HasSubCommands() && len(rest) > 0 {
		return fmt.Errorf("no help on %q: no such command", strings.Join(args, " "))
	}
	return nil
}
