#!/bin/sh
# Makes the role calico-audit in Calico's own etcd, and a user of that name. The role may read
# what an audit reads, and nothing else: no policies, no other keys, and no writes. The keys under
# /calico-audit/runs/ are this program's records of repairs.
#
# Run it as a user with the role root, with the environment of etcdctl (ETCDCTL_ENDPOINTS,
# ETCDCTL_CACERT, ETCDCTL_CERT, ETCDCTL_KEY, ETCDCTL_USER). Roles have an effect only if
# etcd's authentication is enabled. etcdctl asks for the new user's password; for a client
# certificate with the common name calico-audit, add --no-password to "user add".
set -eu
etcdctl role add calico-audit
etcdctl role grant-permission calico-audit read --prefix=true /calico/ipam/v2/assignment/
etcdctl role grant-permission calico-audit read --prefix=true /calico/ipam/v2/host/
etcdctl role grant-permission calico-audit read --prefix=true /calico/ipam/v2/virtual/
etcdctl role grant-permission calico-audit read --prefix=true /calico/ipam/v2/handle/
etcdctl role grant-permission calico-audit read /calico/ipam/v2/config
etcdctl role grant-permission calico-audit read --prefix=true /calico/resources/v3/projectcalico.org/ippools/
etcdctl role grant-permission calico-audit read --prefix=true /calico/resources/v3/projectcalico.org/ipreservations/
etcdctl role grant-permission calico-audit read --prefix=true /calico/resources/v3/projectcalico.org/clusterinformations/
etcdctl role grant-permission calico-audit read --prefix=true /calico/resources/v3/projectcalico.org/kubecontrollersconfigurations/
etcdctl role grant-permission calico-audit read --prefix=true /calico/resources/v3/projectcalico.org/felixconfigurations/
etcdctl role grant-permission calico-audit read --prefix=true /calico/resources/v3/projectcalico.org/bgpconfigurations/
etcdctl role grant-permission calico-audit read --prefix=true /calico/resources/v3/projectcalico.org/bgppeers/
etcdctl role grant-permission calico-audit read --prefix=true /calico/resources/v3/projectcalico.org/bgpfilters/
etcdctl role grant-permission calico-audit read --prefix=true /calico/resources/v3/projectcalico.org/nodes/
etcdctl role grant-permission calico-audit read --prefix=true /calico/resources/v3/projectcalico.org/workloadendpoints/
etcdctl role grant-permission calico-audit read --prefix=true /calico/resources/v3/projectcalico.org/hostendpoints/
etcdctl role grant-permission calico-audit read --prefix=true /calico-audit/runs/
etcdctl user add calico-audit
etcdctl user grant-role calico-audit calico-audit
