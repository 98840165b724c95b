package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// A lister reads all objects of one kind, page by page.
type lister struct {
	client   *apiClient
	kind     *kind
	group    string // API group, for kinds that are not core
	pageSize int64
	strings  *sharedStrings
	progress func(Progress)
	record   Spool // nil records nothing
	// namespace and selector, a field selector, narrow the list; empty for all.
	namespace, selector string

	out      *objects
	failed   error  // why the list could not be read, or not to its end
	cause    error  // what made it fail
	revision string // resource version of the first page
	count    int    // objects read
	next     string
	restarts int
}

// maxGrow limits for how many objects room is made on the server's word.
const maxGrow = 1 << 20

// run reads the list. What cannot be read becomes gaps of the part; the error is
// the context's alone.
func (l *lister) run(ctx context.Context) error {
	l.out = newObjects(l.kind)
	for {
		meta, err := l.page(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if codeOf(err) == http.StatusGone && l.next != "" && l.restarts == 0 {
			// The continue token has expired: etcd was compacted in between.
			l.restarts++
			l.out, l.count, l.next = newObjects(l.kind), 0, ""
			if l.record != nil {
				l.record.Restart()
			}
			continue
		}
		if err == nil && meta.next != "" && meta.next == l.next {
			err = errors.New("the API server gives the same continue token again")
		}
		if err != nil {
			l.failed, l.cause = errors.New(l.reason(err)), err
			l.out.gaps = append(l.out.gaps, blocks.Gap{Resource: l.kind.resource, Reason: l.failed.Error()})
			return nil
		}
		if l.next == "" {
			l.out.grow(min(meta.remaining, maxGrow))
			l.revision = meta.revision
		}
		l.next = meta.next
		total := l.count + meta.remaining
		if l.next != "" && meta.remaining == 0 {
			total = 0
		}
		l.progress(Progress{Resource: l.kind.resource, Done: l.count, Total: total})
		if l.next == "" {
			return nil
		}
	}
}

// page reads the next page.
func (l *lister) page(ctx context.Context) (listMeta, error) {
	query := url.Values{"limit": {strconv.FormatInt(l.pageSize, 10)}}
	if l.next != "" {
		query.Set("continue", l.next)
	}
	if l.selector != "" {
		query.Set("fieldSelector", l.selector)
	}
	var meta listMeta
	read, gaps, count := l.out.len(), len(l.out.gaps), l.count
	if l.record != nil {
		l.record.Commit()
	}
	err := l.client.get(ctx, l.path(), query, l.kind.accept("List"), func(a answer) error {
		// Of a page that is read again, and of one that was cut off and is not,
		// what could be read last is kept.
		l.out.truncate(read)
		l.out.gaps = l.out.gaps[:gaps]
		l.count = count
		if l.record != nil {
			l.record.Drop()
		}
		var err error
		meta, err = l.decode(a)
		return err
	})
	return meta, err
}

func (l *lister) path() string {
	path := "/apis/" + l.version()
	if l.kind.core {
		path = "/api/v1"
	}
	if l.namespace != "" {
		path += "/namespaces/" + url.PathEscape(l.namespace)
	}
	return path + "/" + l.kind.plural(l.group)
}

// version is the API version of the objects.
func (l *lister) version() string { return l.kind.version(l.group) }

// decode reads the objects of a page.
func (l *lister) decode(a answer) (listMeta, error) {
	d := &decoder{out: l.out, strings: l.strings, native: l.group == groupNative}
	return d.page(a.body, func(object []byte, reduced bool) {
		l.count++
		if l.record != nil {
			l.record.Object(l.version(), object, reduced)
		}
	})
}

// reason says why a list could not be read, or not to its end.
func (l *lister) reason(err error) string {
	name := l.name()
	var why string
	switch codeOf(err) {
	case http.StatusForbidden:
		why = "forbidden: needs the right to list " + name
	case http.StatusUnauthorized:
		why = "unauthorized: the API server does not accept the credentials"
	case http.StatusNotFound:
		why = "not served: the API server has no " + name
	case http.StatusGone:
		why = "expired: the API server forgot the state of the list twice while it was read"
	default:
		why = err.Error()
	}
	if l.count > 0 {
		return fmt.Sprintf("list broke off after %d objects: %s", l.count, why)
	}
	return why
}

// name is what RBAC calls the kind.
func (l *lister) name() string {
	name := l.kind.plural(l.group)
	if l.kind.core {
		return name
	}
	group, _, _ := strings.Cut(l.version(), "/")
	return name + "." + group
}
