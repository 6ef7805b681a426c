package main

import (
	"fmt"
	"strconv"
	"strings"
)

func dash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// shortSite is a wait site without its import path, with the line.
func shortSite(r topRow) string {
	s := r.Site
	// The path ends at the last slash before any type parameter.
	head, tail, generic := strings.Cut(s, "[")
	if i := strings.LastIndexByte(head, '/'); i >= 0 {
		head = head[i+1:]
	}
	s = head
	if generic {
		s += "[" + tail
	}
	if s != "" && r.Line > 0 {
		s += ":" + strconv.Itoa(r.Line)
	}
	return s
}

// perMessage puts nanoseconds per message in the unit that reads best.
func perMessage(ns *float64) string {
	if ns == nil {
		return "–"
	}
	v := *ns
	switch {
	case v >= 1e9:
		return fmt.Sprintf("%.3g s", v/1e9)
	case v >= 1e6:
		return fmt.Sprintf("%.3g ms", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%.3g µs", v/1e3)
	}
	return fmt.Sprintf("%.0f ns", v)
}

func percent(v *float64) string {
	if v == nil {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100**v)
}

// grouped writes an integer with separators.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}
