package testcluster

import (
	"context"
	"encoding/json"
	"os"
	"testing"
)

// envHelper makes the test binary start a cluster, report it on stdout, and wait to be
// killed.
const envHelper = "CALICO_AUDIT_TESTCLUSTER_HELPER"

// helperReport is the output of the helper.
type helperReport struct {
	PIDs []int
	Dir  string
}

func TestMain(m *testing.M) {
	if os.Getenv(envHelper) != "" {
		helper()
	}
	os.Exit(m.Run())
}

func helper() {
	c, err := New(context.Background(), Options{})
	if err != nil {
		panic(err)
	}
	report := helperReport{Dir: c.dir}
	for _, s := range []*server{c.etcd, c.apiserver} {
		report.PIDs = append(report.PIDs, s.process.PID(), s.process.SupervisorPID())
	}
	if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
		panic(err)
	}
	select {}
}
