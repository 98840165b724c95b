package datastore

import (
	"context"
	"errors"
	"fmt"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// configName is the name of the one IPAM configuration that counts.
const configName = "default"

// SetStrictAffinity writes the setting and no other field. Where no object exists,
// one is created with automatic blocks on and no limit, as Calico's client creates
// it (libcalico-go ipam/ipam.go, GetIPAMConfig). What Calico would reject
// (SetIPAMConfig) is not written.
func (k *Kubernetes) SetStrictAffinity(ctx context.Context, config *repair.ObjectRef, strict bool) error {
	if config == nil {
		return k.createConfig(ctx, strict)
	}
	o, err := k.judged(ctx, *config)
	if err == nil {
		err = mayBeStrict(o, strict, k.native())
	}
	if err != nil {
		return fmt.Errorf("setting strict affinity: %w", err)
	}
	ctx, done, err := k.finish(ctx)
	if err != nil {
		return err
	}
	defer done()
	e := newEdit(o)
	e.set(strict, "spec", "strictAffinity")
	_, err = k.patch(ctx, o, e)
	return err
}

// mayBeStrict makes sure that Calico takes the result.
func mayBeStrict(o *object, strict, native bool) error {
	if o.name() != configName {
		return fmt.Errorf("%s is not the one that Calico reads", o)
	}
	if strict {
		return nil
	}
	automatic := native // the newer group's default
	if v, ok := dig(o.tree, "spec", "autoAllocateBlocks"); ok && v != nil {
		automatic, _ = v.(bool)
	}
	if !automatic {
		return errors.New("a configuration with neither strict affinity nor automatic blocks is rejected by Calico")
	}
	if v, _ := dig(o.tree, "spec", "maxBlocksPerHost"); v != nil {
		if n, ok := integer(v); !ok || n > 0 {
			return fmt.Errorf("a limit of blocks (%v) without strict affinity is rejected by Calico", v)
		}
	}
	return nil
}

func (k *Kubernetes) createConfig(ctx context.Context, strict bool) error {
	o, err := k.get(ctx, blocks.IPAMConfigs, configName)
	if err == nil && o != nil {
		err = changedf("%s exists by now", o)
	}
	if err != nil {
		return fmt.Errorf("setting strict affinity: %w", err)
	}
	tree := rawSpec(k.kind(blocks.IPAMConfigs), k.group, configName, map[string]any{
		"strictAffinity": strict, "autoAllocateBlocks": true,
	})
	if err := k.asCalico(tree, nil); err != nil {
		return err
	}
	ctx, done, err := k.finish(ctx)
	if err != nil {
		return err
	}
	defer done()
	_, err = k.create(ctx, blocks.IPAMConfigs, tree)
	return err
}
