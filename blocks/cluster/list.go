package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// A lister reads all objects of one kind, page by page.
type lister struct {
	client   *apiClient
	kind     *decode.Kind
	group    string // API group of Calico's kinds
	pageSize int64
	// whole enables reading a list in one response if it is longer than a first page of at
	// most [shortPage] objects.
	whole    bool
	strings  *decode.SharedStrings
	progress func(Progress) // called after each page; may be nil
	record   decode.Spool   // may be nil
	// podLabels enables decoding of pods' labels.
	podLabels bool
	amend     func([]byte) []byte // may be nil
	// namespace, selector (a field selector) and labels narrow the list; empty means all.
	namespace, selector, labels string

	out      *decode.Objects
	failed   error  // why the list is incomplete
	cause    error  // the error behind failed
	revision string // resourceVersion of the first page
	count    int    // objects read
	next     string
	restarts int
	total    int // number of objects, while they are read in one response
}

// maxGrow limits the preallocation that the server's count may cause.
const maxGrow = 1 << 20

// shortPage is the size of the first page if long lists are read whole. The page only
// reveals whether a list is long, and its objects are read again: with 1,000 objects, the
// page would add a fifth to the work for 5,000 blocks.
const shortPage = 50

// run reads the list. Failures become gaps; run returns only errors of the context.
func (l *lister) run(ctx context.Context) error {
	l.out = decode.NewObjects(l.kind)
	for {
		meta, err := l.page(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if codeOf(err) == http.StatusGone && l.next != "" && l.restarts < 2 {
			// The continue token has expired because etcd was compacted. The third try
			// reads all objects in one page.
			l.restarts++
			l.restart()
			continue
		}
		if err == nil && meta.Next != "" && meta.Next == l.next {
			err = errors.New("the API server gives the same continue token again")
		}
		if err == nil && meta.Next == "" && meta.Remaining > 0 { // a proxy removed the token
			err = fmt.Errorf("%d objects remain, and the answer has no continue token", meta.Remaining)
		}
		if err != nil {
			l.failed, l.cause = errors.New(l.reason(err)), err
			l.out.Gaps = append(l.out.Gaps, blocks.Gap{Resource: l.kind.Resource, Reason: l.failed.Error(), Denied: errors.Is(err, blocks.ErrDenied)})
			return nil
		}
		if l.whole && meta.Next != "" {
			if l.all(ctx, l.count+meta.Remaining) {
				return nil
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			l.whole = false
			l.restart()
			continue
		}
		if l.next == "" {
			l.out.Grow(min(meta.Remaining, maxGrow))
			l.revision = meta.Revision
		}
		l.next = meta.Next
		total := l.count + meta.Remaining
		if l.next != "" && meta.Remaining == 0 {
			total = 0
		}
		if l.tell(total); l.next == "" {
			return nil
		}
	}
}

// restart discards all objects, to start again.
func (l *lister) restart() {
	l.out, l.count, l.next = decode.NewObjects(l.kind), 0, ""
	if l.record != nil {
		l.record.Restart()
	}
}

// all reads a list whose first page revealed its length, in one response instead of pages.
// The response is as fresh as pages: a list without resourceVersion reflects the newest
// state, from cache or datastore. If it fails for any reason, such as the server's limit of
// 60 seconds on a slow connection, all returns false. The caller then reads pages, each
// with its own time limit.
func (l *lister) all(ctx context.Context, total int) bool {
	l.restart()
	l.out.Grow(min(total, maxGrow))
	l.total = total
	defer func() { l.total = 0 }()
	var meta decode.ListMeta
	err := l.client.once(ctx, l.path(), l.query(), l.kind.Accept("List"), func(body io.Reader) (err error) {
		meta, err = l.decode(body)
		return err
	})
	if errors.Is(err, errStalled) {
		l.client.markUnavailable(ctx, err)
	}
	if err != nil || meta.Next != "" || meta.Remaining > 0 {
		return false
	}
	l.revision = meta.Revision
	l.tell(l.count)
	return true
}

// tell reports progress.
func (l *lister) tell(total int) {
	if l.progress != nil {
		l.progress(Progress{Resource: l.kind.Resource, Done: l.count, Total: total})
	}
}

// query returns the selectors of the list.
func (l *lister) query() url.Values {
	query := url.Values{}
	if l.selector != "" {
		query.Set("fieldSelector", l.selector)
	}
	if l.labels != "" {
		query.Set("labelSelector", l.labels)
	}
	return query
}

func (l *lister) page(ctx context.Context) (decode.ListMeta, error) {
	query := l.query()
	if l.restarts < 2 {
		limit := l.pageSize
		if l.whole {
			limit = min(limit, shortPage)
		}
		query.Set("limit", strconv.FormatInt(limit, 10))
	}
	if l.next != "" {
		query.Set("continue", l.next)
	}
	var meta decode.ListMeta
	read, gaps, count := l.out.Len(), len(l.out.Gaps), l.count
	if l.record != nil {
		l.record.Commit()
	}
	err := l.client.get(ctx, l.path(), query, l.kind.Accept("List"), func(body io.Reader) error {
		// A retried page replaces the first attempt. If all attempts break off, the objects
		// of the last are kept.
		l.out.Truncate(read)
		l.out.Gaps = l.out.Gaps[:gaps]
		l.count = count
		if l.record != nil {
			l.record.Drop()
		}
		var err error
		meta, err = l.decode(body)
		return err
	})
	return meta, err
}

func (l *lister) path() string { return l.kind.Path(l.group, l.namespace) }

func (l *lister) version() string { return l.kind.Version(l.group) }

func (l *lister) decode(body io.Reader) (decode.ListMeta, error) {
	d := &decode.Decoder{Out: l.out, Strings: l.strings, Native: l.group == decode.GroupNative, PodLabels: l.podLabels, Amend: l.amend}
	return d.Page(body, func(o decode.Object) {
		if l.count++; l.total > 0 && l.count%1000 == 0 {
			l.tell(l.total)
		}
		if l.record != nil {
			l.record.Object(l.version(), o)
		}
	})
}

// reason explains why a list is incomplete.
func (l *lister) reason(err error) string {
	name := l.name()
	var why string
	switch codeOf(err) {
	case http.StatusForbidden:
		why = blocks.ForbiddenReason + name
	case http.StatusUnauthorized:
		why = "unauthorized: the API server does not accept the credentials"
	case http.StatusNotFound:
		why = "not served: the API server has no " + name
	default:
		why = err.Error()
	}
	if l.count > 0 {
		return fmt.Sprintf("list broke off after %d objects: %s", l.count, why)
	}
	return why
}

// name returns the RBAC name of the kind.
func (l *lister) name() string {
	resource, group := l.kind.RBAC(l.group)
	return strings.TrimSuffix(resource+"."+group, ".")
}
