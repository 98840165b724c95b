package datastore

import (
	"encoding/json"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// calicoMetadata is the annotation that stores the metadata of Calico's objects in the
// older API group (libcalico-go backend/k8s/resources/resources.go,
// ConvertCalicoResourceToK8sResource).
const calicoMetadata = "projectcalico.org/metadata"

// newObject returns an object as Calico's own client creates it. In the older API group
// it has an annotation that repeats its labels.
func (w *Writer) newObject(r blocks.Resource, name string, spec any, labels, annotations map[string]string) (map[string]any, error) {
	if !w.traits.Metadata {
		labels = nil
	}
	meta := metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations}
	if w.traits.Metadata && !w.native() {
		text, err := json.Marshal(struct {
			CreationTimestamp any               `json:"creationTimestamp"` // null, as in Calico's own library
			Labels            map[string]string `json:"labels,omitempty"`
		}{Labels: labels})
		if err != nil {
			return nil, err
		}
		meta.Annotations = map[string]string{calicoMetadata: string(text)}
		maps.Copy(meta.Annotations, annotations)
	}
	content, err := json.Marshal(map[string]any{"apiVersion": w.traits.Group, "kind": decode.KindOf(r).Name(w.traits.Group), "metadata": meta, "spec": spec})
	if err != nil {
		return nil, err
	}
	return parseTree(content)
}
