package main

import "github.com/spf13/cobra"

// commands lists every command in the order of --help.
func commands() []*cobra.Command {
	return []*cobra.Command{
		newAB(), newRecord(), newDoctor(), newTop(), newFlame(), newBroker(), newLoad(),
	}
}
