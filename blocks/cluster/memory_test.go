package cluster

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// TestMemoryOfAnswers: reading a response needs the memory of one object besides the
// records, in any order of fields.
func TestMemoryOfAnswers(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: reads answers of 40 MiB")
	}
	const most = 40 << 20
	note := strings.Repeat("x", 100_000)
	const count = most / 100_000
	for name, c := range map[string]struct{ head, tail string }{
		"items last":    {`{"kind":"NamespaceList","metadata":{"resourceVersion":"10"},"items":[`, `]}`},
		"items first":   {`{"items":[`, `],"metadata":{"resourceVersion":"10"},"kind":"NamespaceList"}`},
		"items between": {`{"metadata":{"resourceVersion":"10"},"items":[`, `],"kind":"NamespaceList"}`},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, c.head)
				comma := ""
				for i := range count {
					_, _ = fmt.Fprintf(w, `%s{"metadata":{"name":"n%d","annotations":{"note":%q}}}`, comma, i, note)
					comma = ","
				}
				_, _ = io.WriteString(w, c.tail)
			}))
			defer server.Close()
			client, err := newAPIClient(&rest.Config{Host: server.URL}, nil)
			must(t, err)
			l := &lister{client: client, kind: decode.KindOf(blocks.Namespaces), group: decode.GroupCRD, pageSize: 1000, strings: &decode.SharedStrings{}}
			_, used := measure(func() { must(t, l.run(t.Context())) })
			if l.count != count || l.revision != "10" || len(l.out.Gaps) > 0 {
				t.Errorf("%d objects of version %s, gaps %v", l.count, l.revision, l.out.Gaps)
			}
			if t.Logf("%d MiB", used>>20); used > most/2 {
				t.Errorf("an answer of %d MiB took %d MiB", most>>20, used>>20)
			}
		})
	}
}
