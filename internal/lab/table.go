package lab

import (
	"fmt"
	"strings"
)

// Table is a table in a document whose rows a test measures.
type Table struct {
	// Name identifies the table in the document, between <!-- measured: name --> and <!--
	// end -->.
	Name  string
	Heads []string
	Rows  [][]string
}

// String returns the table in Markdown, with columns padded to equal width.
func (t Table) String() string {
	widths := make([]int, len(t.Heads))
	for _, row := range append([][]string{t.Heads}, t.Rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	var b strings.Builder
	line := func(cells []string, fill string) {
		for i, cell := range cells {
			fmt.Fprintf(&b, "|%s%s%s%s", fill, cell, strings.Repeat(fill, widths[i]-len([]rune(cell))), fill)
		}
		b.WriteString("|\n")
	}
	line(t.Heads, " ")
	line(make([]string, len(t.Heads)), "-")
	for _, row := range t.Rows {
		line(row, " ")
	}
	return b.String()
}

// Put replaces the table with the same name in a document.
func (t Table) Put(document string) (string, error) {
	begin, end := fmt.Sprintf("<!-- measured: %s -->\n", t.Name), "<!-- end -->"
	before, rest, found := strings.Cut(document, begin)
	if !found {
		return "", fmt.Errorf("the document has no %q", strings.TrimSpace(begin))
	}
	_, after, found := strings.Cut(rest, end)
	if !found {
		return "", fmt.Errorf("the document has no %q after %q", end, strings.TrimSpace(begin))
	}
	return before + begin + "\n" + t.String() + "\n" + end + after, nil
}

// blackholeTable has one row per topology, with the measurements of IPv4 and, where it
// differs, IPv6.
func blackholeTable(rows map[string][]Row) Table {
	t := Table{Name: "borrowed addresses", Heads: []string{
		"How nodes learn routes", "Owner's kernel", "From a pod of the owner", "From the owner", "From the router", "From another node's pod",
		"Predicted", "Finding by topology", "With the owner's host view",
	}}
	for _, topology := range Topologies {
		measured := rows[topology.Name]
		if len(measured) == 0 {
			continue
		}
		var row []string
		for _, r := range measured {
			row = merge(row, r.cells())
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func (r Row) cells() []string {
	return []string{
		r.Topology, r.Kernel, arrives(r.FromPod), arrives(r.FromOwner), arrives(r.FromRouter), flows(r.FromThird, r.Split),
		r.Predicted.Outcome.String(), r.ByTopology, r.ByView,
	}
}

func arrives(yes bool) string {
	if yes {
		return "arrives"
	}
	return "lost"
}

// staleTable has one row for each state of the affinity. The keys of rows are indices in
// StaleTopologies, which has two entries per row of the table.
func staleTable(rows map[int][]StaleRow) Table {
	t := Table{Name: "stale affinities", Heads: []string{
		"How nodes learn routes", "The affinity is", "Its node's kernel", "From its node", "Announced",
		"From another node, owner's router ID lower", "The affinity's node's lower", "`affinity/not-owner`", "`route/stray-blackhole`, with its node's host view",
	}}
	for i := 0; i < len(rows); i += 2 {
		var row []string
		for family, r := range rows[i] {
			cells := []string{
				r.Topology, r.State, r.Kernel, arrives(r.FromNode), map[bool]string{true: "yes", false: "no"}[r.Announced],
				r.fromOther(), rows[i+1][family].fromOther(), r.NotOwner, r.ForeignBlackhole,
			}
			row = merge(row, cells)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// merge adds IPv6 cells to a row of IPv4 where they differ.
func merge(row, cells []string) []string {
	if row == nil {
		return cells
	}
	for i, cell := range cells {
		if row[i] != cell {
			row[i] += ", IPv6: " + cell
		}
	}
	return row
}

// flows describes whether packets arrive that may take several paths.
func flows(arrived, split bool) string {
	if split {
		return "some flows are lost"
	}
	return arrives(arrived)
}
