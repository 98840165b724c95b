package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
	"github.com/calico-audit/calico-audit/repair/datastore"
	"github.com/calico-audit/calico-audit/repair/datastore/etcd"
	"github.com/calico-audit/calico-audit/repair/planner"
	"github.com/calico-audit/calico-audit/repair/workloads"
)

// target is a cluster to write to.
type target struct {
	cfg    *rest.Config // nil if there is no Kubernetes
	group  string
	reader *repairReader
	// etcd is Calico's own; nil if its objects are in Kubernetes. disconnect ends its connection.
	etcd       *etcd.Store
	disconnect func() error
}

// openTarget connects to the cluster of the flags, whose Calico objects must be in the
// given API group; empty for its own etcd. hosts may be nil.
func openTarget(ctx context.Context, s *source.Flags, hosts *source.HostFlags, group string, streams genericiooptions.IOStreams, show func(string)) (*target, error) {
	from, err := s.Open(streams, show)
	if err != nil {
		return nil, err
	}
	t := &target{group: group, reader: &repairReader{Reader: from, group: group}}
	t.reader.single, _ = from.(refresher)
	own, inEtcd := from.(*source.Etcd)
	if inEtcd {
		if t.etcd, err = etcd.Open(ctx, own.Client()); err != nil {
			return nil, exit.Unread(err)
		}
		t.disconnect = own.Client().Close
	}
	if !inEtcd || own.Joined() {
		if t.cfg, err = s.RESTConfig(streams); err != nil {
			return nil, err
		}
	}
	if hosts != nil {
		if t.reader.Reader, err = hosts.Wrap(from, show); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// refresher reads single objects again.
type refresher interface {
	Refresh(ctx context.Context, prev *blocks.Snapshot, refs []blocks.Ref) (*blocks.Snapshot, error)
}

// repairReader reads a cluster for the engine. A full read includes host views, if
// requested. A read of single objects reuses host views while they are recent.
type repairReader struct {
	source.Reader
	single refresher
	group  string
}

// Read reads everything. It is an error if Calico's API group has changed since the plan
// was made, because Calico would not see the writes.
func (r *repairReader) Read(ctx context.Context) (*blocks.Snapshot, error) {
	s, err := r.Reader.Read(ctx)
	if err == nil && s.Cluster.APIGroup != r.group {
		err = fmt.Errorf("the objects of Calico were in %s when the plan was made, and are in %s now: make a new plan", cmp.Or(r.group, "its own etcd"), cmp.Or(s.Cluster.APIGroup, "its own etcd"))
	}
	return s, err
}

// Refresh reads single objects again.
func (r *repairReader) Refresh(ctx context.Context, prev *blocks.Snapshot, refs []blocks.Ref) (*blocks.Snapshot, error) {
	s, err := r.single.Refresh(ctx, prev, refs)
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
// cordons nodes; nil if there is no Kubernetes. Both record their writes in a journal.
func (t *target) open(journal repair.Recorder) (*datastore.Writer, repair.Workloads, error) {
	writer, err := t.writer(journal)
	if err != nil || t.cfg == nil {
		return writer, nil, err
	}
	pods, err := workloads.New(t.cfg, journal)
	if err != nil {
		return nil, nil, notWritten(err)
	}
	return writer, pods, nil
}

func (t *target) writer(journal repair.Recorder) (*datastore.Writer, error) {
	options := datastore.Options{Recorder: journal}
	if t.etcd == nil {
		writer, err := datastore.New(t.cfg, t.group, options)
		if err != nil {
			return nil, notWritten(err)
		}
		return writer, nil
	}
	if t.cfg == nil {
		return datastore.NewWriter(t.etcd, nil, options), nil
	}
	others, err := datastore.NewKubernetes(t.cfg, "")
	if err != nil {
		return nil, notWritten(err)
	}
	return datastore.NewWriter(t.etcd, others, options), nil
}

// end ends a run.
func (t *target) end(ctx context.Context, res *repair.Result) error {
	if t.etcd == nil {
		return nil
	}
	if err := t.etcd.End(context.WithoutCancel(ctx), halfDone(res)); err != nil {
		return fmt.Errorf("deleting the record of the run: %w", err)
	}
	return nil
}

// halfDone reports whether a run may have left a step half-done. The record of the run then stays,
// so that the next report knows which run it was.
func halfDone(res *repair.Result) bool {
	return slices.ContainsFunc(res.Outcomes, func(o repair.Outcome) bool { return o.Status == repair.Failed || o.HalfDone })
}

// close ends the connection.
func (t *target) close() {
	if t.disconnect != nil {
		_ = t.disconnect() // all requests have ended
	}
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
	w, err := t.writer(nil)
	if err != nil {
		return err
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
