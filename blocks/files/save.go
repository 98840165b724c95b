package files

import (
	"slices"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/alias"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// SaveOptions are options for saving a snapshot.
type SaveOptions struct {
	// Anonymize replaces names of nodes, pods, namespaces, pools, handles and other
	// objects, the cluster's GUID, UIDs, label keys and values, addresses of nodes and BGP
	// peers, and AS numbers other than Calico's default. Addresses of pools, CIDRs, times
	// and versions stay. Calico's objects are reduced to the fields that an audit reads.
	Anonymize bool
}

// Save calls emit for each object of a saved snapshot, as JSON on one line. The first is a
// SnapshotInfo: when and where s was read, its gaps, and the number of objects of each
// kind. The recorded objects follow. The last is a SnapshotEnd, which proves to readers
// that no object was lost. s must be the snapshot of the recorded objects. [ReadFiles]
// reads the emitted objects as the same snapshot.
//
// The bytes are only valid during the call. The names are nil unless o.Anonymize is set.
func (r *Recorder) Save(s *blocks.Snapshot, o SaveOptions, emit func(object []byte) error) (alias.Names, error) {
	var n *alias.Aliases
	if o.Anonymize {
		n = alias.New()
		if err := r.eachSaved(n, func([]byte) error { return nil }); err != nil {
			return nil, err
		}
		n.EndCollecting()
	}
	if err := emit(r.info(s, n)); err != nil {
		return nil, err
	}
	objects := 0
	if err := r.eachSaved(n, func(object []byte) error {
		objects++
		return emit(object)
	}); err != nil {
		return nil, err
	}
	if err := emit(r.end(s, objects)); err != nil || n == nil {
		return nil, err
	}
	return n.Table(), nil
}

func (r *Recorder) eachSaved(n *alias.Aliases, emit func(object []byte) error) error {
	var out []byte
	for _, res := range blocks.Resources {
		s := r.spools[res]
		if err := s.each(func(line []byte) error {
			if n == nil {
				return emit(line)
			}
			_, version := kindAndVersion(line)
			n.Claimant = decode.Claimant(line)
			out = s.kind.AppendSaved(out[:0], version, decode.Object{Text: line}, n)
			return emit(out)
		}); err != nil {
			return err
		}
	}
	return nil
}

// readWholly returns the resources that were read completely, in order.
func (r *Recorder) readWholly(s *blocks.Snapshot) []blocks.Resource {
	out := []blocks.Resource{}
	for _, res := range blocks.Resources {
		whole := s.Cluster.Live || r.whole[res]
		if slices.Contains(blocks.VMKinds, res) {
			whole = s.VMsKnown // KubeVirt may not be served, or not be permitted
		}
		if _, missing := s.Missing(res); !missing && whole {
			out = append(out, res)
		}
	}
	return slices.Clip(out)
}
