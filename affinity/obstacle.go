package affinity

import (
	"fmt"
	"slices"
	"strings"
)

func (s *search) block(k kindOfBlock, format string, args ...any) {
	o := obstacle{k, fmt.Sprintf(format, args...)}
	if !slices.Contains(s.obstacles, o) {
		s.obstacles = append(s.obstacles, o)
	}
}

// blockTo records an obstacle if y is the owner. Obstacles elsewhere would confuse readers.
func (s *search) blockTo(y *speaker, k kindOfBlock, format string, args ...any) {
	if y == s.owner {
		s.block(k, format, args...)
	}
}

// blockLoop records that the owner rejects the route because the path contains its own AS.
func (s *search) blockLoop(theirs side) {
	behind := fmt.Sprintf("AS %d (%s)", theirs.remoteAS, theirs.name())
	if theirs.localAS == s.user.as {
		s.block(blockLoop, "%s and %s share AS %d behind %s: a route that comes back with their own AS in its path is dropped", s.owner.Name, s.user.Name, theirs.localAS, behind)
		return
	}
	s.block(blockLoop, "%s drops the route from %s, because its own AS %d is in the path", s.owner.Name, behind, theirs.localAS)
}

// maxObstacles is the number of obstacles in a reason.
const maxObstacles = 2

func (s *search) reason() string {
	return fmt.Sprintf("%s, so %s never learns the address and its block's blackhole wins", s.why(), s.owner.Name)
}

func (s *search) why() string {
	off := ""
	if !s.r.s.BGP.Mesh {
		off = "the node-to-node mesh is off and "
	}
	switch {
	case !s.speaks(s.user):
		return fmt.Sprintf("%s records no %s address for BGP and announces nothing", s.user.Name, s.family)
	case !s.speaks(s.owner):
		return fmt.Sprintf("%s records no %s address for BGP and has no session", s.owner.Name, s.family)
	case !s.hasSession(s.owner):
		return off + s.alone(s.owner)
	case !s.hasSession(s.user):
		return off + s.alone(s.user)
	case len(s.obstacles) == 0:
		return fmt.Sprintf("%sno chain of BGP sessions leads from %s to %s", off, s.user.Name, s.owner.Name)
	}
	slices.SortStableFunc(s.obstacles, func(a, b obstacle) int { return int(a.kind) - int(b.kind) })
	var texts []string
	for _, o := range s.obstacles[:min(maxObstacles, len(s.obstacles))] {
		texts = append(texts, o.text)
	}
	if s.obstacles[0].kind < blockLoop {
		off = "" // the mesh would not help
	}
	return off + strings.Join(texts, ", and ")
}

func (s *search) alone(x *speaker) string {
	if s.r.s.BGP.Mesh && x.RouteReflectorID != "" {
		return fmt.Sprintf("%s is a route reflector (%s), which takes no part in the node-to-node mesh, and no BGPPeer gives it a session", x.Name, x.RouteReflectorID)
	}
	return fmt.Sprintf("no BGPPeer gives %s a session", x.Name)
}
