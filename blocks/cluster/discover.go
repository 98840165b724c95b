package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// errNoCalico means that the cluster has none of Calico's API groups.
var errNoCalico = errors.New("no Calico found in the cluster: it serves neither API group " + decode.GroupCRD + " nor " + decode.GroupNative +
	", which hold Calico's IPAM objects unless its datastore is etcd (then name it with --calico-config, or with calicoctl's environment)")

// discover decides which API group to read.
//
// Calico itself reads projectcalico.org/v3 if that group is served and
// crd.projectcalico.org is not, unless the environment variable CALICO_API_GROUP is set
// (libcalico-go lib/backend/k8s/discovery.go, UsingV3CRDs). Here, the resource ipamblocks
// decides instead of the group, so that a leftover CRD of the older group does not hide the
// blocks. If the two rules differ, the reason mentions it.
//
// Calico's aggregated API server also serves projectcalico.org/v3, but without blocks and
// handles, and it builds all lists from the older group. The older group is therefore the
// one that Calico reads. If both groups serve ipamblocks, chooseOfBoth decides.
func (c *apiClient) discover(ctx context.Context, override string) (*served, error) {
	var groups struct {
		Kind   string
		Groups []struct {
			Versions []struct{ GroupVersion string }
		}
	}
	err := c.getJSON(ctx, "/apis", &groups)
	if err != nil {
		if codeOf(err) == http.StatusForbidden {
			return nil, fmt.Errorf("discovering API groups: forbidden: needs the right to get the URL /apis "+
				"(ClusterRole system:discovery): %w", err)
		}
		return nil, fmt.Errorf("discovering API groups: %w", err)
	}
	if groups.Kind != "APIGroupList" {
		return nil, fmt.Errorf("discovering API groups: the server's answer is not a list of API groups; is it a Kubernetes API server?")
	}
	have := map[string]bool{}
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			have[v.GroupVersion] = true
		}
	}
	plurals, failed := map[string]map[string]bool{}, map[string]error{}
	for _, k := range decode.Kinds {
		for _, g := range []string{k.Version(decode.GroupCRD), k.Version(decode.GroupNative)} {
			if _, asked := plurals[g]; asked || k.Core || !have[g] {
				continue
			}
			found, err := c.resources(ctx, g)
			if have[g] = codeOf(err) != http.StatusNotFound; have[g] { // otherwise its last CRD was just deleted
				plurals[g], failed[g] = found, err
			}
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	s := &served{plurals: plurals, neither: !have[decode.GroupCRD] && !have[decode.GroupNative]}
	s.group, s.reason = chooseGroup(override, have, plurals)
	// The older group wins if it serves blocks, which is unknown if the group could not be queried.
	for _, g := range []string{s.group, decode.GroupCRD} {
		if err := failed[g]; err != nil && (g == s.group || override == "") {
			return nil, fmt.Errorf("discovering the resources of %s: %w", g, err)
		}
	}
	const block = string(blocks.Blocks)
	if plurals[decode.GroupCRD][block] && plurals[decode.GroupNative][block] && override == "" {
		if err := c.chooseOfBoth(ctx, s); err != nil {
			return nil, fmt.Errorf("choosing between %s and %s: %w", decode.GroupCRD, decode.GroupNative, err)
		}
	}
	return s, nil
}

// chooseGroup implements the rule of discover. have are the served groups, and plurals the
// resources of each, if they could be listed.
func chooseGroup(override string, have map[string]bool, plurals map[string]map[string]bool) (group, reason string) {
	const block = string(blocks.Blocks)
	crd, native := plurals[decode.GroupCRD][block], plurals[decode.GroupNative][block]
	switch {
	case strings.EqualFold(override, decode.GroupNative):
		return decode.GroupNative, "CALICO_API_GROUP is " + override
	case override != "":
		return decode.GroupCRD, "CALICO_API_GROUP is " + override
	case crd && have[decode.GroupNative]:
		return decode.GroupCRD, decode.GroupCRD + " serves ipamblocks, " + decode.GroupNative + " does not (it is Calico's aggregated API)"
	case crd:
		return decode.GroupCRD, "only " + decode.GroupCRD + " serves ipamblocks"
	case native && have[decode.GroupCRD]:
		return decode.GroupNative, "only " + decode.GroupNative + " serves ipamblocks; but as " + decode.GroupCRD +
			" is served, too, Calico itself reads that unless CALICO_API_GROUP is set for it"
	case native:
		return decode.GroupNative, "only " + decode.GroupNative + " serves ipamblocks"
	case have[decode.GroupNative] && !have[decode.GroupCRD]:
		return decode.GroupNative, "only " + decode.GroupNative + " is served, without ipamblocks"
	case have[decode.GroupCRD]:
		return decode.GroupCRD, decode.GroupCRD + " is served, without ipamblocks"
	}
	return decode.GroupCRD, "no API group of Calico is served"
}

func (c *apiClient) resources(ctx context.Context, group string) (map[string]bool, error) {
	var list struct{ Resources []struct{ Name string } }
	if err := c.getJSON(ctx, "/apis/"+group, &list); err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, r := range list.Resources {
		out[r.Name] = true
	}
	return out, nil
}

// firstStreaming is the first minor version of Kubernetes 1 whose API server answers a list
// without limit from its cache, consistent with the time of the request (feature
// ConsistentListFromCache, enabled since 1.31), and encodes it object by object
// (StreamingCollectionEncodingToJSON and …ToProtobuf, enabled since 1.33).
//
// Pages cost the server much more. For 5,000 nodes with 150,000 pods, pages of 1,000 took 62 to 76
// s of CPU time, pages of 10,000 39 to 49 s, and such lists 9 to 25 s (1.36.3, in turn on a busy
// machine). An older server would hold the whole list in memory, several times. So does a newer
// server with an etcd too old to report how current the cache is (before 3.4.31 and 3.5.13).
const firstStreaming = 33

// streams reports whether the API server streams lists from its cache. It returns false if
// the version is unknown.
func (c *apiClient) streams(ctx context.Context) bool {
	var version struct{ Major, Minor string }
	err := c.once(ctx, "/version", nil, "application/json", func(body io.Reader) error { return json.NewDecoder(body).Decode(&version) })
	minor, _ := strconv.Atoi(strings.TrimRight(version.Minor, "+")) // some vendors report "33+"
	return err == nil && version.Major == "1" && minor >= firstStreaming
}
