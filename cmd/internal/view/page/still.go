package page

import (
	"bytes"
	"fmt"
	"html/template"
	"io"
)

// still is what pages without a script have in common.
type still struct {
	Policy, Title, Heading string
	// About is what the page is about, in its top line.
	About string
	Style template.HTML // ours, written as it is
}

// newStill returns it for a page with further styles.
func newStill(title, about string, styles ...string) still {
	style := pageStyle + asset(styles...)
	return still{
		Policy: "default-src 'none'; style-src " + hashSource(style) + "; base-uri 'none'; form-action 'none'",
		Title:  title, About: about, Style: template.HTML("<style>" + style + "</style>"), //nolint:gosec // our own
	}
}

// writeStill writes a page, which is made whole first.
func writeStill(w io.Writer, name string, content any) error {
	var buf bytes.Buffer
	if err := pageTemplate.ExecuteTemplate(&buf, name, content); err != nil {
		return fmt.Errorf("making the page: %w", err)
	}
	_, err := w.Write(buf.Bytes())
	return err
}
