package files

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/alias"
)

// savedInfo is the SnapshotInfo object, the first of a saved snapshot.
type savedInfo struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// TakenAt is the reference time for ages.
	TakenAt string `json:"takenAt,omitempty"`
	// Datastore is the source of the objects.
	Datastore      string `json:"datastore"`
	APIGroup       string `json:"apiGroup,omitempty"`
	APIGroupReason string `json:"apiGroupReason,omitempty"`
	// Anonymized is true if names were replaced.
	Anonymized bool `json:"anonymized,omitempty"`
	// Counts are the numbers of objects that follow, for each resource with objects.
	Counts map[blocks.Resource]int `json:"counts"`
	// Resources were read completely, even those without objects.
	Resources []blocks.Resource `json:"resources"`
	// Gaps are resources that were not read completely.
	Gaps []blocks.Gap `json:"gaps,omitempty"`
}

// savedEnd is the SnapshotEnd object, the last of a saved snapshot.
type savedEnd struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// TakenAt equals that of the SnapshotInfo.
	TakenAt string `json:"takenAt,omitempty"`
	// Objects is the number of objects in between.
	Objects int `json:"objects"`
}

// info returns the SnapshotInfo of a snapshot.
func (r *Recorder) info(s *blocks.Snapshot, n *alias.Aliases) []byte {
	c := &s.Cluster
	info := savedInfo{
		APIVersion: blocks.APIVersion, Kind: infoKind, Datastore: c.Datastore, APIGroup: c.APIGroup, APIGroupReason: c.APIGroupReason,
		TakenAt: savedTime(s), Anonymized: n != nil, Counts: map[blocks.Resource]int{}, Resources: r.readWholly(s),
	}
	for res, spool := range r.spools {
		if n := spool.count + spool.paged; n > 0 {
			info.Counts[res] = n
		}
	}
	for _, g := range s.Gaps {
		if !g.Whole() && !g.NotRecorded || foundInObject(g) {
			continue
		}
		if g.NotRecorded {
			g.Reason = g.String()
		}
		if n != nil {
			g.Reason = plainReason(g.Reason)
		}
		info.Gaps = append(info.Gaps, blocks.Gap{Resource: g.Resource, Reason: g.Reason, Read: g.Read})
	}
	out, _ := json.Marshal(info) // strings always marshal
	return out
}

// end returns the SnapshotEnd of a snapshot.
func (r *Recorder) end(s *blocks.Snapshot, objects int) []byte {
	out, _ := json.Marshal(savedEnd{APIVersion: blocks.APIVersion, Kind: endKind, TakenAt: savedTime(s), Objects: objects})
	return out
}

func savedTime(s *blocks.Snapshot) string {
	if s.Cluster.TakenAt.IsZero() {
		return ""
	}
	return s.Cluster.TakenAt.UTC().Format(time.RFC3339Nano)
}

// foundInObject reports whether a gap of a whole resource comes from its only object, so
// that reading the object finds it again.
func foundInObject(g blocks.Gap) bool { return g.Field != "" || strings.HasPrefix(g.Reason, "object ") }

// plainReasons begin reasons that contain only names of resources.
var plainReasons = []string{"forbidden: ", "not served: ", "unauthorized: ", "expired: ", "no Node ", "no Pod ", "no IPPool ", "no IPAMBlock ", "no BlockAffinity ", "no IPAMHandle ", "no IPAMConfig ", "no Namespace ", "no BGP"}

// plainReason removes error texts from a gap's reason, which may contain the cluster's
// address.
func plainReason(reason string) string {
	if strings.HasPrefix(reason, cutOffReason) {
		return cutOffReason + ": the file that it was read from is incomplete"
	}
	head, rest := "", reason
	if strings.HasPrefix(reason, "list broke off after ") {
		if i := strings.Index(reason, ": "); i >= 0 {
			head, rest = reason[:i+2], reason[i+2:]
		}
	}
	for _, p := range plainReasons {
		if strings.HasPrefix(rest, p) {
			return reason
		}
	}
	return head + "it could not be read"
}

// cutOffReason begins the reason of every gap from a truncated file.
const cutOffReason = "cut off"
