package main

import (
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "contention",
		Short: "Off-CPU profiling and lock contention of live brokers, before and after a change",
		Long: `contention finds out where a live broker's time goes while it is not running,
names the operations that wait, in time per message, and shows before and after
whether a change made it better.`,
		Example: `  contention ab handoff --quick -o out
  contention record --pid 4242 --duration 10s -o rec
  contention top rec`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		Version:           version(),
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		Args:              cobra.NoArgs,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError("%w; see `%s --help`", err, cmd.CommandPath())
	})
	root.AddCommand(commands()...)
	for _, c := range append(root.Commands(), root) {
		if args := c.Args; args != nil {
			c.Args = func(cmd *cobra.Command, a []string) error {
				if err := args(cmd, a); err != nil {
					return usageError("%w; see `%s --help`", err, cmd.CommandPath())
				}
				return nil
			}
		}
	}
	return root
}

// version is the module's version and VCS revision, as built.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v, rev, dirty := info.Main.Version, "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			rev = " " + s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	if rev == "" {
		return v
	}
	return v + rev + dirty
}
