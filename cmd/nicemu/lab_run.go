package main

import (
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"nicemu/scenarios"
	"nicemu/scenarios/format"
)

// runInLab runs s in the lab kernel, with this program as its init.
func runInLab(cmd *cobra.Command, c *config, s *format.Scenario, job scenarios.LabJob) (*scenarios.Result, error) {
	image, err := labKernel(cmd.Context())
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := progress(c)
	p.Step("booting the lab kernel")
	shown := p != nil
	return scenarios.RunInLab(cmd.Context(), s, job, scenarios.LabOptions{
		Kernel: image,
		Argv: func(dir string) []string {
			return []string{self, "lab", "job", "--progress=" + strconv.FormatBool(shown), dir}
		},
		Stderr: cmd.ErrOrStderr(),
	})
}

// labJobCommand is the guest's side of runInLab; nobody types it.
func labJobCommand() *cobra.Command {
	var shown bool
	cmd := &cobra.Command{
		Use:    "job DIR",
		Short:  "Run a scenario inside the lab kernel",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var p *scenarios.Progress
			if shown {
				p = scenarios.NewProgress(os.Stderr)
			}
			_, err := scenarios.RunLabJob(cmd.Context(), args[0], p)
			return err
		},
	}
	cmd.Flags().BoolVar(&shown, "progress", false, "show progress on standard error")
	return cmd
}
