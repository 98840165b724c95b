package testcluster

import (
	"context"
	"fmt"
	"path/filepath"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// UserConfig returns a client configuration for a user with a client certificate. The
// user has only the rights that RBAC grants to the name and groups, at first none. The
// client side sets no rate limit.
func (c *Cluster) UserConfig(name string, groups ...string) (*rest.Config, error) {
	pair, err := c.authority.user(name, groups)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host: c.Config.Host,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: c.Config.CAData, CertData: pair.cert, KeyData: pair.key,
		},
		QPS: -1,
	}, nil
}

// UserKubeconfig writes a kubeconfig for UserConfig's user and returns its path. The file
// is removed with the cluster.
func (c *Cluster) UserKubeconfig(name string, groups ...string) (string, error) {
	cfg, err := c.UserConfig(name, groups...)
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.dir, "kubeconfig-"+name)
	return path, writeKubeconfig(path, cfg)
}

// Allow sets a user's rights in the whole cluster, through a ClusterRole and
// ClusterRoleBinding with the user's name. It replaces earlier rights. Without rules, it
// revokes them.
func (c *Cluster) Allow(ctx context.Context, user string, rules ...rbacv1.PolicyRule) error {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "test:" + user}, Rules: rules}
	if err := c.ApplyClusterRole(ctx, role); err != nil {
		return err
	}
	return c.BindClusterRole(ctx, user, role.Name)
}

// ApplyClusterRole creates or replaces a ClusterRole.
func (c *Cluster) ApplyClusterRole(ctx context.Context, role *rbacv1.ClusterRole) error {
	roles := c.Kube.RbacV1().ClusterRoles()
	_, err := roles.Create(ctx, role, metav1.CreateOptions{})
	if isAlreadyExists(err) {
		_, err = roles.Update(ctx, role, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing ClusterRole %s: %w", role.Name, err)
	}
	return nil
}

// BindClusterRole grants a user the rights of a ClusterRole in addition to existing ones.
func (c *Cluster) BindClusterRole(ctx context.Context, user, role string) error {
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "test:" + user + ":" + role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}
	_, err := c.Kube.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	if err != nil && !isAlreadyExists(err) {
		return fmt.Errorf("binding %s to %s: %w", user, role, err)
	}
	return nil
}

// writeKubeconfig writes a client configuration as a kubeconfig with one context.
func writeKubeconfig(path string, cfg *rest.Config) error {
	const name = "testcluster"
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[name] = &clientcmdapi.Cluster{
		Server: cfg.Host, CertificateAuthorityData: cfg.CAData,
	}
	kubeconfig.AuthInfos[name] = &clientcmdapi.AuthInfo{
		Token: cfg.BearerToken, ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData,
	}
	kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	kubeconfig.CurrentContext = name
	if err := clientcmd.WriteToFile(*kubeconfig, path); err != nil {
		return fmt.Errorf("writing kubeconfig %s: %w", path, err)
	}
	return nil
}
