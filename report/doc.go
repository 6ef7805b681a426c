// Package report writes what an experiment found: Markdown for a pull-request
// comment, one HTML file that works offline, result.json and a file that
// benchstat reads.
//
// Markdown, HTML and the terminal summary are renderings of one document
// (sections with paragraphs and tables), so they say the same. What a result
// holds may be hostile: names come from profiled processes. Such text is made
// visible (control characters are shown as escapes), shortened, and escaped by
// the renderer.
//
// Numbers carry their units; what is not known is "–". A verdict on speed comes
// from throughput and latency of unprofiled runs only; blocked time is stated
// beside it.
package report
