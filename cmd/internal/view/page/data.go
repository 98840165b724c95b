package page

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/repair"
)

// The elements of the page that hold data.
const (
	dataReport = "data-report" // the report
	dataUsage  = "data-uses"   // its Usage
	dataPlan   = "data-plan"   // the plan
	dataPage   = "data-page"   // what the page's script needs beside
)

// pageData is what the page's script needs beside the report.
type pageData struct {
	Maps []mapData `json:"maps"`
	// Changes are the maps before and after a plan, by turns.
	Changes []mapData `json:"changes,omitempty"`
	// Severities are the names of the severities, by their number.
	Severities []string `json:"severities"`
	// Messages and Commands are those of findings that are not shown as text, by
	// their place in the report; empty for the others. The first command may be an
	// instruction, which the others carry out.
	Messages []string   `json:"messages"`
	Commands [][]string `json:"commands"`
	Subjects []string   `json:"subjects"`
}

// dataElement begins an element that holds data. A script of such a type is never
// run; what it holds is packed, so that no text of it is ever taken for markup.
func dataElement(id string) string { return `<script type="text/plain" id="` + id + `">` }

const dataElementEnd = "</script>"

// embedAll makes the elements of the page's data.
func embedAll(r *audit.Report, o Options, c *content) ([]template.HTML, error) {
	page := pageData{Maps: []mapData{}, Severities: make([]string, len(state.Severities)+1)}
	for _, s := range state.Severities {
		page.Severities[s] = s.String()
	}
	for i := range c.Maps {
		page.Maps = append(page.Maps, newMapData(c.Maps[i].Name, &c.Maps[i].Drawing))
	}
	if c.Plan != nil {
		for i := range c.Plan.Maps {
			m := &c.Plan.Maps[i]
			after := newMapData(m.Name, &m.After)
			for j := range m.After.pool.Cells {
				x := &m.After.pool.Cells[j]
				after.InUse, after.Available = append(after.InUse, x.InUse), append(after.Available, x.Available)
			}
			page.Changes = append(page.Changes, newMapData(m.Name, &m.Before), after)
		}
	}
	explained := view.Explained(r.Diagnoses...)
	for _, g := range view.Groups(r.Findings) {
		for n := range g {
			var h finding
			if n >= shownFindings {
				h = newFinding(&g[n], explained, o)
			}
			page.Messages, page.Commands, page.Subjects = append(page.Messages, h.Message), append(page.Commands, h.Commands), append(page.Subjects, h.Subject)
		}
	}
	level := gzip.BestCompression
	if o.Live { // made again for each look
		level = gzip.BestSpeed
	}
	var out []template.HTML
	for _, part := range []struct {
		id    string
		value any
		is    bool
	}{{dataReport, r, true}, {dataPage, page, true}, {dataPlan, o.Plan, o.Plan != nil}, {dataUsage, r.Usage, r.Usage != nil}} {
		if !part.is {
			continue
		}
		packed, err := pack(part.value, level)
		if err != nil {
			return nil, err
		}
		out = append(out, template.HTML(dataElement(part.id)+packed+dataElementEnd)) //nolint:gosec // base64
	}
	return out, nil
}

// pack writes a value as JSON, compressed, in characters that mean nothing in a
// page.
func pack(v any, level int) (string, error) {
	var buf bytes.Buffer
	text := base64.NewEncoder(base64.StdEncoding, &buf)
	packed, err := gzip.NewWriterLevel(text, level)
	if err != nil {
		return "", fmt.Errorf("compressing: %w", err)
	}
	e := json.NewEncoder(packed)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", fmt.Errorf("writing JSON: %w", err)
	}
	if err := packed.Close(); err != nil {
		return "", fmt.Errorf("compressing: %w", err)
	}
	if err := text.Close(); err != nil {
		return "", fmt.Errorf("writing base64: %w", err)
	}
	return buf.String(), nil
}

// unpack reads what pack wrote.
func unpack(text []byte, v any) error {
	packed, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(bytes.TrimSpace(text))))
	if err != nil {
		return fmt.Errorf("decompressing: %w", err)
	}
	data, err := io.ReadAll(packed)
	if err != nil {
		return fmt.Errorf("decompressing: %w", err)
	}
	return json.Unmarshal(data, v)
}

// Mark is what a page begins with, by which it is known.
const Mark = `<!DOCTYPE html>`

// Is reports whether a text begins as a page does.
func Is(head []byte) bool {
	head = bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\ufeff")), " \t\r\n")
	return len(head) >= len(Mark) && bytes.EqualFold(head[:len(Mark)], []byte(Mark))
}

// Read reads the report out of a page that [Write] wrote, with its Usage,
// and the plan, nil if there is none.
func Read(page []byte) (*audit.Report, *repair.Plan, error) {
	r := new(audit.Report)
	found, err := readData(page, dataReport, r)
	if err != nil {
		return nil, nil, err
	}
	if !found {
		return nil, nil, fmt.Errorf("the page holds no report of one cluster: it is of several (of which -o json is read back), not written by calico-audit, or cut off")
	}
	if _, err = readData(page, dataUsage, &r.Usage); err != nil {
		return nil, nil, err
	}
	plan := new(repair.Plan)
	if found, err = readData(page, dataPlan, plan); err != nil || !found {
		return r, nil, err
	}
	return r, plan, nil
}

// readData reads the data of one element. Nothing else in the page can look like
// the element's tag: all other text in it is escaped.
func readData(page []byte, id string, v any) (bool, error) {
	_, rest, found := bytes.Cut(page, []byte(dataElement(id)))
	if !found {
		return false, nil
	}
	text, _, whole := bytes.Cut(rest, []byte(dataElementEnd))
	if !whole {
		return false, fmt.Errorf("the page was cut off in its data")
	}
	if err := unpack(text, v); err != nil {
		return false, fmt.Errorf("reading the page's data: %w", err)
	}
	return true, nil
}
