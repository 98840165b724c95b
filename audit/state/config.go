package state

// Migrating reports whether Calico's objects are moving to the other API group, or both groups
// serve blocks. Any lock of the datastore is then the migration's.
func (st *State) Migrating() bool { return len(st.Migrations) > 0 || st.Cluster.OtherGroup != "" }
