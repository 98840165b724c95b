package testcluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
)

var crdResource = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

// crdPrefix is the prefix of the keys under which the API server stores CRDs.
const crdPrefix = "/registry/apiextensions.k8s.io/customresourcedefinitions/"

// InstallCRDs creates the CRDs of a group that do not exist and waits until the API server serves them and
// discovery lists them.
func (c *Cluster) InstallCRDs(ctx context.Context, group Group) error {
	crds, err := CRDs(ctx, group)
	if err != nil {
		return err
	}
	installed, err := c.Etcd.Get(ctx, crdPrefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return fmt.Errorf("reading stored CRDs: %w", err)
	}
	work, workCtx := errgroup.WithContext(ctx)
	for _, crd := range crds {
		if slices.ContainsFunc(installed.Kvs, func(kv *mvccpb.KeyValue) bool { return string(kv.Key) == crdPrefix+crd.GetName() }) {
			continue
		}
		work.Go(func() error {
			_, err := c.Dynamic.Resource(crdResource).Create(workCtx, crd, metav1.CreateOptions{})
			if err != nil && !isAlreadyExists(err) {
				return fmt.Errorf("creating CRD %s: %w", crd.GetName(), err)
			}
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		return err
	}
	return waitFor(ctx, fmt.Sprintf("the CRDs of %s", group), func(ctx context.Context) error {
		if err := c.crdsEstablished(ctx, crds); err != nil {
			return err
		}
		return c.discovered(ctx, group, crds)
	})
}

// RemoveCRDs deletes the CRDs of a group with all of their objects, and waits until
// discovery no longer lists the group.
func (c *Cluster) RemoveCRDs(ctx context.Context, group Group) error {
	crds, err := CRDs(ctx, group)
	if err != nil {
		return err
	}
	for _, crd := range crds {
		err := c.Dynamic.Resource(crdResource).Delete(ctx, crd.GetName(), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting CRD %s: %w", crd.GetName(), err)
		}
	}
	nudge := time.Now().Add(nudgePause)
	return waitFor(ctx, fmt.Sprintf("the end of %s", group), func(ctx context.Context) error {
		served, err := c.served(group)
		if err != nil || len(served) == 0 {
			return err
		}
		if time.Now().After(nudge) {
			nudge = time.Now().Add(nudgePause)
			return c.nudgeCRDs(ctx, crds)
		}
		return fmt.Errorf("still served: %v", slices.Sorted(maps.Keys(served)))
	})
}

// nudgePause is the time between writes that make the API server retry a CRD's deletion.
const nudgePause = 5 * time.Second

// nudgeCRDs writes an annotation to CRDs that are being deleted, so that the API server
// continues to delete their objects immediately. After a failure, as on a busy machine, the
// API server otherwise waits longer before each retry. nudgeCRDs returns an error as long
// as any of the CRDs exists.
func (c *Cluster) nudgeCRDs(ctx context.Context, crds []*unstructured.Unstructured) error {
	var left []string
	for _, crd := range crds {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"calico-audit/nudged":%q}}}`, time.Now().Format(time.RFC3339Nano))
		_, err := c.Dynamic.Resource(crdResource).Patch(ctx, crd.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		left = append(left, crd.GetName())
	}
	return fmt.Errorf("not yet deleted: %v", left)
}

// crdsEstablished returns an error until all CRDs are established.
func (c *Cluster) crdsEstablished(ctx context.Context, crds []*unstructured.Unstructured) error {
	list, err := c.Dynamic.Resource(crdResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	established := map[string]bool{}
	for i := range list.Items {
		conditions, _, _ := unstructured.NestedSlice(list.Items[i].Object, "status", "conditions")
		for _, condition := range conditions {
			m, _ := condition.(map[string]any)
			if m["type"] == "Established" && m["status"] == "True" {
				established[list.Items[i].GetName()] = true
			}
		}
	}
	for _, crd := range crds {
		if !established[crd.GetName()] {
			return fmt.Errorf("CRD %s is not established", crd.GetName())
		}
	}
	return nil
}

// discovered returns an error until discovery lists all CRDs. Discovery is answered by
// the aggregator, which learns of a CRD later than the server that serves it.
func (c *Cluster) discovered(ctx context.Context, group Group, crds []*unstructured.Unstructured) error {
	served, err := c.served(group)
	if err != nil {
		return err
	}
	for _, crd := range crds {
		if plural, _, _ := strings.Cut(crd.GetName(), "."); !served[plural] {
			return fmt.Errorf("discovery does not list %s", crd.GetName())
		}
	}
	return ctx.Err()
}

// served returns the plural names of a group's resources in discovery; the map is empty
// if the group is not served.
func (c *Cluster) served(group Group) (map[string]bool, error) {
	client, err := discovery.NewDiscoveryClientForConfig(c.Config)
	if err != nil {
		return nil, err
	}
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, err
	}
	served := map[string]bool{}
	for _, list := range lists {
		if list.GroupVersion != string(group) {
			continue
		}
		for _, resource := range list.APIResources {
			served[resource.Name] = true
		}
	}
	return served, nil
}

// awaitNamespaces waits for the namespaces that the API server creates itself.
func (c *Cluster) awaitNamespaces(ctx context.Context) error {
	return waitFor(ctx, "the default namespaces", func(ctx context.Context) error {
		for _, name := range systemNamespaces {
			if _, err := c.Kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
}

var systemNamespaces = []string{"default", "kube-node-lease", "kube-public", "kube-system"}

// waitFor calls check until it returns nil.
func waitFor(ctx context.Context, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		last := check(ctx)
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w (%w)", what, last, ctx.Err())
		case <-poll.C:
		}
	}
}

func isAlreadyExists(err error) bool { return apierrors.IsAlreadyExists(err) }
