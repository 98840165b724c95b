// Package agents asks the agents on a cluster's nodes for their host views: once for a
// report ([Views]), or each in turn beside a watch of the cluster ([Watch]). They are asked
// through the API server, which proves nothing about who answers, or directly by [TLS]. It
// also has the other end of that: [Callers] decides whom an agent answers.
package agents
