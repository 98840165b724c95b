package programs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

const (
	mainModule   = "github.com/calico-audit/calico-audit"
	calicoModule = "github.com/projectcalico/calico"
)

// ModuleRoot returns the directory of the main module's go.mod. It searches from the
// working directory upwards. The compiler's recorded paths do not help, because -trimpath
// removes directories.
func ModuleRoot() (string, error) { return moduleRoot() }

var moduleRoot = sync.OnceValues(func() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for start := dir; ; dir = filepath.Dir(dir) {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		switch {
		case err == nil && isMainModule(content):
			return dir, nil
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return "", err
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod of %s in %s or above", mainModule, start)
		}
	}
})

func isMainModule(goMod []byte) bool {
	for line := range bytes.Lines(goMod) {
		if strings.TrimSpace(string(line)) == "module "+mainModule {
			return true
		}
	}
	return false
}

// packageDir returns the path of a directory below package testcluster.
func packageDir(sub string) (string, error) {
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, "internal", "testcluster", filepath.FromSlash(sub)), nil
}

// CalicoDir returns the directory of the Calico module that the main module uses.
func CalicoDir(ctx context.Context) (string, error) {
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}
	out, err := goCommand(ctx, root, "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", calicoModule)
	if err != nil {
		return "", err
	}
	dir := strings.TrimSpace(string(out))
	if dir == "" {
		return "", errors.New("the Calico module is not in the module cache: run go mod download")
	}
	return dir, nil
}

// CalicoRelease returns the Calico release that the main module uses, such as v3.31.0. go.mod names
// it in the comment after the commit.
func CalicoRelease() (string, error) {
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}
	return moduleRelease(root, calicoModule)
}
