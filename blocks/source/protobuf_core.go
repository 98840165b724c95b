package source

import "github.com/calico-audit/calico-audit/blocks"

// protoPod reads a Pod, as pod does.
func (d *decoder) protoPod(msg []byte) (blocks.Workload, error) {
	b := podBuilder{d: d}
	p := &b.pod
	var failed error
	within(&failed, msg, func(f protoField) {
		switch int(f.num) {
		case 1: // metadata
			if err := d.protoMeta(f.bytes, &p.Meta, b.hooks()); err != nil {
				failed = err
			}
		case 2: // spec
			within(&failed, f.bytes, func(f protoField) {
				switch int(f.num) {
				case 10:
					p.Node = d.str(f.bytes)
				case 11:
					p.HostNetwork = f.value != 0
				}
			})
		case 3: // status
			within(&failed, f.bytes, func(f protoField) {
				switch int(f.num) {
				case 1:
					p.Phase = d.str(f.bytes)
				case 6:
					b.podIP = f.bytes
				case 7:
					p.Started = protoTime(f.bytes)
				case 12:
					within(&failed, f.bytes, func(f protoField) {
						if f.num == 1 {
							b.statusIP(f.bytes)
						}
					})
				}
			})
		}
	})
	if failed != nil {
		return b.pod, failed
	}
	return b.finish(), nil
}

// protoNode reads a Node, as node does.
func (d *decoder) protoNode(msg []byte) (blocks.Node, error) {
	b := nodeBuilder{d: d}
	var failed error
	within(&failed, msg, func(f protoField) {
		switch int(f.num) {
		case 1: // metadata
			hooks := metaHooks{label: b.label, annotation: b.annotation}
			if err := d.protoMeta(f.bytes, &b.node.Meta, hooks); err != nil {
				failed = err
			}
		case 2: // spec
			within(&failed, f.bytes, func(f protoField) {
				switch int(f.num) {
				case 4:
					b.node.Unschedulable = f.value != 0
				case 5:
					var key, effect []byte
					within(&failed, f.bytes, func(f protoField) {
						switch int(f.num) {
						case 1:
							key = f.bytes
						case 3:
							effect = f.bytes
						}
					})
					b.taint(key, effect)
				}
			})
		case 3: // status
			within(&failed, f.bytes, func(f protoField) { b.protoStatus(&failed, f) })
		}
	})
	if failed != nil {
		return b.node, failed
	}
	return b.finish(), nil
}

func (b *nodeBuilder) protoStatus(failed *error, f protoField) {
	switch int(f.num) {
	case 2: // an entry of allocatable
		var name, quantity []byte
		within(failed, f.bytes, func(f protoField) {
			switch int(f.num) {
			case 1:
				name = f.bytes
			case 2:
				within(failed, f.bytes, func(f protoField) {
					if f.num == 1 {
						quantity = f.bytes
					}
				})
			}
		})
		if string(name) == "pods" {
			b.allocatablePods(quantity)
		}
	case 4: // a condition
		var kind, status []byte
		within(failed, f.bytes, func(f protoField) {
			switch int(f.num) {
			case 1:
				kind = f.bytes
			case 2:
				status = f.bytes
			}
		})
		b.condition(string(kind), string(status))
	case 7: // nodeInfo
		within(failed, f.bytes, func(f protoField) {
			if f.num == 9 {
				b.operatingSystem(f.bytes)
			}
		})
	}
}

// protoNamespace reads a Namespace, as namespace does.
func (d *decoder) protoNamespace(msg []byte) (blocks.Namespace, error) {
	b := namespaceBuilder{d: d}
	var failed error
	within(&failed, msg, func(f protoField) {
		if f.num != 1 {
			return
		}
		hooks := metaHooks{label: b.label, annotation: b.annotation}
		if err := d.protoMeta(f.bytes, &b.ns.Meta, hooks); err != nil {
			failed = err
		}
	})
	if failed != nil {
		return b.ns, failed
	}
	return b.finish(), nil
}
