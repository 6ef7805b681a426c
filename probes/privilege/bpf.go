package privilege

import (
	"os"
	"path/filepath"
	"strings"
)

// Setcap grants what recording needs to an installed binary.
const Setcap = `sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace+ep "$(command -v contention)"`

// The remedies, for messages.
const (
	RemedyBPF      = "run as root, or grant CAP_BPF and CAP_PERFMON (before Linux 5.8: CAP_SYS_ADMIN): " + Setcap
	RemedyPtrace   = "run as root or as the target's own user, or grant CAP_SYS_PTRACE: " + Setcap
	RemedyLockdown = "boot with lockdown=integrity or lockdown=none, or without Secure Boot"
	RemedySeccomp  = "in a container, allow bpf, perf_event_open and process_vm_readv in its seccomp profile (for a try: --security-opt seccomp=unconfined); " +
		"in a systemd unit, SystemCallFilter=bpf perf_event_open process_vm_readv"
)

// MissingBPF names the capabilities that programs which trace the kernel need
// and the set lacks.
func MissingBPF(effective Set) []string {
	if effective.Has(SysAdmin) {
		return nil
	}
	var missing []string
	for _, c := range []Capability{BPF, Perfmon} {
		if !effective.Has(c) {
			missing = append(missing, c.String())
		}
	}
	return missing
}

// Lockdown is the kernel's lockdown mode: none, integrity or confidentiality;
// "" where it is not told, as without securityfs.
func Lockdown(root string) string {
	data, err := os.ReadFile(filepath.Join("/", root, "sys/kernel/security/lockdown"))
	if err != nil {
		return ""
	}
	return bracketed(string(data))
}

// bracketed returns the chosen one of "none [integrity] confidentiality".
func bracketed(s string) string {
	_, rest, ok := strings.Cut(s, "[")
	if !ok {
		return ""
	}
	chosen, _, ok := strings.Cut(rest, "]")
	if !ok {
		return ""
	}
	return chosen
}

// WhyNoBPF says, in one line with the remedies, what may keep a process with
// this status from loading BPF programs.
func WhyNoBPF(s Status, lockdown string) string {
	var why []string
	if missing := MissingBPF(s.Effective); len(missing) > 0 {
		why = append(why, "this user lacks "+strings.Join(missing, " and ")+" ("+RemedyBPF+")")
		if s.NoNewPrivs {
			why = append(why, NoNewPrivs)
		}
	}
	if lockdown == "confidentiality" {
		why = append(why, "the kernel is locked down (confidentiality), which forbids programs that read kernel memory ("+RemedyLockdown+")")
	}
	if len(why) == 0 {
		if s.Seccomp != 0 {
			return "a seccomp filter forbids bpf(2), although the capabilities are there (" + RemedySeccomp + ")"
		}
		return "the kernel refuses, although the capabilities are there: a seccomp filter or security module, such as a container's, may forbid bpf(2)"
	}
	return strings.Join(why, "; ")
}

// NoNewPrivs explains the flag of that name.
const NoNewPrivs = "no_new_privs is set, so that capabilities given to the binary by setcap do not take effect; " +
	"start it without NoNewPrivileges= or --security-opt no-new-privileges, or grant ambient capabilities (AmbientCapabilities=)"
