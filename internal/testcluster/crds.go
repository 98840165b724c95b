package testcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/calico-audit/calico-audit/internal/testcluster/programs"
)

// Group is an API group and version of custom resources: one of Calico's two groups,
// [KubeVirt], or another foreign group.
type Group string

const (
	// CRDv1 holds Calico's objects up to v3.31, and by default later.
	CRDv1 Group = "crd.projectcalico.org/v1"
	// NativeV3 can hold the objects of Calico v3.32 and later instead.
	NativeV3 Group = "projectcalico.org/v3"
	// EtcdV3 is no group: Calico's objects are keys in etcd. Only some packages know it.
	EtcdV3 Group = "etcdv3"
)

// name returns the group without the version.
func (g Group) name() string {
	name, _, _ := strings.Cut(string(g), "/")
	return name
}

// CRDs returns the CustomResourceDefinitions of a group, sorted by name. Those of
// crd.projectcalico.org/v1 come from the Calico module that the main module uses. Those
// of projectcalico.org/v3 are generated from the types of the newer API module in
// binaries/crds. Those of other groups are defined in this package.
func CRDs(ctx context.Context, group Group) ([]*unstructured.Unstructured, error) {
	var dir string
	var err error
	switch group {
	case KubeVirt, Whereabouts, Attachments, Migration:
		return foreignCRDs(group), nil
	case CRDv1:
		dir, err = programs.CalicoDir(ctx)
		dir = filepath.Join(dir, "libcalico-go", "config", "crd")
	case NativeV3:
		dir, err = programs.NativeCRDs(ctx)
	default:
		err = fmt.Errorf("no such group: %q", group)
	}
	if err != nil {
		return nil, fmt.Errorf("finding the CRDs of %s: %w", group, err)
	}
	crds, err := readCRDs(dir, group.name())
	if err == nil && group == NativeV3 {
		err = allowFreeAddresses(crds)
	}
	return crds, err
}

// allowFreeAddresses allows null in a block's allocations, which is how Calico marks a
// free address. controller-gen does not derive this from []*int; Calico also adds it with
// a patch (libcalico-go/Makefile).
func allowFreeAddresses(crds []*unstructured.Unstructured) error {
	for _, crd := range crds {
		if crd.GetName() != "ipamblocks.projectcalico.org" {
			continue
		}
		versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
		if err != nil || len(versions) != 1 {
			return fmt.Errorf("CRD %s has %d versions, not 1: %w", crd.GetName(), len(versions), err)
		}
		err = unstructured.SetNestedField(versions[0].(map[string]any), true, "schema", "openAPIV3Schema",
			"properties", "spec", "properties", "allocations", "items", "nullable")
		if err != nil {
			return fmt.Errorf("CRD %s: %w", crd.GetName(), err)
		}
		return unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions")
	}
	return errors.New("no CRD of IPAMBlock")
}

// readCRDs reads the CRDs of one API group from the YAML files in a directory.
func readCRDs(dir, groupName string) ([]*unstructured.Unstructured, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var crds []*unstructured.Unstructured
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading a CRD: %w", err)
		}
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(content, &crd.Object); err != nil {
			return nil, fmt.Errorf("reading CRD %s: %w", file, err)
		}
		if g, _, _ := unstructured.NestedString(crd.Object, "spec", "group"); g == groupName {
			crds = append(crds, crd)
		}
	}
	if len(crds) == 0 {
		return nil, fmt.Errorf("no CRD of %s in %s", groupName, dir)
	}
	sort.Slice(crds, func(i, j int) bool { return crds[i].GetName() < crds[j].GetName() })
	return crds, nil
}
