package etcd

import (
	"context"
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/calico-audit/calico-audit/repair/datastore"
)

// TestResponse: errors of etcd's client that are refusals become refusals. Errors after which the
// write may have been carried out do not.
func TestResponse(t *testing.T) {
	for err, want := range map[error]datastore.Response{
		rpctypes.ErrPermissionDenied:                           {Refused: true},
		rpctypes.ErrInvalidAuthToken:                           {Refused: true},
		rpctypes.ErrRequestTooLarge:                            {Refused: true},
		rpctypes.ErrTooManyRequests:                            {Refused: true, Busy: true},
		rpctypes.ErrNoSpace:                                    {},
		rpctypes.ErrTimeout:                                    {},
		rpctypes.ErrLeaderChanged:                              {},
		context.DeadlineExceeded:                               {},
		rpctypes.Error(rpctypes.ErrGRPCTimeoutDueToLeaderFail): {},
	} {
		var got *datastore.Response
		is := errors.As(response(err), &got)
		if is != want.Refused || is && (got.Refused != want.Refused || got.Busy != want.Busy) {
			t.Errorf("%v: %+v", err, got)
		}
	}
}
