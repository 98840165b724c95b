package testcluster

import (
	"context"
	"fmt"
)

// Native is the story stored in the group projectcalico.org/v3 alone, as by a
// Calico v3.32 or later that was migrated to it. The CRDs of
// crd.projectcalico.org/v1 are gone then.
func Native(ctx context.Context, c *Cluster) error {
	if err := c.InstallCRDs(ctx, CRDv1); err != nil {
		return fmt.Errorf("making the native story: %w", err)
	}
	if err := Story(ctx, c); err != nil {
		return err
	}
	return MoveToNative(ctx, c)
}

// MoveToNative moves all Calico objects that an audit reads from
// crd.projectcalico.org/v1 to projectcalico.org/v3, as the end of a migration
// leaves them: the CRDs of the former are gone.
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
