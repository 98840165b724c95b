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

// The IDs of the page's data elements.
const (
	dataReport = "data-report" // the report
	dataUsage  = "data-uses"   // its Usage
	dataPlan   = "data-plan"   // the plan
	dataPage   = "data-page"   // other data for the page's script
)

// pageData is the data of the page's script in addition to the report.
type pageData struct {
	Maps []mapData `json:"maps"`
	// Changes are the maps before and after a plan, alternating.
	Changes []mapData `json:"changes,omitempty"`
	// Severities are the names of the severities, by number.
	Severities []string `json:"severities"`
	// Signs are those of [view.NodeSigns], of nodes whose numbers are not all exact.
	Signs map[string][3]string `json:"signs,omitempty"`
	// Messages and Commands belong to the findings that are not rendered as text, by index
	// in the report; they are empty for the others. The first command may be an instruction
	// that the others carry out.
	Messages []string   `json:"messages"`
	Commands [][]string `json:"commands"`
	Subjects []string   `json:"subjects"`
}

// dataElement returns the start tag of a data element. Browsers never run scripts of this
// type. The content is base64, so it cannot contain markup.
func dataElement(id string) string { return `<script type="text/plain" id="` + id + `">` }

const dataElementEnd = "</script>"

// embedAll returns the data elements of the page.
func embedAll(r *audit.Report, o Options, c *content) ([]template.HTML, error) {
	page := pageData{Maps: []mapData{}, Severities: make([]string, len(state.Severities)+1)}
	for _, s := range state.Severities {
		page.Severities[s] = s.String()
	}
	for i := range r.Nodes {
		if signs := view.NodeSigns(r, &r.Nodes[i]); signs != [3]string{} {
			if page.Signs == nil {
				page.Signs = map[string][3]string{}
			}
			page.Signs[r.Nodes[i].Name] = signs
		}
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
	if o.Live { // rendered for each request
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

// pack writes a value as JSON, compressed and in base64.
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

// unpack decodes the output of pack.
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

// Mark is the beginning of every page.
const Mark = `<!DOCTYPE html>`

// Is reports whether a text begins like a page.
func Is(head []byte) bool {
	head = bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\ufeff")), " \t\r\n")
	return len(head) >= len(Mark) && bytes.EqualFold(head[:len(Mark)], []byte(Mark))
}

// Read extracts the report, with its Usage, and the plan from a page that [Write] wrote.
// The plan is nil if there is none.
func Read(page []byte) (*audit.Report, *repair.Plan, error) {
	r := new(audit.Report)
	found, err := readData(page, dataReport, r)
	if err != nil {
		return nil, nil, err
	}
	if !found {
		return nil, nil, fmt.Errorf("the page contains no report of one cluster: it is of several clusters (use -o json for these), not from calico-audit, or truncated")
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

// readData reads a data element. Its tag cannot occur elsewhere in the page, because all
// other text is escaped.
func readData(page []byte, id string, v any) (bool, error) {
	_, rest, found := bytes.Cut(page, []byte(dataElement(id)))
	if !found {
		return false, nil
	}
	text, _, whole := bytes.Cut(rest, []byte(dataElementEnd))
	if !whole {
		return false, fmt.Errorf("the page is truncated in its data")
	}
	if err := unpack(text, v); err != nil {
		return false, fmt.Errorf("reading the page's data: %w", err)
	}
	return true, nil
}
