// Package metrics serves what is known over HTTP: metrics in Prometheus' format,
// the documents beside them, and the server for both, with TLS and authentication.
//
// [Serve] is the server. [Agent] is what one node's agent serves: the host view of
// that node, and metrics of it.
package metrics
