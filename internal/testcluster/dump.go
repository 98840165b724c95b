package testcluster

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Dump writes all objects that an audit reads to a directory, which it creates. Each kind
// has a file with the sorted output of kubectl get --all-namespaces -o yaml
// --show-managed-fields. Managed fields keep only who wrote when, because ages are
// derived from them.
//
// A file is named after the kind's plural. If both of Calico's groups are dumped, the
// group is added, as kubectl distinguishes them.
func (c *Cluster) Dump(ctx context.Context, dir string, groups ...Group) error {
	if len(groups) == 0 {
		groups = c.Groups
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("dumping: %w", err)
	}
	for _, r := range Core {
		if err := c.dump(ctx, filepath.Join(dir, r.Resource+".yaml"), r); err != nil {
			return err
		}
	}
	for _, group := range groups {
		for _, r := range group.Resources() {
			name := r.Resource + ".yaml"
			if len(groups) > 1 {
				name = r.Resource + "." + r.Group + ".yaml"
			}
			if err := c.dump(ctx, filepath.Join(dir, name), r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Cluster) dump(ctx context.Context, path string, r Resource) error {
	objects, err := c.List(ctx, r)
	if err != nil {
		return err
	}
	slices.SortFunc(objects, func(a, b unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	items := make([]any, 0, len(objects))
	for i := range objects {
		reduceManagedFields(&objects[i])
		items = append(items, objects[i].Object)
	}
	content, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "List", "items": items,
		"metadata": map[string]any{"resourceVersion": ""},
	})
	if err != nil {
		return fmt.Errorf("dumping %s: %w", r.Resource, err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return fmt.Errorf("dumping %s: %w", r.Resource, err)
	}
	return nil
}

// reduceManagedFields keeps only the manager, operation, time and subresource of each
// entry.
func reduceManagedFields(u *unstructured.Unstructured) {
	entries, _, _ := unstructured.NestedSlice(u.Object, "metadata", "managedFields")
	reduced := make([]any, 0, len(entries))
	for _, entry := range entries {
		entry, ok := entry.(map[string]any)
		if !ok {
			continue
		}
		kept := map[string]any{}
		for _, key := range []string{"manager", "operation", "time", "subresource"} {
			if v, ok := entry[key]; ok {
				kept[key] = v
			}
		}
		reduced = append(reduced, kept)
	}
	if len(reduced) > 0 {
		_ = unstructured.SetNestedSlice(u.Object, reduced, "metadata", "managedFields")
	}
}
