package storm

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// How a client finds its gate.

// Config is the configuration of a client behind the gate. It has no rate limit of
// its own.
func (g *Gate) Config() *rest.Config {
	return &rest.Config{Host: g.URL, QPS: -1, WarningHandler: rest.NoWarnings{}}
}

// Kubeconfig is a kubeconfig for a client behind the gate.
func (g *Gate) Kubeconfig() ([]byte, error) {
	const name = "gate"
	k := clientcmdapi.NewConfig()
	k.Clusters[name] = &clientcmdapi.Cluster{Server: g.URL}
	k.AuthInfos[name] = &clientcmdapi.AuthInfo{}
	k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	k.CurrentContext = name
	out, err := clientcmd.Write(*k)
	if err != nil {
		return nil, fmt.Errorf("writing a gate's kubeconfig: %w", err)
	}
	return out, nil
}
