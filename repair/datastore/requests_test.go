package datastore_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/repair/datastore"
)

var update = flag.Bool("update", false, "write testdata/requests.txt")

// TestRequests compares the writes of each step with testdata/requests.txt. That they have the
// effect of Calico's own is tested with servers ([TestEquivalence]).
func TestRequests(t *testing.T) {
	var got strings.Builder
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		texts := map[testcluster.Group]string{}
		for _, group := range []testcluster.Group{testcluster.CRDv1, testcluster.NativeV3} {
			texts[group] = requestsOf(t, group, calls[name])
		}
		fmt.Fprintf(&got, "== %s\n%s\n", name, texts[testcluster.CRDv1])
		if texts[testcluster.NativeV3] != texts[testcluster.CRDv1] {
			fmt.Fprintf(&got, "== %s, in %s\n%s\n", name, testcluster.NativeV3, texts[testcluster.NativeV3])
		}
	}
	const file = "testdata/requests.txt"
	if *update {
		must(t, os.WriteFile(file, []byte(got.String()), 0o644))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); d != "" {
		t.Errorf("-want +got; if this is meant, run the test with -update:\n%s", d)
	}
}

// now matches the times of a request, as nanoseconds or text.
var now = regexp.MustCompile(`\b1\d{18}\b|"20\d\d-[^"]*Z"`)

// requestsOf returns the writes of a call in lines.
func requestsOf(t *testing.T, group testcluster.Group, call func(*small, *datastore.Writer) error) string {
	s := newSmall(t, group)
	var out strings.Builder
	must(t, call(s, s.failing(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			return nil, nil
		}
		body, err := io.ReadAll(r.Body)
		must(t, err)
		r.Body = io.NopCloser(bytes.NewReader(body))
		parts := strings.SplitN(r.URL.Path, "/", 5) // /apis/GROUP/VERSION/…
		fmt.Fprintf(&out, "%s %s\n", r.Method, parts[4])
		var patch []struct {
			Op, Path string
			Value    json.RawMessage
		}
		if json.Unmarshal(body, &patch) != nil {
			fmt.Fprintf(&out, "\t%s\n", bytes.ReplaceAll(body, []byte(group), []byte("GROUP")))
		}
		for _, p := range patch {
			fmt.Fprintf(&out, "\t%s %s %s\n", p.Op, p.Path, p.Value)
		}
		return nil, nil
	})))
	return now.ReplaceAllString(out.String(), "NOW")
}
