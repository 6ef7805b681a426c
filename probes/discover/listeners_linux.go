package discover

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Listeners returns the TCP ports that the process listens on and that loopback
// reaches, without connecting to any. Ports bound to another address of the
// machine are left out.
func Listeners(pid int) ([]Listener, error) {
	dir := fmt.Sprintf("/proc/%d", pid)
	inodes, err := socketInodes(dir)
	if err != nil {
		return nil, explain(pid, err)
	}
	mine, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("find ports: %w", err)
	}
	theirs, err := os.Readlink(dir + "/ns/net")
	if err != nil {
		return nil, explain(pid, err)
	}
	if mine != theirs {
		return nil, fmt.Errorf("find ports of process %d: it is in another network namespace (a container), whose loopback is not ours; give the addresses, or run inside (nsenter -t %d -n)", pid, pid)
	}
	var table []socket
	for _, name := range []string{"tcp", "tcp6"} {
		f, err := os.Open(dir + "/net/" + name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // no IPv6
		}
		if err != nil {
			return nil, explain(pid, err)
		}
		listening, err := parseTable(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("find ports of process %d: %s: %w", pid, f.Name(), err)
		}
		table = append(table, listening...)
	}
	return owned(table, inodes), nil
}

// socketInodes returns the inodes of the sockets that a process has open.
func socketInodes(dir string) (map[uint64]bool, error) {
	d, err := os.Open(dir + "/fd")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	inodes := map[uint64]bool{}
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		link, err := os.Readlink(dir + "/fd/" + name)
		if err != nil {
			continue // closed meanwhile
		}
		var inode uint64
		if strings.HasPrefix(link, "socket:[") {
			if _, err := fmt.Sscanf(link, "socket:[%d]", &inode); err == nil {
				inodes[inode] = true
			}
		}
	}
	return inodes, nil
}

func explain(pid int, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("find ports of process %d: no such process: %w", pid, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("find ports of process %d: its sockets cannot be listed; run as root or its user, or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, or give the addresses: %w", pid, err)
	}
	return fmt.Errorf("find ports of process %d: %w", pid, err)
}
