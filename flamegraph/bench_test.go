package flamegraph

import (
	"io"
	"testing"
)

func BenchmarkBuild(b *testing.B) {
	p := wide(20_000, 1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Build(p, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBuildDiff(b *testing.B) {
	p, q := wide(20_000, 1), wide(20_000, 2)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := BuildDiff([]Run{{Profile: p}}, []Run{{Profile: q}}, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWriteDiffSVG(b *testing.B) {
	d, err := BuildDiff([]Run{{Profile: wide(20_000, 1)}}, []Run{{Profile: wide(20_000, 2)}}, Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := WriteDiffSVG(io.Discard, d, SVGOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}
