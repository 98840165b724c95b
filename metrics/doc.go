// Package metrics serves metrics in Prometheus' format and related documents over HTTP,
// with TLS and authentication.
//
// [Serve] is the server. [Exporter] serves the audits of a watched cluster. [Agent] serves
// the host view of one node.
package metrics
