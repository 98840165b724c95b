// Package query reads the history of pools from a Prometheus.
package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/config"
	"github.com/prometheus/common/model"

	"github.com/calico-audit/calico-audit/audit/runway"
)

// step is the time between samples. Each sample is the minimum over the step before it.
const step = time.Hour

// MaxWindow is the longest window. Prometheus returns at most 11,000 samples of a series.
const MaxWindow = 400 * 24 * time.Hour

// timeout limits all queries together.
const timeout = 30 * time.Second

// Options configures a Client.
type Options struct {
	// URL is the address of Prometheus. It may contain a user and password.
	URL string
	// Selector are label matchers that select one cluster's series, such as cluster="a".
	Selector string
	// Window is the length of the history.
	Window time.Duration
	// CAFile holds the certificates of the CA, TokenFile a bearer token; both may be empty.
	CAFile, TokenFile string
	// RoundTripper, if set, replaces CAFile and TokenFile.
	RoundTripper http.RoundTripper
}

// Client queries a Prometheus.
type Client struct {
	Options
	api v1.API
}

// New returns a client. It validates the options, but sends no request.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the URL of Prometheus: %w", err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("%q is not a URL of a Prometheus, such as http://prometheus.monitoring:9090", u.Redacted())
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("the URL of Prometheus %s has a query: want only its address, such as http://prometheus.monitoring:9090", u.Redacted())
	case o.Window < 24*time.Hour || o.Window > MaxWindow:
		return nil, fmt.Errorf("a window of %s is not between 1d and %s", model.Duration(o.Window), model.Duration(MaxWindow))
	case o.TokenFile != "" && u.Scheme != "https":
		return nil, fmt.Errorf("a token is sent over https only: %s is not", u.Redacted())
	}
	for _, file := range []string{o.CAFile, o.TokenFile} { // the library reads them with the first request
		if file == "" {
			continue
		}
		if _, err := os.ReadFile(file); err != nil {
			return nil, err //nolint:wrapcheck // it names the file
		}
	}
	settings := config.HTTPClientConfig{TLSConfig: config.TLSConfig{CAFile: o.CAFile}, FollowRedirects: true, EnableHTTP2: true}
	if o.TokenFile != "" {
		settings.Authorization = &config.Authorization{Type: "Bearer", CredentialsFile: o.TokenFile}
	}
	transport := o.RoundTripper
	if transport == nil {
		if transport, err = config.NewRoundTripperFromConfig(settings, "prometheus"); err != nil {
			return nil, fmt.Errorf("preparing to ask Prometheus: %w", err)
		}
	}
	client, err := api.NewClient(api.Config{Address: o.URL, RoundTripper: transport})
	if err != nil {
		return nil, fmt.Errorf("preparing to ask Prometheus: %w", err)
	}
	o.Selector = strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(o.Selector), "{"), "}"))
	return &Client{o, v1.NewAPI(client)}, nil
}

// Source returns the address of Prometheus, without the password.
func (c *Client) Source() string {
	u, _ := url.Parse(c.URL) // New has parsed it
	return "Prometheus " + u.Redacted()
}

// The queries, without the selector. Like the alerts, they merge the series of replicas.
const (
	blocksLeft      = `min without (instance, pod, node) (min_over_time(calico_audit_pool_allocatable_blocks{%[1]s}[1h]))`
	addressesLeft   = `min without (instance, pod, node) (min_over_time(calico_audit_pool_available_addresses{%[1]s}[1h]))`
	blocksUsable    = `min without (instance, pod, node) (sum without (state) (last_over_time(calico_audit_pool_blocks{state!="reserved",%[1]s}[1h])))`
	addressesUsable = `min without (instance, pod, node) (last_over_time(calico_audit_pool_capacity_addresses{%[1]s}[1h]) - last_over_time(calico_audit_pool_reserved_addresses{%[1]s}[1h]))`
)

// History returns the history of one cluster's pools, as known at a time. Missing series,
// or series of several clusters, are an error.
func (c *Client) History(ctx context.Context, at time.Time) (*runway.History, error) {
	at = at.Truncate(step) // so that the queries stay the same for a while and can be cached
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var series []model.Matrix
	for _, q := range []string{blocksLeft, blocksUsable, addressesLeft, addressesUsable} {
		m, err := c.ask(ctx, fmt.Sprintf(q, c.Selector), at)
		if err != nil {
			return nil, fmt.Errorf("asking %s: %w", c.Source(), err)
		}
		series = append(series, m)
	}
	labels, err := c.oneCluster(slices.Concat(series...))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Source(), err)
	}
	h := &runway.History{Source: c.Source() + ", series " + labels.String(), Pools: map[string]runway.Past{}}
	blocks, addresses := samples(series[0], series[1]), samples(series[2], series[3])
	for _, s := range slices.Concat(series[0], series[2]) {
		pool := string(s.Metric["ippool"])
		h.Pools[pool] = runway.Past{Blocks: blocks[pool], Addresses: addresses[pool]}
	}
	return h, nil
}

func (c *Client) ask(ctx context.Context, query string, at time.Time) (model.Matrix, error) {
	value, _, _, err := c.api.QueryRange(ctx, query, v1.Range{Start: at.Add(-c.Window), End: at, Step: step})
	if err != nil {
		var known *v1.Error
		if errors.As(err, &known) && known.Detail != "" {
			detail, _, _ := strings.Cut(strings.TrimSpace(known.Detail), "\n")
			err = fmt.Errorf("%s (%s)", known.Msg, detail)
		}
		if unanswered := new(url.Error); errors.As(err, &unanswered) {
			err = unanswered.Err // the outer error repeats the URL
		}
		return nil, err //nolint:wrapcheck // the caller does
	}
	m, ok := value.(model.Matrix)
	if !ok {
		return nil, fmt.Errorf("the answer is a %s, not a matrix", value.Type())
	}
	return m, nil
}

// oneCluster returns the labels that all series share, apart from those of the pool. If the
// labels differ, the series belong to several clusters, or the scrape configuration
// changed. Only the operator knows which ones are meant.
func (c *Client) oneCluster(all model.Matrix) (model.Metric, error) {
	if len(all) == 0 {
		return nil, fmt.Errorf("no series calico_audit_pool_allocatable_blocks{%s} within %s: is the exporter scraped, and does --prometheus-selector match?", c.Selector, model.Duration(c.Window))
	}
	var common model.Metric
	for _, s := range all {
		own := s.Metric.Clone()
		delete(own, "ippool")
		delete(own, "ip_family")
		if common == nil {
			common = own
		}
		if own.Equal(common) {
			continue
		}
		either := own.Clone()
		maps.Copy(either, common)
		for _, name := range slices.Sorted(maps.Keys(either)) {
			values := []model.LabelValue{own[name], common[name]}
			slices.Sort(values)
			if values[0] == values[1] {
				continue
			}
			return nil, fmt.Errorf("series of several clusters: the label %s is %q and %q: choose one with --prometheus-selector '%s=%q'",
				name, values[0], values[1], name, cmp.Or(values[0], values[1]))
		}
	}
	return common, nil
}

// samples returns the samples of each pool. In an hour of a resize the minimum would mix
// both sizes, so that hour is left out.
func samples(left, usable model.Matrix) map[string][]runway.Sample {
	sizes := map[string]map[model.Time]model.SampleValue{}
	for _, s := range usable {
		m := map[model.Time]model.SampleValue{}
		for _, v := range s.Values {
			m[v.Timestamp] = v.Value
		}
		sizes[string(s.Metric["ippool"])] = m
	}
	out := map[string][]runway.Sample{}
	for _, s := range left {
		pool := string(s.Metric["ippool"])
		for _, v := range s.Values {
			size, known := sizes[pool][v.Timestamp]
			before, seen := sizes[pool][v.Timestamp.Add(-step)]
			if known && (!seen || before == size) {
				out[pool] = append(out[pool], runway.Sample{At: v.Timestamp.Time(), Left: float64(v.Value), Usable: float64(size)})
			}
		}
	}
	return out
}
