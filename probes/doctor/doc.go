// Package doctor finds out what this machine and this user can record, and what
// to do about what they cannot.
//
// Facts are gathered first: files of /proc and /sys under a root that tests can
// make up, and attempts made for real, through functions that tests can
// replace: system calls in a child process, the memory of that child and of the
// target, minimal BPF programs, and the recorders' own checks. Judge then turns
// facts into a Report; it is pure.
//
// Nothing stays behind: programs are loaded, attached to the doctor's own
// process where they must be, and let go.
package doctor
