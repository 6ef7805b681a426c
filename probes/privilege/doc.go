// Package privilege says what stands between a user and a recording, and what
// to do about it: capabilities, ptrace access, Yama, user namespaces, seccomp
// and lockdown. Every message about a missing privilege has its words from here.
//
// Reading is apart from judging: Status and Access are plain values, read from
// a file-system root that tests can make up.
package privilege
