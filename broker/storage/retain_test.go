package storage

import (
	"testing"
)

func TestTrimKeepsTheNewestOfWhatIsPast(t *testing.T) {
	for _, tt := range []struct {
		before, keep int64
		want         int64 // first entry left
	}{
		{50, -1, 0}, {50, 1 << 40, 0}, {50, 0, 50}, {50, 1, 49}, {50, 2500, 46}, {200, 1, 98}, {1, 1, 0}, {0, 0, 0},
	} {
		l, err := OpenLog(t.TempDir(), LogOptions{Sync: SyncNever, SegmentBytes: 1})
		if err != nil {
			t.Fatal(err)
		}
		for i := range int64(100) { // a file for each, of somewhat more than 600 bytes
			if err := l.Append([]Entry{{ID: i, Data: make([]byte, 600), Messages: 1, Index: i}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.TrimKeeping(tt.before, tt.keep); err != nil {
			t.Fatal(err)
		}
		if got := l.First(); got != tt.want {
			t.Errorf("trimmed before %d keeping %d: first entry %d, want %d", tt.before, tt.keep, got, tt.want)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
