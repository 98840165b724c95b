package storm

import (
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestSecondaryHistorySeesViolations checks that the checker of the secondary network's
// storm detects each kind of violation, and nothing in a correct history.
func TestSecondaryHistorySeesViolations(t *testing.T) {
	const mine, reserved, none = `"7":{"id":"c1","podref":"default/a","ifname":"net1"}`, "default/a", ""
	for _, c := range []struct {
		name string
		// pools and reservations are the stored content at revisions 1, 2 and so on. The
		// address is in use from revision 1.
		pools, reservations []string
		lost                bool // its ADD failed to write the pool
		want                string
	}{
		{"in good order", []string{mine, mine + `,"8":{"id":"c2","podref":"default/b"}`, mine}, []string{reserved, reserved, reserved}, false, ""},
		{"freed", []string{mine, ""}, []string{reserved, reserved}, false, `is recorded for "" () at revision 2`},
		{"freed, and recorded again", []string{mine, "", mine}, []string{reserved, reserved, reserved}, false, `is recorded for "" () at revision 2`},
		{"another pod's", []string{mine, strings.ReplaceAll(mine, "/a", "/b")}, []string{reserved, reserved}, false, `is recorded for "default/b" (c1) at revision 2`},
		{"another sandbox's", []string{mine, strings.ReplaceAll(mine, "c1", "c2")}, []string{reserved, reserved}, false, `is recorded for "default/a" (c2) at revision 2`},
		{"never recorded", []string{""}, []string{none}, false, `is recorded for "" () at revision 1`},
		{"reserved alone, and recorded later", []string{"", mine}, []string{reserved, reserved}, true, ""},
		{"reserved alone, and freed", []string{"", ""}, []string{reserved, none}, true, "is neither recorded nor reserved for it at revision 2"},
		{"reserved alone, and another pod's", []string{"", ""}, []string{reserved, "default/b"}, true, "is neither recorded nor reserved for it at revision 2"},
		{"recorded later, and freed", []string{"", mine, ""}, []string{reserved, reserved, reserved}, true, `is recorded for "" () at revision 3`},
		{"the reservation is deleted and comes back", []string{mine, mine, mine}, []string{reserved, none, reserved}, false, ""},
	} {
		h := &secondaryHistory{}
		for i, entries := range c.pools {
			stored := func(key, spec string) {
				kv := &mvccpb.KeyValue{Key: []byte(whereaboutsPrefix + key), ModRevision: int64(i + 1), Value: []byte(`{"spec":` + spec + `}`)}
				e := &clientv3.Event{Type: mvccpb.PUT, Kv: kv}
				if spec == "" {
					e.Type, kv.Value = mvccpb.DELETE, nil
				}
				h.take(e)
			}
			stored("ippools/kube-system/"+secondaryPool, `{"range":"10.9.0.0/26","allocations":{`+entries+`}}`)
			reservation := ""
			if c.reservations[i] != none {
				reservation = fmt.Sprintf(`{"podref":%q}`, c.reservations[i])
			}
			stored("overlappingrangeipreservations/kube-system/10.9.0.7", reservation)
		}
		u := &secondaryUse{secondaryOwner: secondaryOwner{"default/a", "c1"}, addr: secondaryAddr(7), from: 1, inPool: !c.lost}
		if got := h.violation(u, int64(len(c.pools))); got != c.want || len(h.wrong) > 0 {
			t.Errorf("%s: the history says %q (%v), and should say %q", c.name, got, h.wrong, c.want)
		}
	}
}
