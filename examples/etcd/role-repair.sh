#!/bin/sh
# Makes the role calico-audit-repair in Calico's own etcd, and gives it to the user calico-audit,
# which role.sh makes: repairs also write Calico's IPAM objects, its IPReservations, and the
# records of the repairs themselves.
#
# Run it after role.sh, in the same way.
set -eu
etcdctl role add calico-audit-repair
etcdctl role grant-permission calico-audit-repair readwrite --prefix=true /calico/ipam/v2/assignment/
etcdctl role grant-permission calico-audit-repair readwrite --prefix=true /calico/ipam/v2/host/
etcdctl role grant-permission calico-audit-repair readwrite --prefix=true /calico/ipam/v2/handle/
etcdctl role grant-permission calico-audit-repair readwrite /calico/ipam/v2/config
etcdctl role grant-permission calico-audit-repair readwrite --prefix=true /calico/resources/v3/projectcalico.org/ipreservations/
etcdctl role grant-permission calico-audit-repair readwrite --prefix=true /calico-audit/runs/
etcdctl user grant-role calico-audit calico-audit-repair
