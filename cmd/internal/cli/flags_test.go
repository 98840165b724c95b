package cli

import (
	"bytes"
	"errors"
	"regexp"
	"testing"

	"k8s.io/klog/v2"
)

// TestLibraryErrorsAreLogged: errors of client-go appear in the exporter's log, its other
// messages do not.
func TestLibraryErrorsAreLogged(t *testing.T) {
	t.Cleanup(klog.ClearLogger)
	var out bytes.Buffer
	if err := (&logFlag{format: "text"}).logLibraryErrors(&out); err != nil {
		t.Fatal(err)
	}
	klog.TODO().Error(errors.New("token: no such file"), "Unable to rotate token")
	klog.Background().WithName("reflector").WithValues("kind", "pods").Error(nil, "Failed")
	klog.Errorf("no %s", "CA")
	klog.Background().Info("Trace of a slow list")
	klog.Infof("Trace")
	klog.Warning("warning")
	const want = `level=ERROR msg="Unable to rotate token" err="token: no such file"
level=ERROR msg=Failed kind=pods logger=reflector
level=ERROR msg="no CA"
`
	if got := regexp.MustCompile(`(?m)^time=\S+ `).ReplaceAllString(out.String(), ""); got != want {
		t.Errorf("logged\n%swant\n%s", got, want)
	}
}
