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

// readers are the ClusterRoles under examples/kubernetes that allow to list what an audit
// reads.
var readers = []string{"rbac/clusterrole.yaml", "rbac-exporter/clusterrole.yaml", "repair-cronjob/clusterrole.yaml"}

// guidePath is where users read how to dump a cluster.
const guidePath = "cmd/GUIDE.md"

// rights returns the ClusterRoles of [readers] and the guide, in which the lists of
// resources are those of the kinds that an audit reads.
func rights() ([]document, error) {
	groups := map[string]string{} // the lines of a rule's resources
	var dumped []string
	for _, r := range blocks.Resources {
		k := decode.KindOf(r)
		if k.Foreign == "" && !k.Namespaced {
			dumped = append(dumped, k.Plural(decode.GroupCRD))
		}
		for _, version := range slices.Compact([]string{k.Version(decode.GroupCRD), k.Version(decode.GroupNative)}) {
			group, _, grouped := strings.Cut(version, "/")
			if !grouped {
				group = ""
			}
			groups[group] += "  - " + k.Plural(version) + "\n"
		}
	}
	var out []document
	for _, role := range readers {
		d := document{path: "examples/kubernetes/" + role}
		for _, group := range slices.Sorted(maps.Keys(groups)) {
			list := `(?m)^(- apiGroups: \["` + regexp.QuoteMeta(group) + `"\]\n  resources:\n)(?:  - .*\n)+(  verbs: \["list")`
			if err := d.fill(list, groups[group], fmt.Sprintf(`rule for apiGroups: [%q] with a list of resources and verbs: ["list"…]: add one`, group)); err != nil {
				return nil, err
			}
		}
		out = append(out, d)
	}
	guide := document{path: guidePath}
	err := guide.fill(`(?m)^(kubectl get )\S+( -o yaml --show-managed-fields > )`, strings.Join(dumped, ","), "command that dumps a cluster")
	return append(out, guide), err
}

// fill puts a text between the two groups of a pattern in the document, which is read if
// it has no text yet. It is an error if what the pattern is for is not there.
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
