package decode

import "testing"

// TestControllersAreTold: owners share a value only if UID, kind and name are the same.
func TestControllersAreTold(t *testing.T) {
	s := &SharedStrings{}
	owner := func(uid, kind, name string) ownerRef {
		return ownerRef{uid: []byte(uid), kind: []byte(kind), name: []byte(name)}
	}
	one, other := s.controller(owner("1", "Set", "web")), s.controller(owner("1", "SetOf", "web"))
	if moved := s.controller(owner("1", "Setw", "eb")); one == other || one == moved || moved.Kind != "Setw" || moved.Name != "eb" {
		t.Errorf("an owner is taken for another: %+v, %+v, %+v", one, other, moved)
	}
	if again := s.controller(owner("1", "Set", "web")); again != one {
		t.Errorf("%+v is not shared", again)
	}
}
