package load

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// namedHistogram is a latency distribution in µs.
type namedHistogram struct {
	name string
	h    *hdrhistogram.Histogram
}

// WriteHistograms writes every latency distribution into dir, which exists:
// NAME.hgrm, the percentile text that HdrHistogram's plotters read, in ms; and
// NAME.hdr, its base64 V2 compressed encoding, in µs, from which runs can be
// merged. Names are publish and end-to-end-SUBSCRIPTION, and with a rate both
// again with -uncorrected.
func (r *Result) WriteHistograms(dir string) error {
	for _, n := range r.histograms {
		var text bytes.Buffer
		if _, err := n.h.PercentilesPrint(&text, 5, 1000); err != nil {
			return fmt.Errorf("histogram %s: %w", n.name, err)
		}
		encoded, err := n.h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
		if err != nil {
			return fmt.Errorf("histogram %s: %w", n.name, err)
		}
		for ext, b := range map[string][]byte{".hgrm": text.Bytes(), ".hdr": append(encoded, '\n')} {
			if err := os.WriteFile(filepath.Join(dir, n.name+ext), b, 0o644); err != nil {
				return fmt.Errorf("write histogram %s: %w", n.name, err)
			}
		}
	}
	return nil
}
