package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html"
	"strings"
)

//go:embed style.css
var styleCSS string

// page renders a document as one HTML file that loads nothing and runs nothing:
// its content security policy allows its one style sheet, by hash, and images
// in data URIs. Pictures are images, never part of the page, so that no frame
// name becomes markup here.
func page(d *document, graphs map[string][]byte) []byte {
	h := &htmlWriter{graphs: graphs}
	hash := sha256.Sum256([]byte(styleCSS))
	h.printf("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n")
	h.printf("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-%s'; img-src data:; base-uri 'none'; form-action 'none'\">\n",
		base64.StdEncoding.EncodeToString(hash[:]))
	h.printf("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n")
	h.printf("<title>%s</title>\n<style>%s</style>\n</head>\n<body>\n", h.plain(d.title), styleCSS)
	h.printf("<header>\n<h1>%s</h1>\n", h.text(d.title))
	for i, b := range d.lead {
		c, ok := b.(callout)
		if i == 0 && ok {
			h.printf("<p class=\"callout lead %s\">%s</p>\n", c.tone, h.text(c.text))
			continue
		}
		h.block(b)
	}
	h.printf("</header>\n<main>\n")
	for _, s := range d.sections {
		h.section = s.title
		h.printf("<section aria-labelledby=\"%s\">\n<h2 id=\"%s\">%s</h2>\n", s.id, s.id, h.escape(s.title))
		if s.fold != "" {
			h.printf("<p>%s.</p>\n", h.escape(s.fold))
		}
		for _, b := range s.blocks {
			h.block(b)
		}
		h.printf("</section>\n")
	}
	h.printf("</main>\n</body>\n</html>\n")
	return h.Bytes()
}

type htmlWriter struct {
	bytes.Buffer
	graphs  map[string][]byte
	section string // the title that a table without a caption goes by
}

func (h *htmlWriter) printf(format string, args ...any) { fmt.Fprintf(h, format, args...) }

func (h *htmlWriter) block(b block) {
	switch b := b.(type) {
	case paragraph:
		h.printf("<p>%s</p>\n", h.text(b.text))
	case callout:
		h.printf("<p class=\"callout %s\">%s</p>\n", b.tone, h.text(b.text))
	case list:
		h.printf("<ul>\n")
		for _, t := range b.items {
			h.printf("<li>%s</li>\n", h.text(t))
		}
		h.printf("</ul>\n")
	case listing:
		h.printf("<pre>%s</pre>\n", h.escape(b.code))
	case picture:
		h.picture(b)
	case *table:
		h.table(b)
	}
}

// picture embeds a graph, and links to its file, where a browser also shows the
// whole name of a frame under the pointer.
func (h *htmlWriter) picture(p picture) {
	data := h.graphs[p.file]
	if p.file == "" || len(data) == 0 {
		h.printf("<p>%s", h.text(p.caption))
		if p.file != "" {
			h.printf(" File: <a href=\"%s\">%s</a>.", h.escape(p.file), h.escape(p.file))
		}
		h.printf("</p>\n")
		return
	}
	h.printf("<figure>\n<figcaption>%s <a href=\"%s\">%s</a></figcaption>\n", h.text(p.caption), h.escape(p.file), h.escape(p.file))
	h.printf("<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"%s\"><img alt=\"%s The table of waits holds its largest sites as text.\" src=\"data:image/svg+xml;base64,%s\"></div>\n</figure>\n",
		h.escape(p.file), h.plain(p.caption), base64.StdEncoding.EncodeToString(data))
}

func (h *htmlWriter) table(t *table) {
	label := t.caption
	if label == "" {
		label = h.section
	}
	h.printf("<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"%s\">\n<table>\n", h.escape(label))
	if t.caption != "" {
		h.printf("<caption>%s</caption>\n", h.escape(t.caption))
	}
	h.printf("<thead><tr>")
	for _, c := range t.columns {
		if c.head == "" {
			h.printf("<td></td>")
			continue
		}
		h.printf("<th scope=\"col\"%s>%s</th>", class(c, ""), h.escape(c.head))
	}
	h.printf("</tr></thead>\n<tbody>\n")
	for _, row := range t.rows {
		h.printf("<tr>")
		for i, cell := range row {
			if i == 0 {
				h.printf("<th scope=\"row\"%s>%s</th>", class(t.columns[i], ""), h.text(cell))
				continue
			}
			h.printf("<td%s>%s</td>", class(t.columns[i], "w"), h.text(cell))
		}
		h.printf("</tr>\n")
	}
	h.printf("</tbody>\n</table>\n</div>\n")
	if len(t.note) > 0 {
		h.printf("<p class=\"note\">%s</p>\n", h.text(t.note))
	}
}

// class is the attribute of a cell: "n" for numbers.
func class(c column, other string) string {
	if c.right {
		other = "n"
	}
	if other == "" {
		return ""
	}
	return ` class="` + other + `"`
}

func (h *htmlWriter) text(t text) string {
	var b strings.Builder
	for _, s := range t {
		switch s.style {
		case newline:
			b.WriteString("<br>")
		case strong:
			b.WriteString("<strong>" + h.escape(s.s) + "</strong>")
		case faint:
			b.WriteString("<small>" + h.escape(s.s) + "</small>")
		case code:
			b.WriteString("<code>" + h.escape(s.s) + "</code>")
		default:
			b.WriteString(h.escape(s.s))
		}
	}
	return b.String()
}

// plain is a text without markup, for attributes and the title.
func (h *htmlWriter) plain(t text) string {
	var b strings.Builder
	for _, s := range t {
		b.WriteString(h.escape(s.s))
	}
	return b.String()
}

func (h *htmlWriter) escape(s string) string { return html.EscapeString(visible(s)) }
