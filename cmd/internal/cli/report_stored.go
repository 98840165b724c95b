package cli

import (
	"os"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/cmd/internal/view/page"
)

// storedReport returns the report that the one file of -f holds, as -o json, yaml
// or html wrote it; nil if the source is anything else. It is shown as it was made:
// only what other checks found, and what is muted, may be left out.
func (r *reportCommand) storedReport(checks []*audit.Check) (*audit.Report, error) {
	if len(r.sources.files) != 1 || r.sources.files[0] == "-" {
		return nil, nil // no report, and no error
	}
	path := r.sources.files[0]
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return nil, nil // whoever reads it next tells why it cannot be read
	}
	text, head, done, err := openText(path, nil)
	if err != nil {
		return nil, usagef("reading %s: %w", path, err)
	}
	defer done()
	if !page.Is(head) && !isReport(identity(head)) {
		return nil, nil // no report, and no error
	}
	switch {
	case r.sources.at != "":
		return nil, usagef("--at goes with files of objects: %s is a report, which tells its time", path)
	case len(r.hosts.changed()) > 0:
		return nil, usagef("--%s is for making a report: %s is one already", r.hosts.changed()[0].Name, path)
	case len(r.journals) > 0:
		return nil, usagef("--journal is for making a report: %s is one already", path)
	case len(r.pools)+len(r.nodes) > 0:
		return nil, usagef("--pool and --node are for making a report: %s is one already, and does not tell of each finding which pools and nodes it concerns", path)
	}
	rep, err := decodeReport(path, text)
	if err == nil && len(r.checks) > 0 {
		rep.Keep(checks)
	}
	return rep, err
}
