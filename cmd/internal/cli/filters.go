package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
)

// checkNames reports whether the pools and nodes of --pool and --node are there.
// A name that is not is a mistake in the command line if the report is complete,
// and a warning if not: what was not read may hold it.
func checkNames(r *audit.Report, pools, nodes []string) (warnings []string, err error) {
	havePools := make([]string, len(r.Pools))
	for i := range r.Pools {
		havePools[i] = r.Pools[i].Name
	}
	haveNodes := make([]string, len(r.Nodes))
	for i := range r.Nodes {
		haveNodes[i] = r.Nodes[i].Name
	}
	for _, x := range []struct {
		what         string
		wanted, have []string
	}{{"pool", pools, havePools}, {"node", nodes, haveNodes}} {
		for _, name := range x.wanted {
			if slices.Contains(x.have, name) {
				continue
			}
			if r.Complete {
				return nil, usagef("no %s %q%s", x.what, name, suggestion(name, x.have))
			}
			warnings = append(warnings, fmt.Sprintf("no %s %q was seen; the report is incomplete", x.what, name))
		}
	}
	return warnings, nil
}

// maxSuggestions is how many names a suggestion lists.
const maxSuggestions = 5

// suggestion names what is nearest to a name that does not exist.
func suggestion(name string, have []string) string {
	if len(have) == 0 {
		return ": there is none"
	}
	var near []string
	for _, h := range have {
		if strings.Contains(h, name) || strings.Contains(name, h) || distance(strings.ToLower(name), strings.ToLower(h)) <= 2 {
			near = append(near, h)
		}
	}
	intro := "; did you mean "
	if len(near) == 0 {
		near, intro = have, "; there is "
	}
	near = slices.Sorted(slices.Values(near))
	if len(near) > maxSuggestions {
		near = append(near[:maxSuggestions:maxSuggestions], "…")
	}
	return intro + fmt.Sprintf("%q", near)
}

// distance counts the insertions, deletions and substitutions between two words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
