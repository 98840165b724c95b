package files

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// snapshot builds the snapshot from all objects read.
func (f *fileReader) snapshot(paths []string) (*blocks.Snapshot, error) {
	if f.objects == 0 {
		return nil, f.nothing(paths)
	}
	if len(f.ignored) > 0 && f.opts.WarnIgnored {
		f.warn("ignored %s: not part of an audit", strings.Join(f.ignoredKinds(), ", "))
	}
	if n := f.leftOut + f.skipped; n > 0 {
		f.warn("files or documents that are not Kubernetes objects, and were skipped: %d", n)
	}
	if f.info.mixed {
		f.warn("the files hold %d snapshots from different times, which are read as one", f.info.snapshots)
	}
	group, reason := f.chooseGroup()
	for l := range f.emptyLists { // the group that is not read may have others of the kind
		f.empty[l.kind.Resource] = f.empty[l.kind.Resource] || !l.kind.OfCalico() || group == "" || l.version == group
	}
	read := f.merge(group)
	if err := cmp.Or(f.clusters, f.afterAll(read)); err != nil {
		return nil, err
	}
	s := decode.NewSnapshot(read...)
	s.Cluster.Datastore, s.Cluster.Ageless = "files", f.info.ageless
	if !s.Cluster.Ageless { // else the snapshot's objects were in no API group
		s.Cluster.APIGroup, s.Cluster.APIGroupReason = group, reason
	}
	s.Cluster.TakenAt = f.opts.At.UTC()
	if f.opts.At.IsZero() {
		s.Cluster.TakenAt = f.info.takenAt
	}
	if s.Cluster.TakenAt.IsZero() {
		s.Cluster.TakenAt = f.newest
	}
	f.addMissing(s, read)
	if !f.opts.Budgets {
		for _, w := range s.Workloads { // only addMissing needed them
			w.Labels = nil
		}
	}
	// If a dump lacks one or both kinds of virtual machines, either someone omitted them or
	// the cluster has none. The dump does not show which.
	s.SetVMsKnown(func(r blocks.Resource) bool {
		return slices.ContainsFunc(read, func(o *decode.Objects) bool { return o.Kind.Resource == r && f.seen(o) })
	})
	s.ForgetAttachments()
	s.SetBudgetsKnown(f.opts.Budgets && len(s.Budgets) > 0)
	for r, empty := range f.empty {
		f.info.resources[r] = f.info.resources[r] || empty && slices.ContainsFunc(read, func(o *decode.Objects) bool { return o.Kind.Resource == r && o.Len() == 0 })
	}
	f.opts.Record.readWhole(f.info.resources)
	s.Sort()
	s.Share()
	return s, nil
}

// afterAll returns an error if the reference time for ages is before the data. Only times
// set by the API server count, because nodes' clocks may be wrong.
func (f *fileReader) afterAll(read []*decode.Objects) error {
	at := f.opts.At
	if at.IsZero() || at.Equal(f.info.takenAt) { // objects may be created while a snapshot is taken
		return nil
	}
	if at.Before(f.info.takenAt) {
		return fmt.Errorf("the time %s is before that of the data: the snapshot was taken at %s", at.Format(time.RFC3339), f.info.takenAt.Format(time.RFC3339))
	}
	for _, objects := range read {
		for i := range objects.Len() {
			if key, meta := objects.At(i); meta.Created.Std().After(at) {
				return fmt.Errorf("the time %s is before that of the data: %s %q was created at %s",
					at.Format(time.RFC3339), objects.Kind.Names[0], key, meta.Created.Std().Format(time.RFC3339))
			}
		}
	}
	return nil
}

// nothing returns the error for files without objects for an audit, with the kinds they
// hold.
func (f *fileReader) nothing(paths []string) error {
	text := strings.Join(paths, ", ") + ": no object that an audit reads"
	only := f.ignoredKinds()
	if f.why != nil && len(only) == 0 {
		return f.why
	}
	if f.ours != "" {
		return fmt.Errorf("%s: %s, an output of calico-audit: give its input, such as a snapshot", text, f.ours)
	}
	for _, k := range decode.OnDemand { // not enough for an audit on their own
		if n := f.core.of(k).Len(); n > 0 {
			only = append(only, countOf(n, k.Names[0]))
		}
	}
	if len(only) > 0 {
		text += ", only " + strings.Join(only, ", ")
	}
	if len(f.info.gaps) > 0 {
		text += "; " + f.info.gaps[0].String()
	}
	return errors.New(text)
}

// countOf formats a number of objects of a kind.
func countOf(n int, kind string) string {
	text := fmt.Sprintf("%d %s object", n, kind)
	if n > 1 {
		text += "s"
	}
	return text
}

// ignoredKinds lists the ignored kinds with their numbers of objects.
func (f *fileReader) ignoredKinds() []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(f.ignored)) {
		name, version, _ := strings.Cut(key, " ")
		text := countOf(f.ignored[key], name)
		if slices.ContainsFunc(slices.Concat(decode.Kinds, decode.OnDemand), func(k *decode.Kind) bool { return slices.Contains(k.Names, name) }) {
			text += " of " + version // the kind is read, but not of this version
		}
		out = append(out, text)
	}
	return out
}

// chooseGroup selects the API group if the files hold objects of both, as during a
// migration or if Calico's aggregated API was dumped with its CRDs. The rule is the same as
// for a live cluster.
func (f *fileReader) chooseGroup() (group, reason string) {
	crd, native := !f.crd.empty(), !f.native.empty()
	switch g := f.info.apiGroup; {
	case g == decode.GroupCRD || g == decode.GroupNative:
		return g, cmp.Or(f.info.reason, "recorded when the cluster was read")
	case crd && native && !f.crd.of(decode.KindOf(blocks.Blocks)).Found() && f.native.of(decode.KindOf(blocks.Blocks)).Found():
		return decode.GroupNative, "the files hold objects of both API groups, and blocks of " + decode.GroupNative + " alone"
	case crd && native:
		return decode.GroupCRD, "the files hold objects of both API groups: " + decode.GroupCRD + " counts, because Calico reads it as long as it exists"
	case crd:
		return decode.GroupCRD, "the files hold objects of this API group only"
	case native:
		return decode.GroupNative, "the files hold objects of this API group only"
	}
	return "", ""
}

// merge joins the objects of all groups. For each kind it takes the objects of the chosen group. If
// that has none, it takes those of the other group, such as pools dumped through the aggregated
// API.
func (f *fileReader) merge(group string) []*decode.Objects {
	chosen, other := f.crd, f.native
	if group == decode.GroupNative {
		chosen, other = other, chosen
	}
	var out []*decode.Objects
	for _, k := range slices.Concat(decode.Kinds, decode.OnDemand) {
		if !k.OfCalico() {
			f.once(f.core.of(k))
			out = append(out, f.core.of(k))
			continue
		}
		out = append(out, f.merged(chosen.of(k), other.of(k)))
	}
	return out
}

// merged returns the objects of the chosen group, or of the other group if the chosen has
// none, without duplicates.
func (f *fileReader) merged(chosen, other *decode.Objects) *decode.Objects {
	if chosen.Len() == 0 {
		f.once(other)
		if !chosen.Found() {
			chosen.Gaps = other.Gaps
		}
		chosen.Join(other)
		return chosen
	}
	f.once(chosen)
	have := map[blocks.Key]bool{}
	for i := range chosen.Len() {
		key, _ := chosen.At(i)
		have[key] = true
	}
	missing := 0
	for i := range other.Len() {
		if key, _ := other.At(i); !have[key] {
			missing++
		}
	}
	switch {
	case missing == 0:
	case f.native.of(decode.KindOf(blocks.Blocks)).Found(): // one of the groups counts
		f.warn("left out %d %s that only the other API group has", missing, chosen.Kind.Resource)
	default: // the aggregated API shows the objects of the other group
		chosen.Gaps = append(chosen.Gaps, blocks.Gap{Resource: chosen.Kind.Resource, Reason: fmt.Sprintf("those of %s lack %d that the files hold of %s", decode.GroupCRD, missing, decode.GroupNative)})
	}
	return chosen
}

// once removes duplicates: of several objects with the same name, it keeps the newest.
func (f *fileReader) once(objects *decode.Objects) {
	newest := make(map[blocks.Key]int, objects.Len())
	older := map[[2]string]bool{} // pairs of files, the older one first
	live := false
	var twice []string // names with several UIDs, which cannot coexist in one cluster
	for i := range objects.Len() {
		key, meta := objects.At(i)
		live = live || objects.Kind.OfCalico() && !objects.Kind.Record && meta.UID() != ""
		j, seen := newest[key]
		if !seen {
			newest[key] = i
			continue
		}
		_, have := objects.At(j)
		if have.UID() != meta.UID() && have.UID() != "" && meta.UID() != "" {
			twice = append(twice, key.String())
			if key.Name == objects.Kind.Lasts {
				f.clusters = fmt.Errorf("the files are from two clusters: %s %q has the UIDs %s and %s; give the files of one", objects.Kind.Names[0], key.Name, have.UID(), meta.UID())
			}
		}
		if from, to := f.fileOf(objects, j), f.fileOf(objects, i); from != to && have.Pin != meta.Pin {
			older[[2]string{from, to}] = !newer(have, meta)
			older[[2]string{to, from}] = newer(have, meta)
		}
		if !newer(have, meta) {
			newest[key] = i
		}
	}
	f.twoTimes(objects, older)
	var manifests []string // some objects that no cluster returned, and some that one did
	objects.Only(func(i int) bool {
		key, meta := objects.At(i)
		manifest := live && meta.UID() == ""
		if manifest && newest[key] == i {
			manifests = append(manifests, key.String())
		}
		return newest[key] == i && !manifest
	})
	if len(manifests) > 0 {
		f.warn("left out %s %s, which no cluster returned: manifests have no UID", objects.Kind.Resource, strings.Join(manifests, ", "))
	}
	switch n := len(twice); {
	case n > 0 && objects.Kind.OfCalico() && !objects.Kind.Record: // a setting is hardly ever created again
		objects.Gaps = append(objects.Gaps, blocks.Gap{Resource: objects.Kind.Resource, Reason: fmt.Sprintf("%q is in the files twice, with different UIDs: the files are from two clusters or from two points in time", twice[0])})
	case n == 1:
		f.warn("%s %q is in the files twice, with different UIDs: the newer one counts", objects.Kind.Resource, twice[0])
	case n > 1:
		f.warn("%s %q and %d more are in the files twice, with different UIDs: the newer one of each counts", objects.Kind.Resource, twice[0], n-1)
	}
}

// twoTimes adds a gap if one file holds most objects of another in newer versions, but lacks some:
// these may have been deleted since. A file of pods may hold a single namespace, so only its own
// namespaces count.
func (f *fileReader) twoTimes(objects *decode.Objects, older map[[2]string]bool) {
	for _, files := range slices.SortedFunc(maps.Keys(older), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		if !older[files] {
			continue
		}
		in, spaces, found, missing := map[blocks.Key]bool{}, map[string]bool{}, 0, []string{}
		for i := range objects.Len() {
			if key, _ := objects.At(i); f.fileOf(objects, i) == files[1] {
				in[key], spaces[key.Namespace] = true, true
			}
		}
		for i := range objects.Len() {
			switch key, _ := objects.At(i); {
			case f.fileOf(objects, i) != files[0] || !spaces[key.Namespace]:
			case in[key]:
				found++
			default:
				missing = append(missing, key.String())
			}
		}
		if found > len(missing) && len(missing) > 0 {
			objects.Gaps = append(objects.Gaps, blocks.Gap{Resource: objects.Kind.Resource, Reason: fmt.Sprintf(
				"%s is older than %s, which lacks %s: give files from the same time, because it may have been deleted since", files[0], files[1], missing[0])})
			return
		}
	}
}

// fileOf returns the file of an object.
func (f *fileReader) fileOf(objects *decode.Objects, i int) string {
	parts := f.parts[objects]
	n, _ := slices.BinarySearchFunc(parts, i, func(p part, i int) int { return cmp.Compare(p.from, i+1) })
	if n == 0 {
		return ""
	}
	return parts[n-1].file
}

// newer reports whether a counts and b does not. a was written later, by resourceVersion, or only a
// was read from a cluster (a manifest has no UID). If the versions are not comparable, the order of
// the files decides.
func newer(a, b *blocks.Meta) bool {
	if live := a.UID() != ""; live != (b.UID() != "") {
		return live
	}
	return a.WrittenAfter(b.Pin)
}

// assumes returns the assumption that the files hold all objects of the kinds that no snapshot has
// counted.
func (f *fileReader) assumes(s *blocks.Snapshot, read []*decode.Objects) []string {
	var all []string
	for _, o := range read {
		r := o.Kind.Resource
		if _, known := s.Missing(r); !known && !f.info.resources[r] && o.Kind.Absent != nil && !o.Kind.Single && o.Len() > 0 {
			all = append(all, fmt.Sprintf("%s (%d)", r, o.Len()))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return []string{"the files hold all " + strings.Join(all, ", ") + ", although a selector may have left some out"}
}

// addMissing adds gaps for kinds that verdicts need and that are missing or filtered, and warns of
// all missing kinds. It believes a snapshot's counts.
func (f *fileReader) addMissing(s *blocks.Snapshot, read []*decode.Objects) {
	s.Gaps = append(append(s.Gaps, f.info.gaps...), f.saidGaps(read)...)
	for i := range s.Gaps {
		if g := &s.Gaps[i]; g.Read != "" { // the user runs the command, so it is safe
			g.Read = rawCommands(read, []string{string(g.Resource)}, s.Cluster.APIGroup)
		}
	}
	var unseen, assumed []string
	if _, missing := s.Missing(blocks.Blocks); !missing {
		s.SetNewPodsAside() // a snapshot's reads are not simultaneous either
	}
	contradictions := map[blocks.Resource]string{} // as of all objects, before any gap
	for _, o := range read {
		if r := o.Kind.Resource; !f.info.resources[r] {
			contradictions[r] = s.Contradiction(r)
		}
	}
	for _, o := range read {
		k := o.Kind
		if _, known := s.Missing(k.Resource); known || slices.Contains(decode.OnDemand, k) {
			continue
		}
		seen, why := f.seen(o), k.Absent
		if seen {
			why = k.LeftOut
		}
		reason := ""
		if why != nil && !f.info.resources[k.Resource] {
			reason = why(s)
		}
		if o.Len() > 0 {
			reason = cmp.Or(reason, contradictions[k.Resource])
		}
		if reason != "" {
			s.Gaps = append(s.Gaps, blocks.Gap{Resource: k.Resource, Reason: reason, Read: rawCommands(read, []string{string(k.Resource)}, s.Cluster.APIGroup)})
		}
		switch {
		case seen:
		case reason != "":
			unseen = append(unseen, string(k.Resource))
		case k.Foreign == "" || slices.ContainsFunc(read, func(o *decode.Objects) bool { return o.Kind.Foreign == k.Foreign && o.Found() }):
			assumed = append(assumed, string(k.Resource))
		}
	}
	s.Cluster.Assumes = f.assumes(s, read)
	if why := s.KeptElsewhere(); why != "" {
		s.Gaps = append(s.Gaps, blocks.Gap{Resource: blocks.Blocks, Reason: why})
		if _, missing := s.Missing(blocks.Pools); !missing && len(s.Pools) == 0 {
			s.Gaps = append(s.Gaps, blocks.Gap{Resource: blocks.Pools, Reason: why})
		}
	}
	if len(unseen)+len(assumed) == 0 {
		return
	}
	var text []string
	if len(unseen) > 0 {
		text = append(text, "the files lack "+strings.Join(unseen, ", "))
	}
	if len(assumed) > 0 {
		text = append(text, "not in the files, and assumed to have no objects: "+strings.Join(assumed, ", "))
	}
	f.warn("%s. A file of \"calico-audit snapshot\" holds all kinds, as does: %s", strings.Join(text, "; "), rawCommands(read, slices.Concat(unseen, assumed), s.Cluster.APIGroup))
}

// rawCommands returns the shell commands that write the lists of these kinds as the API server
// serves them. Unlike kubectl's own output, these name an empty kind and keep managedFields.
func rawCommands(read []*decode.Objects, kinds []string, group string) string {
	group = cmp.Or(group, decode.GroupCRD)
	byDir := map[string][]string{} // Kubernetes' and Calico's own kinds
	var dirs, commands []string
	for _, o := range read {
		at := o.Kind.Path(group, "")
		switch dir, name := path.Split(at); {
		case !slices.Contains(kinds, string(o.Kind.Resource)):
		case o.Kind.Foreign != "": // Whereabouts has an IPPool, too
			commands = append(commands, fmt.Sprintf("kubectl get --raw %s >%s.json", at, o.Kind.Resource))
		default:
			if byDir[dir] == nil {
				dirs = append(dirs, dir)
			}
			byDir[dir] = append(byDir[dir], name)
		}
	}
	for _, dir := range dirs {
		if names := byDir[dir]; len(names) == 1 {
			commands = append(commands, fmt.Sprintf("kubectl get --raw %s%[2]s >%[2]s.json", dir, names[0]))
		} else {
			commands = append(commands, fmt.Sprintf("for r in %s; do kubectl get --raw %s$r >$r.json; done", strings.Join(names, " "), dir))
		}
	}
	return strings.Join(commands, "; ")
}
