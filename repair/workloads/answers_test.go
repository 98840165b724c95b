package workloads_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/repair"
)

// status is the answer of an API server that refuses with a code.
func status(code int) string {
	reasons := map[int]string{http.StatusForbidden: "Forbidden", http.StatusNotFound: "NotFound", http.StatusConflict: "Conflict", http.StatusUnprocessableEntity: "Invalid", http.StatusTooManyRequests: "TooManyRequests"}
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"no"}`, reasons[code], code)
}

// TestEvictionAnswers: an eviction counts as made if the pod is gone or ending, whatever the answer
// was. It is tried again only if the pod was read and still runs.
func TestEvictionAnswers(t *testing.T) {
	const (
		runs    = `{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"shop","name":"web","uid":"u"}}`
		another = `{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"shop","name":"web","uid":"v"}}`
		ends    = `{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"shop","name":"web","uid":"u","deletionTimestamp":"2026-01-02T12:00:00Z"}}`
	)
	for name, c := range map[string]struct {
		before string // the pod as it is read first; "" if it is gone
		answer int
		after  string // as it is read from then on
		want   string
		sent   int
	}{
		"evicted":                         {runs, 201, runs, "done", 1},
		"gone before":                     {"", 201, "", "changed", 0},
		"another pod of the name":         {another, 201, another, "changed", 0},
		"ending before":                   {ends, 201, ends, "done", 0},
		"it may not be read":              {"forbidden", 201, "forbidden", "failed", 0},
		"gone when it is evicted":         {runs, 404, runs, "done", 1},
		"another when it is evicted":      {runs, 409, runs, "changed", 1},
		"a budget refuses":                {runs, 429, runs, "refused for now", 1},
		"it may not be evicted":           {runs, 403, runs, "refused", 1},
		"no answer, and it runs":          {runs, 500, runs, "failed", 5},
		"a late answer, and it runs":      {runs, 408, runs, "failed", 5},
		"no answer, and it ends":          {runs, 500, ends, "done", 1},
		"no answer, and it is gone":       {runs, 500, "", "done", 1},
		"no answer, and another's name":   {runs, 500, another, "done", 1},
		"no answer, and it is not read":   {runs, 500, "forbidden", "failed", 1},
		"no right to evict, and it is so": {runs, 405, runs, "refused", 1},
	} {
		m := &memory{}
		m.answer = func(r *http.Request) (int, string) {
			switch pod := map[bool]string{true: c.after, false: c.before}[len(m.wrote) > 0]; {
			case strings.HasSuffix(r.URL.Path, "/eviction"):
				return c.answer, status(c.answer)
			case !strings.Contains(r.URL.Path, "/pods/"):
				return 0, ""
			case pod == "":
				return http.StatusNotFound, status(http.StatusNotFound)
			case pod == "forbidden":
				return http.StatusForbidden, status(http.StatusForbidden)
			default:
				return http.StatusOK, pod
			}
		}
		err := m.client(t).Evict(t.Context(), "shop", "web", "u")
		if err != nil && !strings.Contains(err.Error(), "shop/web") {
			t.Errorf("%s: the error does not name the pod: %v", name, err)
		}
		got := "failed"
		var refused *repair.RefusedEvictionError
		switch {
		case err == nil:
			got = "done"
		case errors.Is(err, repair.ErrChanged):
			got = "changed"
		case errors.As(err, &refused) && refused.ForNow:
			got = "refused for now"
		case errors.As(err, &refused):
			got = "refused"
		}
		if got != c.want || len(m.wrote) != c.sent {
			t.Errorf("%s: %s (%v), sent %d; want %s, sent %d", name, got, err, len(m.wrote), c.want, c.sent)
		}
	}
}

// TestNothingUnrecorded: a pod is evicted, and a node cordoned, only if the journal has recorded
// it.
func TestNothingUnrecorded(t *testing.T) {
	m := &memory{node: `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","uid":"u","resourceVersion":"7"}}`}
	w := m.recording(t, &taken{err: errors.New("the disk is full")})
	for what, err := range map[string]error{"evicting": w.Evict(t.Context(), "shop", "web", "u"), "cordoning": w.Cordon(t.Context(), repair.ObjectRef{Name: "n1", UID: "u"}, "a b")} {
		if err == nil || !strings.Contains(err.Error(), "the disk is full") || len(m.wrote) > 0 {
			t.Errorf("%s: %v, wrote %v", what, err, m.wrote)
		}
	}
}

// TestCordonAnswers: if a heartbeat changes the node, the cordon is tried again on the new version,
// and is recorded once.
func TestCordonAnswers(t *testing.T) {
	for answer, c := range map[int]struct {
		times, sent int // how often that is the answer, and how often the cordon is sent
		ok          bool
	}{200: {0, 1, true}, 409: {2, 3, true}, 422: {1, 2, true}, 500: {1, 2, true}, 403: {1, 1, false}} {
		for _, forever := range []bool{false, true} {
			m, j, version := &memory{}, &taken{}, 7
			m.answer = func(r *http.Request) (int, string) {
				switch {
				case !strings.Contains(r.URL.Path, "/nodes/"):
				case r.Method == http.MethodGet:
					version++
					return http.StatusOK, fmt.Sprintf(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","uid":"u","resourceVersion":"%d","annotations":{"a":"b"}}}`, version)
				case forever && c.times > 0 || len(m.wrote) <= c.times:
					return answer, status(answer)
				}
				return 0, ""
			}
			sent, ok := c.sent, c.ok
			if forever && c.times > 0 && ok {
				sent, ok = 5, false
			}
			err := m.recording(t, j).Cordon(t.Context(), repair.ObjectRef{Name: "n1", UID: "u"}, "a b")
			if (err == nil) != ok || len(m.wrote) != sent || len(j.changes) != 1 {
				t.Errorf("%d, forever %t: %v, sent %d and recorded %d; want %d", answer, forever, err, len(m.wrote), len(j.changes), sent)
			}
			if last := string(m.bodies[len(m.bodies)-1]); !strings.Contains(last, fmt.Sprintf(`"/metadata/resourceVersion","value":"%d"`, version)) {
				t.Errorf("%d: it is not conditional on the version read last, %d: %s", answer, version, last)
			}
		}
	}
}

// TestUnreadNode: a node that cannot be read is not written. A read without an answer is repeated.
func TestUnreadNode(t *testing.T) {
	for code, reads := range map[int]int{403: 1, 404: 1, 500: 5} {
		n := 0
		m := &memory{}
		m.answer = func(r *http.Request) (int, string) {
			if !strings.Contains(r.URL.Path, "/nodes/") || r.Method != http.MethodGet {
				return 0, ""
			}
			n++
			return code, status(code)
		}
		err := m.client(t).Cordon(t.Context(), repair.ObjectRef{Name: "n1", UID: ""}, "a b")
		if err == nil || errors.Is(err, repair.ErrChanged) || !strings.Contains(err.Error(), "cordoning node n1") || n != reads || len(m.wrote) > 0 {
			t.Errorf("%d: %v after %d reads, wrote %v", code, err, n, m.wrote)
		}
	}
}

// TestOthersCordonIsKept: if another client has cordoned the node since, only our mark is removed.
func TestOthersCordonIsKept(t *testing.T) {
	const field = `{"manager":%q,"operation":"Update","apiVersion":"v1","time":"2026-01-02T12:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:%s":{}}}}`
	for name, c := range map[string]struct {
		manager, owns, spec string
		kept                bool
	}{
		"another's":                  {"kubectl-cordon", "unschedulable", `"unschedulable":true`, true},
		"ours":                       {"calico-audit", "unschedulable", `"unschedulable":true`, false},
		"another field of another's": {"kubectl", "podCIDR", `"unschedulable":true`, false},
		"uncordoned since":           {"kubectl-cordon", "unschedulable", ``, false},
	} {
		m := &memory{node: fmt.Sprintf(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","uid":"u","resourceVersion":"7","annotations":{"calico-audit/consolidation":"a b"},"managedFields":[{"manager":"old","operation":"Update"},%s]},"spec":{%s}}`,
			fmt.Sprintf(field, c.manager, c.owns), c.spec)}
		err := m.client(t).Uncordon(t.Context(), repair.ObjectRef{Name: "n1", UID: "u"}, "a b")
		var kept *repair.KeptCordonError
		if errors.As(err, &kept) != c.kept || err != nil && !c.kept || len(m.wrote) != 1 {
			t.Errorf("%s: %v, wrote %v", name, err, m.wrote)
			continue
		}
		if c.kept && (kept.By != c.manager || kept.Since.IsZero()) {
			t.Errorf("%s: it is said to be %s's since %s", name, kept.By, kept.Since)
		}
		if removes := strings.Contains(string(m.bodies[0]), `"/spec/unschedulable"`); removes != (!c.kept && c.spec != "") {
			t.Errorf("%s: removes the cordon %v: %s", name, removes, m.bodies[0])
		}
	}
}
