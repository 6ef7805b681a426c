package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const faultBlocks = 200

func find(name string) candidate {
	for _, c := range candidates {
		if c.name == name {
			return c
		}
	}
	panic(name)
}

// block n says which it is.
func numbered(n uint64) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("block %06d ", n)), 500)
}

// runChild appends blocks and dies: "kill" by a signal right after the last
// append returned, "fill" when an append fails. "read" says what is there.
func runChild(what string, args []string) int {
	c := find(args[0])
	if what == "read" {
		fmt.Println(readable(c, args[1]))
		return 0
	}
	l, err := c.open(args[1], false)
	if err != nil {
		fmt.Println("open:", err)
		return 1
	}
	for n := uint64(1); ; n++ {
		if err := l.Append(n, numbered(n)); err != nil {
			fmt.Printf("append %d failed: %v; ", n, err)
			if err := l.Append(n, numbered(n)); err != nil {
				fmt.Printf("again: %v", err)
			} else {
				fmt.Print("again: accepted")
			}
			fmt.Println()
			return 0
		}
		fmt.Println(n)
		if what == "kill" && n == faultBlocks {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
}

func child(what string, c candidate, dir string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out, _ := exec.CommandContext(ctx, os.Args[0], "-child", what, c.name, dir).CombinedOutput()
	if ctx.Err() != nil {
		return "hangs"
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	s := lines[len(lines)-1]
	if len(s) > 160 {
		s = s[:160] + "…"
	}
	return s
}

// readable opens the log and says which blocks are right.
func readable(c candidate, dir string) string {
	l, err := c.open(dir, false)
	if err != nil {
		return "open fails: " + err.Error()
	}
	defer l.Close()
	last, err := l.Last()
	if err != nil {
		return err.Error()
	}
	good, wrong, failed := 0, 0, ""
	for n := uint64(1); n <= last; n++ {
		switch b, err := l.Read(n); {
		case err != nil && failed == "":
			failed = fmt.Sprintf(", %d fails: %v", n, err)
		case err != nil:
		case bytes.Equal(b, numbered(n)):
			good++
		default:
			wrong++
		}
	}
	s := fmt.Sprintf("last %d, %d right", last, good)
	if wrong > 0 {
		s += fmt.Sprintf(", **%d wrong without an error**", wrong)
	}
	return s + failed
}

// newest is the file that holds the most recent blocks.
func newest(dir string) (path string, size int64) {
	_ = filepath.Walk(dir, func(p string, fi os.FileInfo, err error) error {
		if err != nil || !fi.Mode().IsRegular() || strings.HasSuffix(p, ".db") {
			return nil
		}
		b, err := os.ReadFile(p)
		if i := bytes.LastIndex(b, []byte("block 000")); err == nil && i >= 0 && int64(i) > size {
			path, size = p, int64(i)
		}
		return nil
	})
	return path, size
}

func faults(base string) {
	fmt.Printf("What is left of %d blocks of 6 KB, sync off.\n\n| library | killed after the append returned | last block cut short | a bit flipped in block 100 | in each of the 24 bytes before block 100 | disk full |\n|---|---|---|---|---|---|\n", faultBlocks)
	for _, c := range candidates[1:] {
		cells := []string{}
		for _, hurt := range []func(string) error{func(string) error { return nil }, cutTail, flip(300)} {
			dir := filepath.Join(base, "fault")
			_ = os.MkdirAll(dir, 0o755)
			child("kill", c, dir)
			if err := hurt(dir); err != nil {
				cells = append(cells, err.Error())
			} else {
				cells = append(cells, child("read", c, dir))
			}
			os.RemoveAll(dir)
		}
		cells = append(cells, headers(base, c), full(base, c))
		fmt.Printf("| %s | %s |\n", c.name, strings.Join(cells, " | "))
	}
}

func cutTail(dir string) error {
	p, at := newest(dir)
	if p == "" {
		return fmt.Errorf("no data file")
	}
	return os.Truncate(p, at-1000)
}

func flip(offset int64) func(string) error {
	return func(dir string) error {
		p, _ := newest(dir)
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		i := int64(bytes.Index(b, []byte("block 000100 ")))
		if i < 0 {
			return fmt.Errorf("block 100 not found")
		}
		b[i+offset] ^= 1
		return os.WriteFile(p, b, 0o644)
	}
}

// headers flips a bit of each byte before block 100 in turn and counts what that does.
func headers(base string, c candidate) string {
	master, dir := filepath.Join(base, "master"), filepath.Join(base, "copy")
	_ = os.MkdirAll(master, 0o755)
	defer os.RemoveAll(master)
	child("kill", c, master)
	seen := map[string]int{}
	for i := int64(1); i <= 24; i++ {
		if err := os.CopyFS(dir, os.DirFS(master)); err != nil {
			return err.Error()
		}
		if err := flip(-i)(dir); err != nil {
			return err.Error()
		}
		seen[kind(child("read", c, dir))]++
		os.RemoveAll(dir)
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(seen)) {
		out = append(out, fmt.Sprintf("%d× %s", seen[k], k))
	}
	return strings.Join(out, ", ")
}

func kind(left string) string {
	var last, right int
	switch n, _ := fmt.Sscanf(left, "last %d, %d right", &last, &right); {
	case n != 2:
		return "open fails"
	case strings.Contains(left, "wrong"):
		return "**wrong without an error**"
	case strings.Contains(left, "fails"):
		return "an error for some blocks"
	case last < faultBlocks:
		return fmt.Sprintf("**%d blocks gone without an error**", faultBlocks-last)
	}
	return "no effect"
}

func full(base string, c candidate) string {
	dir := filepath.Join(base, "full")
	_ = os.MkdirAll(dir, 0o755)
	size := "8m"
	if c.name == "etcd wal" {
		size = "150m" // preallocates two files of 64 MB
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		return "not tried: " + err.Error()
	}
	defer syscall.Unmount(dir, 0)
	said := child("fill", c, dir)
	return said + "; then: " + child("read", c, dir)
}
