// Package programs builds the programs that tests use and keeps them in the user's cache
// directory. Separate Go modules in ../binaries set their versions. The first build takes
// several minutes; run
//
//	go run ./internal/testcluster/prepare
//
// before the first go test, because it takes longer than go test's default timeout. If
// KUBEBUILDER_ASSETS is set, that directory provides etcd, kube-apiserver and kubectl
// instead.
package programs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// program is an executable that Binary can build.
type program struct {
	// dir is the module that builds the program, relative to this package's parent
	// directory.
	dir string
	// pkg is the main package and module its module. The module's version in dir's go.mod
	// is the program's version.
	pkg, module string
	// versionVar is the variable to set to the version, if the program does not read its
	// build information.
	versionVar string
	// release reports whether versionVar gets the release in the comment of the
	// requirement, because the module's own version is a commit.
	release bool
	// cold is the build time without caches on two cores, as text.
	cold string
}

// envAssets names a directory with etcd, kube-apiserver and kubectl. Tests of controllers
// commonly use the same variable.
const envAssets = "KUBEBUILDER_ASSETS"

const apiModule = "github.com/projectcalico/api"

var programs = map[string]program{
	"etcd": {
		dir: "binaries", pkg: "go.etcd.io/etcd/server/v3", module: "go.etcd.io/etcd/server/v3",
		cold: "1 minute",
	},
	"kube-apiserver": {
		dir: "binaries", pkg: "k8s.io/kubernetes/cmd/kube-apiserver", module: "k8s.io/kubernetes",
		versionVar: "k8s.io/component-base/version.gitVersion", cold: "6 minutes",
	},
	"kube-scheduler": {
		dir: "binaries", pkg: "k8s.io/kubernetes/cmd/kube-scheduler", module: "k8s.io/kubernetes",
		versionVar: "k8s.io/component-base/version.gitVersion", cold: "1 minute",
	},
	"kube-controller-manager": {
		dir: "binaries", pkg: "k8s.io/kubernetes/cmd/kube-controller-manager", module: "k8s.io/kubernetes",
		versionVar: "k8s.io/component-base/version.gitVersion", cold: "3 minutes",
	},
	"kubectl": {
		dir: "binaries/kubectl", pkg: ".", module: "k8s.io/kubectl", cold: "2 minutes",
	},
	"helm": {
		dir: "binaries/helm", pkg: "helm.sh/helm/v3/cmd/helm", module: "helm.sh/helm/v3", cold: "2 minutes",
	},
	"calicoctl": {
		dir: "binaries/calico", pkg: "github.com/projectcalico/calico/calicoctl/calicoctl",
		module:     calicoModule,
		versionVar: calicoModule + "/pkg/buildinfo.Version", release: true, cold: "3 minutes",
	},
	"confd": {
		dir: "binaries/calico", pkg: "github.com/projectcalico/calico/confd",
		module:     calicoModule,
		versionVar: calicoModule + "/pkg/buildinfo.Version", release: true, cold: "1 minute",
	},
	"kube-controllers": {
		dir: "binaries/calico", pkg: "github.com/projectcalico/calico/kube-controllers/cmd/kube-controllers",
		module:     calicoModule,
		versionVar: calicoModule + "/pkg/buildinfo.Version", release: true, cold: "4 minutes",
	},
	"calico-ipam": { // under the name calico it is the CNI plugin
		dir: "binaries/cni", pkg: "github.com/projectcalico/calico/cni-plugin/cmd/calico",
		module:     calicoModule,
		versionVar: calicoModule + "/pkg/buildinfo.Version", release: true, cold: "1 minute",
	},
	"calico-apiserver": {
		dir: "binaries/apiserver", pkg: "github.com/projectcalico/calico/apiserver/cmd/apiserver",
		module:     calicoModule,
		versionVar: calicoModule + "/pkg/buildinfo.Version", release: true, cold: "4 minutes",
	},
	"controller-gen": {
		dir: "binaries/crds", pkg: "sigs.k8s.io/controller-tools/cmd/controller-gen",
		module: "sigs.k8s.io/controller-tools", cold: "30 seconds",
	},
}

// Chains lists the programs that tests use. Programs of one chain share most packages, so
// each is cheap to build after the previous one. The chains share few packages, so
// building them in parallel saves time.
var Chains = [][]string{
	{"etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubectl", "helm"},
	{"calicoctl", "confd", "kube-controllers", "calico-ipam", "calico-apiserver"},
}

// Binary returns the path of a server or tool. If the user's cache directory does not
// have it, Binary builds it and logs that to stderr. Other processes that need the same
// program wait. Binary supports the programs in [Chains] and controller-gen. Programs in
// the directory KUBEBUILDER_ASSETS take precedence.
//
// The version comes from the go.mod of the module that builds the program. A change of
// that module, of the Go release or of the platform causes a new build.
func Binary(ctx context.Context, name string) (string, error) {
	p, ok := programs[name]
	if !ok {
		return "", fmt.Errorf("no such program: %q", name)
	}
	if dir := os.Getenv(envAssets); dir != "" {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	dir, err := packageDir(p.dir)
	if err != nil {
		return "", err
	}
	version, err := Version(ctx, name)
	if err != nil {
		return "", err
	}
	key, err := buildKey(ctx, dir)
	if err != nil {
		return "", err
	}
	// Name the file after the program, because programs show their name. The API server
	// records it as field manager, for example.
	dirPath, err := CachePath(name + "-" + version + "-" + key)
	if err != nil {
		return "", err
	}
	err = once(dirPath, func(tmp string) error {
		args := []string{"build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-o", filepath.Join(tmp, name)}
		flags := "-s -w" // not debugged; links faster
		if p.versionVar != "" {
			flags += " -X " + p.versionVar + "=" + version
		}
		args = append(args, "-ldflags", flags)
		progress("building %s %s, which tests need (up to %s, once; \"go test -short\" leaves them out)", name, version, p.cold)
		start := time.Now()
		if _, err := goCommand(ctx, dir, append(args, p.pkg)...); err != nil {
			return err
		}
		progress("built %s in %s", name, time.Since(start).Round(time.Second))
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("building %s: %w", name, err)
	}
	return filepath.Join(dirPath, name), nil
}

// Version returns the version of a program that Binary supports, such as v1.36.3. It is
// the version in go.mod. Modules of Calico's own programs have no usable tags, so for
// these it is the release in the comment of the requirement.
func Version(ctx context.Context, name string) (string, error) {
	p, ok := programs[name]
	if !ok {
		return "", fmt.Errorf("no such program: %q", name)
	}
	dir, err := packageDir(p.dir)
	if err != nil {
		return "", err
	}
	if p.release {
		return moduleRelease(dir, p.module)
	}
	return moduleVersion(ctx, dir, p.module)
}

// once creates the directory at path, unless it exists, by calling make with a temporary path in
// the same directory. A lock lets one process at a time call make, and no process sees an
// incomplete directory.
func once(path string, make func(tmp string) error) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	unlock, err := lockFile(path + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	tmp := path + ".tmp"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := make(tmp); err != nil {
		_ = os.RemoveAll(tmp)
		return err
	}
	return os.Rename(tmp, path)
}

// CachePath returns the path of a name in this package's part of the user's cache
// directory, and creates that part.
func CachePath(name string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache directory: %w", err)
	}
	dir := filepath.Join(cache, "calico-audit", "testcluster")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making the cache directory: %w", err)
	}
	return filepath.Join(dir, name), nil
}

// buildKey identifies the builds of a module by Go release, platform and the content of
// go.mod and go.sum, which pins every dependency.
func buildKey(ctx context.Context, dir string) (string, error) {
	goVersion, err := goCommand(ctx, dir, "env", "GOVERSION")
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		hash.Write(content)
	}
	return strings.Join([]string{
		strings.TrimSpace(string(goVersion)), runtime.GOOS, runtime.GOARCH,
		hex.EncodeToString(hash.Sum(nil))[:12],
	}, "-"), nil
}

// moduleVersion returns the version of a requirement in dir's go.mod.
func moduleVersion(ctx context.Context, dir, module string) (string, error) {
	out, err := goCommand(ctx, dir, "mod", "edit", "-json")
	if err != nil {
		return "", err
	}
	var mod struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		return "", fmt.Errorf("reading go.mod of %s: %w", dir, err)
	}
	for _, r := range mod.Require {
		if r.Path == module {
			return r.Version, nil
		}
	}
	return "", fmt.Errorf("go.mod of %s does not require %s", dir, module)
}

// moduleRelease returns the release in the comment of a requirement in dir's go.mod.
func moduleRelease(dir, module string) (string, error) {
	content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) == 4 && fields[0] == module && fields[2] == "//" {
			return fields[3], nil
		}
	}
	return "", fmt.Errorf("go.mod of %s names no release beside %s", dir, module)
}

// goCommand runs the go command in dir and returns its stdout.
func goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	return runIn(ctx, dir, "go", args...)
}

// runIn runs a program in dir and returns its stdout.
func runIn(ctx context.Context, dir, path string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = dir
	// The programs run on this machine, even if the tests are built for another.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOGC=400",
		"GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	return output(cmd)
}

// Run runs a program that [Binary] supports with exactly the given environment, and
// returns its stdout. An error includes the program's stderr.
func Run(ctx context.Context, name string, env []string, args ...string) (string, error) {
	path, err := Binary(ctx, name)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = env
	out, err := output(cmd)
	return string(out), err
}

func output(cmd *exec.Cmd) ([]byte, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		text := stderr.Bytes()
		err = fmt.Errorf("%s %s: %w\n%s", filepath.Base(cmd.Path), strings.Join(cmd.Args[1:], " "), err, text[max(0, len(text)-4000):])
	}
	return out, err
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "testcluster: "+format+"\n", args...)
}

// NativeCRDs returns a directory with the CRDs of projectcalico.org/v3. They are
// generated once, from the types of the newer API module in binaries/crds, and kept in
// the user's cache directory.
func NativeCRDs(ctx context.Context) (string, error) {
	dir, err := packageDir("binaries/crds")
	if err != nil {
		return "", err
	}
	version, err := moduleVersion(ctx, dir, apiModule)
	if err != nil {
		return "", err
	}
	key, err := buildKey(ctx, dir)
	if err != nil {
		return "", err
	}
	path, err := CachePath("crds-" + version + "-" + key)
	if err != nil {
		return "", err
	}
	return path, once(path, func(tmp string) error {
		generator, err := Binary(ctx, "controller-gen")
		if err != nil {
			return err
		}
		progress("generating the CRDs of %s %s (up to 30 seconds, once)", apiModule, version)
		_, err = runIn(ctx, dir, generator,
			"crd:allowDangerousTypes=true,crdVersions=v1", "paths="+apiModule+"/pkg/apis/projectcalico/v3", "output:crd:dir="+tmp)
		return err
	})
}
