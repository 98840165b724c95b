package lab

import apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

// singles4 and singles6 reject routes to single addresses of the pools.
var (
	bits4, bits6 = int32(32), int32(128)

	singles4 = []apiv3.BGPFilterRuleV4{{
		CIDR: pools[0].String(), MatchOperator: apiv3.In, Action: apiv3.Reject,
		PrefixLength: &apiv3.BGPFilterPrefixLengthV4{Min: &bits4},
	}}
	singles6 = []apiv3.BGPFilterRuleV6{{
		CIDR: pools[1].String(), MatchOperator: apiv3.In, Action: apiv3.Reject,
		PrefixLength: &apiv3.BGPFilterPrefixLengthV6{Min: &bits6},
	}}
)

// ofPods4 and ofPods6 reject routes to the node's own pods.
var (
	ofPods4 = []apiv3.BGPFilterRuleV4{{CIDR: pools[0].String(), MatchOperator: apiv3.In, Interface: "cali*", Action: apiv3.Reject}}
	ofPods6 = []apiv3.BGPFilterRuleV6{{CIDR: pools[1].String(), MatchOperator: apiv3.In, Interface: "cali*", Action: apiv3.Reject}}
)

// accept4 and accept6 accept routes to single addresses of the pools.
var (
	accept4 = accepting4(singles4[0])
	accept6 = accepting6(singles6[0])
)

func accepting4(r apiv3.BGPFilterRuleV4) []apiv3.BGPFilterRuleV4 {
	r.Action = apiv3.Accept
	return []apiv3.BGPFilterRuleV4{r}
}

func accepting6(r apiv3.BGPFilterRuleV6) []apiv3.BGPFilterRuleV6 {
	r.Action = apiv3.Accept
	return []apiv3.BGPFilterRuleV6{r}
}
