package datastore

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// raiseHandle makes a handle count one address more of a block (libcalico-go
// ipam/ipam.go, incrementHandle), and creates the handle if there is none: as it
// was stored but for the counts, if that is known.
func (k *Kubernetes) raiseHandle(ctx context.Context, id, cidr string, stored json.RawMessage) error {
	name := strings.ToLower(sanitizeHandle(id))
	var err error
	for range maxCounts {
		if err = k.raiseOnce(ctx, name, id, cidr, stored); !isChanged(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("the count of handle %s was not raised: %w", name, detached(err))
	}
	return nil
}

func (k *Kubernetes) raiseOnce(ctx context.Context, name, id, cidr string, stored json.RawMessage) error {
	h, err := k.get(ctx, blocks.Handles, name)
	if err != nil {
		return err
	}
	if h == nil {
		tree, err := k.oneHandle(name, id, cidr, stored)
		if err == nil {
			_, err = k.create(ctx, blocks.Handles, tree)
		}
		return err
	}
	if marked, err := h.marked(); err != nil {
		return err
	} else if marked || h.deleting() {
		return fmt.Errorf("%s is being deleted", h)
	}
	if !strings.EqualFold(sanitizeHandle(h.text("spec", "handleID")), sanitizeHandle(id)) {
		return fmt.Errorf("%s stands for the handle %q", h, h.text("spec", "handleID"))
	}
	e := newEdit(h)
	v, _ := dig(h.tree, "spec", "block")
	counts, ok := v.(map[string]any)
	if !ok {
		e.set(map[string]any{}, "spec", "block")
	}
	key, found := keyOf(counts, cidr)
	if !found {
		key = cidr
	}
	n := 0
	if found {
		if n, ok = integer(counts[key]); !ok || n < 0 {
			return fmt.Errorf("it counts %v in %s", counts[key], key)
		}
	}
	e.set(number(n+1), "spec", "block", key)
	_, err = k.patch(ctx, h, e)
	return err
}

// oneHandle is a handle that counts one address.
func (k *Kubernetes) oneHandle(name, id, cidr string, stored json.RawMessage) (map[string]any, error) {
	counts := map[string]any{cidr: number(1)}
	if stored != nil {
		if o, tree, err := k.asStored(blocks.Handles, stored); err == nil && o.name() == name {
			if spec, ok := tree["spec"].(map[string]any); ok && spec["handleID"] == id {
				spec["block"] = counts
				return tree, nil
			}
		}
	}
	tree := rawSpec(k.kind(blocks.Handles), k.group, name, map[string]any{"handleID": id, "deleted": false, "block": counts})
	return tree, k.asCalico(tree, nil)
}
