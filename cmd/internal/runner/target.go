package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
	"github.com/calico-audit/calico-audit/repair/datastore"
	"github.com/calico-audit/calico-audit/repair/planner"
	"github.com/calico-audit/calico-audit/repair/workloads"
)

// target is a cluster to write to.
type target struct {
	cfg    *rest.Config
	group  string
	reader *repairReader
}

// openTarget connects to the cluster of the flags, whose Calico objects must be in the
// given API group. hosts may be nil.
func openTarget(s *source.Flags, hosts *source.HostFlags, group string, streams genericiooptions.IOStreams, show func(string)) (*target, error) {
	cfg, err := s.RESTConfig(streams)
	if err != nil {
		return nil, err
	}
	live, err := s.OpenCluster(cfg, show)
	if err != nil {
		return nil, err
	}
	var from source.Reader = live
	if hosts != nil {
		if from, err = hosts.Wrap(from, show); err != nil {
			return nil, err
		}
	}
	return &target{cfg: cfg, group: group, reader: &repairReader{Reader: from, k: live.Kubernetes, group: group}}, nil
}

// repairReader reads a cluster for the engine. A full read includes host views, if
// requested. A read of single objects reuses host views while they are recent.
type repairReader struct {
	source.Reader
	k     *cluster.Kubernetes
	group string
}

// Read reads everything. It is an error if Calico's API group has changed since the plan
// was made, because Calico would not see the writes.
func (r *repairReader) Read(ctx context.Context) (*blocks.Snapshot, error) {
	s, err := r.Reader.Read(ctx)
	if err == nil && s.Cluster.APIGroup != r.group {
		err = fmt.Errorf("the API group of Calico's objects was %s when the plan was made, and is %s now: make a new plan", r.group, s.Cluster.APIGroup)
	}
	return s, err
}

// Refresh reads single objects again.
func (r *repairReader) Refresh(ctx context.Context, prev *blocks.Snapshot, refs []blocks.Ref) (*blocks.Snapshot, error) {
	s, err := r.k.Refresh(ctx, prev, refs)
	if err != nil {
		return nil, err
	}
	s.Hosts = prev.Hosts
	if hosts, ok := r.Reader.(*source.HostReader); ok {
		return s, hosts.Renew(ctx, prev, s)
	}
	return s, nil
}

// open returns the writer for the cluster's objects, and the client that evicts pods and
// cordons nodes. Both record their writes in a journal.
func (t *target) open(journal repair.Recorder) (*datastore.Kubernetes, *workloads.Client, error) {
	writer, err := datastore.New(t.cfg, t.group, datastore.Options{Recorder: journal})
	if err != nil {
		return nil, nil, notWritten(err)
	}
	pods, err := workloads.New(t.cfg, journal)
	if err != nil {
		return nil, nil, notWritten(err)
	}
	return writer, pods, nil
}

// notWritten returns the error for a run that wrote nothing.
func notWritten(err error) error {
	if errors.Is(err, apply.ErrNoPlan) {
		return exit.Usage(err)
	}
	return exit.Unfinished(fmt.Errorf("nothing was written: %w", err))
}

// check returns an error if a right for the steps, or for their undo, is missing.
func (t *target) check(ctx context.Context, steps []repair.Step, undo bool) error {
	w, err := datastore.New(t.cfg, t.group, datastore.Options{})
	if err != nil {
		return notWritten(err)
	}
	var kinds []*repair.StepKind
	for i := range steps {
		if k := planner.KindOf(steps[i].Kind); k != nil {
			kinds = append(kinds, k)
		}
	}
	missing, err := w.MissingRights(ctx, kinds, undo)
	if err != nil {
		return notWritten(err)
	}
	if len(missing) == 0 {
		return nil
	}
	var texts []string
	for _, m := range missing {
		texts = append(texts, m.String())
	}
	return exit.Unfinished(errors.New("nothing was written: missing rights:\n  " + strings.Join(texts, "\n  ")))
}
