package broker

import (
	"runtime"
	"testing"
)

func TestMemoryStorageIsBoundedByDefault(t *testing.T) {
	for _, tt := range []struct {
		storage Storage
		quota   int64
		want    int64
	}{
		{Memory, 0, usableMemory() / 2}, {Memory, -1, -1}, {Memory, 5, 5}, {Disk, 0, 0}, {Disk, -1, -1}, {"", 0, usableMemory() / 2},
	} {
		c := Config{Storage: tt.storage, BacklogQuotaBytes: tt.quota}
		c.setDefaults()
		if c.BacklogQuotaBytes != tt.want {
			t.Errorf("storage %q, quota %d: %d in force, want %d", tt.storage, tt.quota, c.BacklogQuotaBytes, tt.want)
		}
	}
	if n := usableMemory(); runtime.GOOS == "linux" && n < 16<<20 {
		t.Errorf("usable memory is %d bytes", n)
	}
}
