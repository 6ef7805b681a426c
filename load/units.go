package load

import (
	"fmt"
	"strconv"
	"strings"
)

// Size is a number of bytes that reads and prints with its unit: "128B",
// "4KB", "5MB". KB and KiB are both 1,024 bytes, and so on up. It is a flag
// value and has a text form for YAML.
type Size int64

var sizeUnits = []struct {
	name  string
	bytes Size
}{{"GiB", 1 << 30}, {"GB", 1 << 30}, {"MiB", 1 << 20}, {"MB", 1 << 20}, {"KiB", 1 << 10}, {"KB", 1 << 10}, {"B", 1}}

// ParseSize reads a whole number with its unit.
func ParseSize(s string) (Size, error) {
	for _, u := range sizeUnits {
		num, ok := strings.CutSuffix(strings.TrimSpace(s), u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(num), 10, 62)
		if err != nil {
			return 0, fmt.Errorf("size %q: want a whole number before the unit, such as 128B", s)
		}
		if n > uint64(1<<62/u.bytes) {
			return 0, fmt.Errorf("size %q is out of range", s)
		}
		return Size(n) * u.bytes, nil
	}
	return 0, fmt.Errorf("size %q has no unit: write 128B, 4KB or 5MB", s)
}

// String prints the size in the largest unit that divides it.
func (s Size) String() string {
	for _, u := range []struct {
		name  string
		bytes Size
	}{{"GB", 1 << 30}, {"MB", 1 << 20}, {"KB", 1 << 10}} {
		if s != 0 && s%u.bytes == 0 {
			return strconv.FormatInt(int64(s/u.bytes), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// Set is [ParseSize], for flags.
func (s *Size) Set(text string) (err error) {
	*s, err = ParseSize(text)
	return err
}

// Type names the value in a flag's help.
func (*Size) Type() string { return "size" }

// MarshalText is String.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is Set.
func (s *Size) UnmarshalText(text []byte) error { return s.Set(string(text)) }
