package discover

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// socket is a listening socket of /proc/PID/net/tcp or tcp6.
type socket struct {
	addr  netip.AddrPort
	inode uint64
}

// stateListen is TCP_LISTEN as the table writes it.
const stateListen = "0A"

// parseTable returns the listening sockets of a table.
func parseTable(r io.Reader) ([]socket, error) {
	var out []socket
	s := bufio.NewScanner(r)
	for n := 1; s.Scan(); n++ {
		f := strings.Fields(s.Text())
		if n == 1 || len(f) == 0 {
			continue // the heading
		}
		if len(f) < 10 {
			return nil, fmt.Errorf("line %d has %d fields, want at least 10", n, len(f))
		}
		if f[3] != stateListen {
			continue
		}
		addr, err := parseAddr(f[1])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		inode, err := strconv.ParseUint(f[9], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("line %d: inode: %w", n, err)
		}
		out = append(out, socket{addr, inode})
	}
	return out, s.Err()
}

// parseAddr reads ADDRESS:PORT in hexadecimal. The kernel prints the address as
// 32-bit words of the machine's byte order: little endian, as on every machine
// that the toolkit records.
func parseAddr(s string) (netip.AddrPort, error) {
	host, port, ok := strings.Cut(s, ":")
	raw, err := hex.DecodeString(host)
	if !ok || err != nil || (len(raw) != 4 && len(raw) != 16) {
		return netip.AddrPort{}, fmt.Errorf("address %.80q is not 4 or 16 bytes and a port in hexadecimal", s)
	}
	for w := range slices.Chunk(raw, 4) {
		slices.Reverse(w)
	}
	p, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("address %.80q: %w", s, err)
	}
	a, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(a.Unmap(), uint16(p)), nil
}

var (
	loopback4 = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	loopback6 = netip.IPv6Loopback()
)

// owned returns the listeners among inodes that loopback reaches, one per port.
// A port on which a socket of another process listens too is not to be tried:
// the connection could reach that one.
func owned(table []socket, inodes map[uint64]bool) []Listener {
	byPort := map[uint16]netip.Addr{}
	foreign, either := map[uint16]bool{}, map[uint16]bool{}
	for _, s := range table {
		if !inodes[s.inode] {
			if a := s.addr.Addr(); a.IsLoopback() || a.IsUnspecified() {
				foreign[s.addr.Port()] = true
			}
			continue
		}
		a := s.addr.Addr()
		switch {
		case a.IsLoopback():
		case a == netip.IPv4Unspecified():
			a = loopback4
		case a == netip.IPv6Unspecified():
			a = loopback4 // nearly always a socket for both families
			either[s.addr.Port()] = true
		default:
			continue
		}
		if old, ok := byPort[s.addr.Port()]; !ok || (old.Is6() && a.Is4()) {
			byPort[s.addr.Port()] = a
		}
	}
	var out []Listener
	for port, a := range byPort {
		l := Listener{Addr: netip.AddrPortFrom(a, port), either: either[port]}
		if foreign[port] {
			l.Note = "not tried: another process listens on the same port, and a connection could reach that one"
		}
		out = append(out, l)
	}
	sortListeners(out)
	for i := maxPorts; i < len(out); i++ {
		out[i].Note = fmt.Sprintf("not tried: the process listens on more than %d ports", maxPorts)
	}
	return out
}
