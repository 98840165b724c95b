package datastore

import "encoding/json"

// rawSpec makes the specification of an object to be created.
func rawSpec(kind, group, name string, spec map[string]any) map[string]any {
	return map[string]any{
		"apiVersion": group, "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
	}
}

// calicoMetadata is the annotation in which Calico keeps the metadata of its
// objects in the older API group (libcalico-go backend/k8s/resources/resources.go,
// ConvertCalicoResourceToK8sResource).
const calicoMetadata = "projectcalico.org/metadata"

// asCalico adds labels and, in the older API group, the annotation that Calico's
// own client would.
func (k *Kubernetes) asCalico(tree map[string]any, labels map[string]any) error {
	meta, _ := tree["metadata"].(map[string]any)
	if len(labels) > 0 {
		meta["labels"] = labels
	}
	if k.native() {
		return nil
	}
	kept := struct {
		CreationTimestamp any            `json:"creationTimestamp"`
		Labels            map[string]any `json:"labels,omitempty"`
	}{Labels: labels}
	text, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	meta["annotations"] = map[string]any{calicoMetadata: string(text)}
	return nil
}
