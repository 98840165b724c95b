package testcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// CopyToNative copies all Calico objects that an audit reads from
// crd.projectcalico.org/v1 to projectcalico.org/v3, in another cluster or the same one,
// which must serve that group. Another cluster also gets the namespaces, nodes and pods.
//
// Specs are equal, except for different names and types in the native group (IPAMConfig
// is IPAMConfiguration, and the deleted field of a BlockAffinity is a boolean) and for
// defaults of the native CRDs. Times of creation and of the last writes are kept, so that
// an audit sees objects of the same age.
func CopyToNative(ctx context.Context, from, to *Cluster) error {
	if from != to {
		for _, r := range Core {
			if err := copyResource(ctx, from, r, to, r); err != nil {
				return err
			}
		}
	}
	native := NativeV3.Resources()
	for i, r := range CRDv1.Resources() {
		if err := copyResource(ctx, from, r, to, native[i]); err != nil {
			return err
		}
	}
	return nil
}

// MoveToNative moves all Calico objects that an audit reads from crd.projectcalico.org/v1
// to projectcalico.org/v3. The result is that of a complete migration: the CRDs of the
// old group no longer exist.
func MoveToNative(ctx context.Context, c *Cluster) error {
	if err := c.InstallCRDs(ctx, NativeV3); err != nil {
		return fmt.Errorf("moving to the native group: %w", err)
	}
	if err := CopyToNative(ctx, c, c); err != nil {
		return fmt.Errorf("moving to the native group: %w", err)
	}
	if err := c.RemoveCRDs(ctx, CRDv1); err != nil {
		return fmt.Errorf("moving to the native group: %w", err)
	}
	return nil
}

// copyResource creates copies of all objects of a kind. Then it sets the times of the
// originals in etcd, because the API server does not let clients write them.
func copyResource(ctx context.Context, from *Cluster, fromR Resource, to *Cluster, toR Resource) error {
	originals, err := from.List(ctx, fromR)
	if err != nil {
		return err
	}
	times := map[string]metav1.Object{}
	for i := range originals {
		original := &originals[i]
		times[original.GetNamespace()+"/"+original.GetName()] = original
		if err := to.createCopy(ctx, toR, original); err != nil {
			return err
		}
	}
	return to.editStored(ctx, toR, func(object runtime.Object) error {
		m, err := meta.Accessor(object)
		if err != nil {
			return err
		}
		original, ok := times[m.GetNamespace()+"/"+m.GetName()]
		if !ok {
			return nil
		}
		m.SetCreationTimestamp(original.GetCreationTimestamp())
		fields := original.GetManagedFields()
		for i := range fields {
			if fields[i].APIVersion == fromR.GroupVersion().String() {
				fields[i].APIVersion = toR.GroupVersion().String()
			}
		}
		m.SetManagedFields(fields)
		return nil
	})
}

// createCopy creates an object like original. An existing object, such as a namespace of
// the API server, stays unchanged.
func (c *Cluster) createCopy(ctx context.Context, r Resource, original *unstructured.Unstructured) error {
	object := map[string]any{"metadata": map[string]any{}}
	for field, content := range original.DeepCopy().Object {
		if field != "metadata" && field != "status" {
			object[field] = content
		}
	}
	fresh := &unstructured.Unstructured{Object: object}
	fresh.SetNamespace(original.GetNamespace())
	fresh.SetName(original.GetName())
	fresh.SetLabels(original.GetLabels())
	fresh.SetAnnotations(original.GetAnnotations())
	fresh.SetOwnerReferences(original.GetOwnerReferences())
	if err := nativeMetadata(fresh); err != nil {
		return fmt.Errorf("copying %s %s: %w", r.Kind, original.GetName(), err)
	}
	if err := nativeSpec(r, object); err != nil {
		return fmt.Errorf("copying %s %s: %w", r.Kind, original.GetName(), err)
	}
	err := c.Create(ctx, r, object)
	if isAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return err
	}
	status, ok := original.Object["status"]
	if !ok {
		return nil
	}
	current, err := c.Get(ctx, r, original.GetNamespace(), original.GetName())
	if err != nil {
		return err
	}
	current.Object["status"] = status
	client := c.client(r, original.GetNamespace())
	_, err = client.UpdateStatus(ctx, current, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		// The kind has no status subresource.
		_, err = client.Update(ctx, current, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("copying the status of %s %s: %w", r.Kind, original.GetName(), err)
	}
	return nil
}

// nativeMetadata restores labels and annotations from [MetadataAnnotation], which native
// objects do not have.
func nativeMetadata(u *unstructured.Unstructured) error {
	annotations := u.GetAnnotations()
	text, ok := annotations[MetadataAnnotation]
	if !ok {
		return nil
	}
	var stored metav1.ObjectMeta
	if err := json.Unmarshal([]byte(text), &stored); err != nil {
		return fmt.Errorf("reading annotation %s: %w", MetadataAnnotation, err)
	}
	delete(annotations, MetadataAnnotation)
	labels := u.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, stored.Labels)
	maps.Copy(annotations, stored.Annotations)
	u.SetLabels(labels)
	u.SetAnnotations(annotations)
	return nil
}

// nativeSpec converts fields that have another type in the native group.
func nativeSpec(r Resource, object map[string]any) error {
	spec, _ := object["spec"].(map[string]any)
	if r.Kind != "BlockAffinity" || spec == nil {
		return nil
	}
	text, ok := spec["deleted"].(string)
	if !ok {
		return nil
	}
	deleted, err := strconv.ParseBool(text)
	if err != nil {
		return fmt.Errorf("reading its mark of deletion: %w", err)
	}
	spec["deleted"] = deleted
	return nil
}
