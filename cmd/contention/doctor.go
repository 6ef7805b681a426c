package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/contention-toolkit/contention/probes/doctor"
)

type doctorFlags struct {
	pid  int
	json bool
}

func newDoctor() *cobra.Command {
	f := doctorFlags{}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine and this user can record, and what to do about the rest",
		Long: `doctor tries, for real, everything that recording needs: it reads a child's
memory and the target's, loads and drops minimal BPF programs, and runs the
recorders' own checks. Nothing stays attached or changed.

Each line says ok, limited (works, with something missing) or no, then what was
found, and after the arrow what to do about it. With --pid it looks at that
process too: what it is made of and what it lacks.

Exit status: 0 when at least one of goroutines, threads and exact can be recorded
(of the target, with --pid), 1 when none can.`,
		Example: `  contention doctor
  contention doctor --pid 4242
  contention doctor --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().IntVar(&f.pid, "pid", 0, "process to look at as a target")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the report as JSON (docs/formats.md)")
	cmd.AddCommand(newDoctorTrial())
	return cmd
}

// newDoctorTrial is the child that the doctor starts.
func newDoctorTrial() *cobra.Command {
	return &cobra.Command{
		Use: "trial", Hidden: true, Short: "Try system calls and wait; the doctor's child", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return doctor.RunTrial(cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

func (f *doctorFlags) run(ctx context.Context, stdout io.Writer) error {
	if f.pid < 0 {
		return usageError("--pid %d: not a process id", f.pid)
	}
	r, err := doctor.Run(ctx, doctor.Options{PID: f.pid, Child: func() *exec.Cmd {
		// The link rather than the path, which another file may have taken meanwhile.
		return exec.Command("/proc/self/exe", "doctor", "trial")
	}})
	if err != nil {
		return err
	}
	if f.json {
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		err = e.Encode(r)
	} else {
		err = printDoctor(stdout, r, terminalWidth(stdout))
	}
	switch {
	case err != nil:
		return fmt.Errorf("doctor: write the report: %w", err)
	case !r.Recordable && f.pid != 0:
		return fmt.Errorf("doctor: nothing of process %d can be recorded: %s", f.pid, r.Checks[0].Reason)
	case !r.Recordable:
		return fmt.Errorf("doctor: nothing can be recorded by this user on this machine; the report names the reasons")
	}
	return nil
}

var doctorGroups = map[doctor.Group]string{
	doctor.Sources: "What can be recorded", doctor.Privileges: "This user", doctor.Kernel: "This kernel",
	doctor.Around: "Around this process", doctor.Target: "The target",
}

// printDoctor writes a report, a line for each check. With a width above 0 long
// lines are folded under their text.
func printDoctor(w io.Writer, r *doctor.Report, width int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "contention doctor: Linux %s, %s, uid %d\n", oneLine(r.Kernel), r.Arch, r.UID)
	verdict, title := 0, 0
	for _, c := range r.Checks {
		verdict, title = max(verdict, len(c.Verdict)), max(title, len(c.Title))
	}
	for _, g := range doctor.Groups() {
		head := "\n" + doctorGroups[g] + "\n"
		for _, c := range r.Checks {
			if c.Group != g {
				continue
			}
			line := oneLine(c.Reason)
			if c.Remedy != "" {
				line += " → " + oneLine(c.Remedy)
			}
			left := fmt.Sprintf("  %-*s  %-*s  ", verdict, c.Verdict, title, c.Title)
			b.WriteString(head + left + fold(line, len(left), width) + "\n")
			head = ""
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// fold breaks text at spaces so that it fits beside a column of some width.
func fold(text string, indent, width int) string {
	const least = 30
	if width < indent+least {
		return text
	}
	var b strings.Builder
	at := 0
	for i, word := range strings.Fields(text) {
		n := len([]rune(word))
		switch {
		case i == 0:
		case at+1+n > width-indent:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			at = 0
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}

// terminalWidth is 0 where w is no terminal.
func terminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}
