package storm

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The client configuration for a proxy.

// Config returns the configuration of a client behind the proxy, without a rate limit.
func (g *FaultProxy) Config() *rest.Config {
	return &rest.Config{Host: g.URL, QPS: -1, WarningHandler: rest.NoWarnings{}}
}

// Kubeconfig returns a kubeconfig for a client behind the proxy.
func (g *FaultProxy) Kubeconfig() ([]byte, error) {
	const name = "proxy"
	k := clientcmdapi.NewConfig()
	k.Clusters[name] = &clientcmdapi.Cluster{Server: g.URL}
	k.AuthInfos[name] = &clientcmdapi.AuthInfo{}
	k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	k.CurrentContext = name
	out, err := clientcmd.Write(*k)
	if err != nil {
		return nil, fmt.Errorf("writing a proxy's kubeconfig: %w", err)
	}
	return out, nil
}
