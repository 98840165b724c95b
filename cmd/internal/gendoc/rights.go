package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// readsPath is the template with the rules of the ClusterRoles for reading a cluster.
const readsPath = chartPath + "/templates/_reads.tpl"

// guidePath is the guide on dumping a cluster.
const guidePath = "cmd/GUIDE.md"

// rights returns the ClusterRoles' rules for reading and the guide, with updated lists of the
// resources that an audit reads.
func rights() ([]document, error) {
	groups := map[string]string{} // resource lines of a rule, by API group
	dumped := map[bool][]string{} // Kubernetes' own, or not
	for _, r := range blocks.Resources {
		k := decode.KindOf(r)
		if k.Foreign == "" && !k.Optional || k.OfCalico() {
			dumped[k.Core] = append(dumped[k.Core], k.Plural(decode.GroupCRD))
		}
		for _, version := range slices.Compact([]string{k.Version(decode.GroupCRD), k.Version(decode.GroupNative)}) {
			group, _, grouped := strings.Cut(version, "/")
			if !grouped {
				group = ""
			}
			groups[group] += "  - " + k.Plural(version) + "\n"
		}
	}
	roles := document{path: readsPath}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		list := `(?m)^(- apiGroups: \["` + regexp.QuoteMeta(group) + `"\]\n  resources:\n)(?:  - .*\n)+(  verbs: )`
		if err := roles.fill(list, groups[group], fmt.Sprintf(`rule for apiGroups: [%q] with a list of resources and verbs: add one`, group)); err != nil {
			return nil, err
		}
	}
	guide := document{path: guidePath}
	for core, kinds := range dumped {
		path := map[bool]string{true: "/api/v1", false: "/apis/" + decode.GroupCRD}[core]
		if err := guide.fill(`(?m)^(for r in )[^;]*(; do kubectl get --raw `+path+`/)`, strings.Join(kinds, " "), "command that dumps a cluster"); err != nil {
			return nil, err
		}
	}
	return []document{roles, guide}, nil
}

// fill replaces the text between the two groups of a pattern in the document, reading the
// document first if needed. It is an error if the pattern does not match.
func (d *document) fill(pattern, text, what string) (err error) {
	if d.text == nil {
		if d.text, err = os.ReadFile(filepath.Join(root, d.path)); err != nil {
			return fmt.Errorf("reading what an audit may list: %w", err)
		}
	}
	place := regexp.MustCompile(pattern)
	if !place.Match(d.text) {
		return fmt.Errorf("reading %s: there is no %s", d.path, what)
	}
	d.text = place.ReplaceAll(d.text, []byte("${1}"+text+"${2}"))
	return nil
}
