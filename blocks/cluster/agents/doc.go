// Package agents queries the agents on a cluster's nodes for their host views: once for a report
// ([Views]), or in turn while the cluster is watched ([Watch]). Requests go through the API server,
// which does not authenticate the agents, or directly over [TLS]. The package also has the server
// side: [Callers] decides who may query an agent.
package agents
