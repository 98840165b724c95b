package testcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Backdate makes all objects that an audit reads older by a duration, as if the tests had
// waited that long. It changes the times of creation and deletion, of the last writes, of
// allocations and of the status of nodes and pods. It also changes the sequence numbers
// of blocks, which start at the block's creation time.
func (c *Cluster) Backdate(ctx context.Context, by time.Duration) error {
	if by%time.Second != 0 {
		return fmt.Errorf("backdating by %s: Kubernetes' times have whole seconds", by)
	}
	for _, r := range append(customResources(), Core...) {
		err := c.editStored(ctx, r, func(object runtime.Object) error { return MakeOlder(object, by) })
		if err != nil {
			return fmt.Errorf("backdating by %s: %w", by, err)
		}
	}
	return nil
}

// Heartbeat sets the heartbeat time of all nodes to now. After Backdate, this makes the
// state look long-lasting.
func (c *Cluster) Heartbeat(ctx context.Context) error {
	nodes, err := c.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","lastHeartbeatTime":%q}]}}`,
		time.Now().UTC().Format(time.RFC3339))
	for _, node := range nodes.Items {
		_, err := c.Kube.CoreV1().Nodes().
			Patch(ctx, node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil {
			return fmt.Errorf("writing the heartbeat of node %s: %w", node.Name, err)
		}
	}
	return nil
}

// MakeOlder makes a stored object older by a duration: see [Cluster.Backdate].
func MakeOlder(object runtime.Object, by time.Duration) error {
	m, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	created := m.GetCreationTimestamp()
	m.SetCreationTimestamp(metav1.NewTime(created.Add(-by)))
	if deleted := m.GetDeletionTimestamp(); deleted != nil {
		m.SetDeletionTimestamp(&metav1.Time{Time: deleted.Add(-by)})
	}
	fields := m.GetManagedFields()
	for i := range fields {
		if fields[i].Time != nil {
			fields[i].Time = &metav1.Time{Time: fields[i].Time.Add(-by)}
		}
	}
	m.SetManagedFields(fields)
	if err := backdateCalicoMetadata(m, by); err != nil {
		return err
	}

	switch o := object.(type) {
	case *corev1.Node:
		for i := range o.Status.Conditions {
			earlier(&o.Status.Conditions[i].LastHeartbeatTime, by)
			earlier(&o.Status.Conditions[i].LastTransitionTime, by)
		}
	case *corev1.Pod:
		backdatePodStatus(&o.Status, by)
	case *unstructured.Unstructured:
		if o.GetKind() == "IPAMBlock" {
			return backdateBlock(o, by)
		}
	}
	return nil
}

// MetadataAnnotation is an annotation of objects of crd.projectcalico.org/v1. It stores
// the metadata that Calico's own API shows.
const MetadataAnnotation = "projectcalico.org/metadata"

func backdateCalicoMetadata(m metav1.Object, by time.Duration) error {
	annotations := m.GetAnnotations()
	text, ok := annotations[MetadataAnnotation]
	if !ok {
		return nil
	}
	var stored map[string]any
	if err := json.Unmarshal([]byte(text), &stored); err != nil {
		return fmt.Errorf("reading annotation %s: %w", MetadataAnnotation, err)
	}
	created, ok := stored["creationTimestamp"].(string)
	if !ok {
		return nil
	}
	t, err := time.Parse(time.RFC3339, created)
	if err != nil {
		return fmt.Errorf("reading annotation %s: %w", MetadataAnnotation, err)
	}
	stored["creationTimestamp"] = t.Add(-by).UTC().Format(time.RFC3339)
	changed, err := json.Marshal(stored)
	if err != nil {
		return err
	}
	annotations[MetadataAnnotation] = string(changed)
	m.SetAnnotations(annotations)
	return nil
}

func backdatePodStatus(status *corev1.PodStatus, by time.Duration) {
	if status.StartTime != nil {
		earlier(status.StartTime, by)
	}
	for i := range status.Conditions {
		earlier(&status.Conditions[i].LastTransitionTime, by)
	}
	for i := range status.ContainerStatuses {
		if running := status.ContainerStatuses[i].State.Running; running != nil {
			earlier(&running.StartedAt, by)
		}
	}
}

func backdateBlock(block *unstructured.Unstructured, by time.Duration) error {
	spec, _ := block.Object["spec"].(map[string]any)
	if spec == nil {
		return nil
	}
	if n, ok := spec["sequenceNumber"].(int64); ok {
		spec["sequenceNumber"] = n - by.Nanoseconds()
	}
	perAllocation, _ := spec["sequenceNumberForAllocation"].(map[string]any)
	for ordinal, n := range perAllocation {
		if n, ok := n.(int64); ok {
			perAllocation[ordinal] = n - by.Nanoseconds()
		}
	}
	if claimed, ok := spec["affinityClaimTime"].(string); ok {
		t, err := time.Parse(time.RFC3339, claimed)
		if err != nil {
			return err
		}
		spec["affinityClaimTime"] = t.Add(-by).Format(time.RFC3339)
	}
	attributes, _ := spec["attributes"].([]any)
	for _, a := range attributes {
		a, _ := a.(map[string]any)
		secondary, _ := a["secondary"].(map[string]any)
		if written, ok := secondary["timestamp"].(string); ok {
			t, err := time.Parse(timestampLayout, written)
			if err != nil {
				return fmt.Errorf("reading an allocation's time %s: %w", strconv.Quote(written), err)
			}
			secondary["timestamp"] = t.Add(-by).UTC().String()
		}
	}
	return nil
}

// timestampLayout parses the output of time.Time.String, which Calico's CNI plugin
// records as the time of an allocation.
const timestampLayout = "2006-01-02 15:04:05.999999999 -0700 MST"

func earlier(t *metav1.Time, by time.Duration) {
	if !t.IsZero() {
		t.Time = t.Add(-by)
	}
}
