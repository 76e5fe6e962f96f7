package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"nicemu/emulator/netns"
)

func cleanCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "clean",
		Short: "Remove what a killed run left behind",
		Long: `Remove the network namespaces, with the interfaces, qdiscs and processes in them,
and the lab kernel's temporary directories, of runs that were killed before they
could clean up. Runs that are still alive and everything that nicemu did not
make are left alone.`,
		Example: "  nicemu clean",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			n, err := cleanLab(cmd.OutOrStdout())
			if err != nil {
				return err
			}
			if err := netns.CheckPrivilege(); err != nil {
				return err
			}
			removed, err := netns.Clean(all)
			for _, name := range removed {
				fmt.Fprintf(cmd.OutOrStdout(), "removed namespace %s\n", name)
			}
			if err == nil && n+len(removed) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "nothing to remove")
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also what belongs to runs that are still alive")
	return cmd
}
