//go:build !race

package dispatch

import (
	"testing"

	"github.com/spaolacci/murmur3"
	"pgregory.net/rapid"
)

func TestHashAgainstTheUsualPackage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "key")
		if got, want := murmur32(b), murmur3.Sum32(b); got != want {
			t.Fatalf("hash of %x is %#x, want %#x", b, got, want)
		}
	})
}
