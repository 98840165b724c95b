package datastore

import (
	"context"
	"errors"
	"fmt"

	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// SetStrictAffinity writes only this setting. If the object does not exist, it is created
// with automatic blocks on and no limit, as Calico's client creates it (libcalico-go
// ipam/ipam.go, GetIPAMConfig). Combinations that Calico rejects (SetIPAMConfig) are not
// written.
func (w *Writer) SetStrictAffinity(ctx context.Context, config *repair.ObjectRef, strict bool) error {
	if config == nil {
		return w.createConfig(ctx, strict)
	}
	return w.step(ctx, "setting strict affinity in", *config, func(_ context.Context, o *object) error {
		return mayBeStrict(o, strict, w.native())
	}, func(ctx context.Context, o *object) error {
		e := newEdit(o)
		e.set(strict, "spec", "strictAffinity")
		_, err := w.patch(ctx, o, e)
		return err
	})
}

// mayBeStrict returns an error if Calico would reject the resulting configuration.
func mayBeStrict(o *object, strict, native bool) error {
	if o.name() != libapiv3.GlobalIPAMConfigName {
		return fmt.Errorf("%s is not the one that Calico reads", o)
	}
	if strict {
		return nil
	}
	automatic := native // default of the newer group
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

func (w *Writer) createConfig(ctx context.Context, strict bool) error {
	o, err := w.get(ctx, blocks.IPAMConfigs, libapiv3.GlobalIPAMConfigName)
	var tree map[string]any
	return w.stepOn(ctx, "setting strict affinity", o, err, func(_ context.Context, o *object) (err error) {
		if o != nil {
			return changedf("%s exists by now", o)
		}
		tree, err = w.newObject(blocks.IPAMConfigs, libapiv3.GlobalIPAMConfigName, libapiv3.IPAMConfigSpec{StrictAffinity: strict, AutoAllocateBlocks: true}, nil, nil)
		return err
	}, func(ctx context.Context, _ *object) error {
		_, err := w.create(ctx, blocks.IPAMConfigs, tree)
		return err
	})
}
