package source

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
)

// defaultName is the name of the one object of a configuration kind that counts
// for the whole cluster.
const defaultName = "default"

// configObject reads metadata and spec of an object. It returns false if the
// object is not to be kept: because it is broken, which is a gap of the whole
// resource, or because it is not the one named "default".
func (d *decoder) configObject(r *jsonReader, res blocks.Resource, m *blocks.Meta, spec func(key []byte)) bool {
	r.object(func(key []byte) {
		switch string(key) {
		case "metadata":
			d.meta(r, m, metaHooks{})
		case "spec":
			r.object(spec)
		}
	})
	if r.err != nil {
		return false
	}
	checkName(r, m)
	if m.Name != "" && m.Name != defaultName {
		return false
	}
	if len(r.faults) > 0 {
		// There is one such object, so that without it the whole resource is
		// unknown: Calico's defaults must not be taken for it.
		f := r.faults[0]
		d.out.gaps = append(d.out.gaps, blocks.Gap{
			Resource: res, Field: f.field, Source: d.source,
			Reason: fmt.Sprintf("object %q: %s", cmp.Or(m.Name, noName), strings.TrimSpace(f.field+" "+f.reason)),
		})
		return false
	}
	return true
}

// ipamConfig reads Calico's IPAM configuration: an IPAMConfig of the older API
// group, or an IPAMConfiguration of the newer, whose API server fills in
// autoAllocateBlocks where it is absent.
func (d *decoder) ipamConfig(r *jsonReader) {
	c := blocks.IPAMConfig{Present: true, AutoAllocateBlocks: d.native}
	if d.configObject(r, blocks.IPAMConfigs, &c.Meta, func(key []byte) {
		switch string(key) {
		case "strictAffinity":
			c.StrictAffinity, _ = r.boolean()
		case "autoAllocateBlocks":
			if !r.null() {
				c.AutoAllocateBlocks, _ = r.boolean()
			}
		case "maxBlocksPerHost":
			n, _ := r.int32()
			c.MaxBlocksPerHost = int(n)
		case "ipCooldownSeconds":
			n, _ := r.int32()
			c.Cooldown = time.Duration(n) * time.Second
		}
	}) {
		d.out.ipam = append(d.out.ipam, c)
	}
}

// clusterInfo reads the ClusterInformation.
func (d *decoder) clusterInfo(r *jsonReader) {
	c := blocks.ClusterInfo{Present: true}
	if d.configObject(r, blocks.ClusterInfos, &c.Meta, func(key []byte) {
		switch string(key) {
		case "clusterGUID":
			c.GUID = d.text(r)
		case "calicoVersion":
			c.CalicoVersion = d.text(r)
		case "datastoreReady":
			ready, set := r.boolean()
			c.Locked = set && !ready
		}
	}) {
		d.out.infos = append(d.out.infos, c)
	}
}

// controllersConfig reads the KubeControllersConfiguration.
func (d *decoder) controllersConfig(r *jsonReader) {
	c := blocks.ControllersConfig{Present: true}
	if d.configObject(r, blocks.ControllerConfig, &c.Meta, func(key []byte) {
		if string(key) != "controllers" {
			return
		}
		r.object(func(key []byte) {
			if string(key) != "node" {
				return
			}
			c.NodeController = r.object(func(key []byte) {
				if string(key) == "leakGracePeriod" {
					c.LeakGrace, c.LeakGraceSet = duration(r)
				}
			})
		})
	}) {
		d.out.controllers = append(d.out.controllers, c)
	}
}

// duration reads a duration such as "15m0s".
func duration(r *jsonReader) (time.Duration, bool) {
	s, ok := r.str()
	if !ok {
		return 0, false
	}
	v, err := time.ParseDuration(string(s))
	if err != nil {
		r.fault(notA("duration", s))
		return 0, false
	}
	return v, true
}

// felixConfig reads the FelixConfiguration.
func (d *decoder) felixConfig(r *jsonReader) {
	c := blocks.FelixConfig{Present: true}
	if d.configObject(r, blocks.FelixConfigs, &c.Meta, func(key []byte) {
		switch string(key) {
		case "bpfEnabled":
			c.BPFEnabled, _ = r.boolean()
		case "programClusterRoutes":
			c.ProgramClusterRoutes = d.text(r)
		case "routeSource":
			c.RouteSource = d.text(r)
		}
	}) {
		d.out.felix = append(d.out.felix, c)
	}
}

// poolNames reads the pools that a pod or namespace asks for: a JSON list of
// names and CIDRs (cni-plugin pkg/k8s/k8s.go). An empty text asks for none.
func (d *decoder) poolNames(value []byte) ([]string, bool) {
	if len(value) == 0 {
		return nil, true
	}
	var names []string
	if err := json.Unmarshal(value, &names); err != nil {
		return nil, false
	}
	for i, n := range names {
		names[i] = d.str([]byte(n))
	}
	return names, true
}
