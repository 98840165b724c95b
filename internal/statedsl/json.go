package statedsl

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
)

type manifest struct{ objects []map[string]any }

func (m *manifest) add(version, kind string, meta, spec, status map[string]any) {
	object := map[string]any{"apiVersion": version, "kind": kind, "metadata": meta}
	if spec != nil {
		object["spec"] = spec
	}
	if status != nil {
		object["status"] = status
	}
	m.objects = append(m.objects, object)
}

func (m *manifest) calico(kind string, meta, spec map[string]any) {
	m.add("crd.projectcalico.org/v1", kind, meta, spec, nil)
}

func metadata(m blocks.Meta) map[string]any {
	meta := map[string]any{
		"name": strings.ToLower(strings.NewReplacer("/", "-", ":", "-", "_", "-").Replace(m.Name)), "creationTimestamp": at(m.Created),
	}
	if m.UID() != "" {
		meta["uid"], meta["resourceVersion"] = m.UID(), m.ResourceVersion()
	}
	if !m.Written.IsZero() {
		manager := "Go-http-client"
		if m.ByUs {
			manager = blocks.FieldManager
		}
		meta["managedFields"] = []any{map[string]any{"manager": manager, "operation": "Update", "time": at(m.Written)}}
	}
	if !m.Deleting.IsZero() {
		meta["deletionTimestamp"], meta["deletionGracePeriodSeconds"] = at(m.Deleting), 30
	}
	return meta
}

func at(t blocks.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.Std().Format(time.RFC3339)
}

func asJSON(v any) string {
	text, _ := json.Marshal(v) // texts and numbers always marshal
	return string(text)
}

func texts[T fmt.Stringer](all []T) []string {
	out := []string{}
	for _, v := range all {
		out = append(out, v.String())
	}
	return out
}

func joined(addrs []netip.Addr) string { return strings.Join(texts(addrs), ",") }

func set(spec map[string]any, key, value string) {
	if value != "" {
		spec[key] = value
	}
}

func namespaced(m blocks.Meta, namespace string) map[string]any {
	meta := metadata(m)
	meta["namespace"] = namespace
	return meta
}
