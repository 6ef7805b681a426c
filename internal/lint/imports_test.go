package lint

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

const module = "github.com/contention-toolkit/contention"

// mayImport is the import table of ARCHITECTURE.md: what a package, with all
// below it, may import of ours beside itself. The longest prefix counts.
var mayImport = map[string][]string{
	"profile":           {},
	"probes":            {"profile"},
	"probes/cgrouptest": {"probes/cgroup", "internal/testutil"},
	"broker":            {},
	"load":              {"broker/wire"},
	"analysis":          {"profile"},
	"analysis/result":   {},
	"flamegraph":        {"profile"},
	"experiment":        {"broker", "load", "probes", "profile", "analysis"},
	"report":            {"analysis", "flamegraph", "profile"},
	"cmd":               {"*"},
	"tools":             {"*"},
	"internal":          {},
}

// onlyIn names the packages that alone may import a module or package.
var onlyIn = map[string][]string{
	"github.com/cilium/ebpf":      {"probes"},
	"github.com/spf13/cobra":      {"cmd"},
	"github.com/nats-io":          {},
	"unsafe":                      {"probes", "broker/executor/futex"},
	"github.com/stretchr/testify": {},
}

type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
}

// packages lists every package of the module for Linux, without test files.
func packages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,Imports", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var pkgs []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
	if len(pkgs) < len(mayImport) {
		t.Fatalf("go list finds %d packages only", len(pkgs))
	}
	return pkgs
}

func rel(importPath string) string {
	return strings.TrimPrefix(strings.TrimPrefix(importPath, module), "/")
}

func within(p, prefix string) bool {
	return p == prefix || strings.HasPrefix(p, prefix+"/")
}

// rule returns the table's entry for a package.
func rule(p string) (string, bool) {
	for ; p != "."; p = path.Dir(p) {
		if _, ok := mayImport[p]; ok {
			return p, true
		}
	}
	return "", false
}

func allowed(owner, target string) bool {
	if within(target, owner) {
		return true
	}
	for _, a := range mayImport[owner] {
		if a == "*" || within(target, a) {
			return true
		}
	}
	return false
}

func TestImportTable(t *testing.T) {
	for _, p := range packages(t) {
		self := rel(p.ImportPath)
		owner, ok := rule(self)
		if !ok {
			t.Errorf("package %s is not in the import table of ARCHITECTURE.md: add it there and here", p.ImportPath)
			continue
		}
		for _, imp := range p.Imports {
			if within(imp, module) && !allowed(owner, rel(imp)) {
				t.Errorf("%s imports %s: the table allows %s only %v", self, rel(imp), owner, mayImport[owner])
			}
			for what, where := range onlyIn {
				if within(imp, what) && !anyWithin(self, where) {
					t.Errorf("%s imports %s: only %v may", self, imp, where)
				}
			}
		}
	}
}

func anyWithin(p string, list []string) bool {
	for _, l := range list {
		if within(p, l) {
			return true
		}
	}
	return false
}

// Only commands read the environment or end the process.
func TestOnlyCommandsExit(t *testing.T) {
	forbidden := map[string]bool{
		"os.Exit": true, "os.Getenv": true, "os.LookupEnv": true, "os.Environ": true,
		"log.Fatal": true, "log.Fatalf": true, "log.Fatalln": true,
	}
	calls := 0
	for _, p := range packages(t) {
		self := rel(p.ImportPath)
		// internal holds helpers of tests, which may.
		commands := within(self, "cmd") || within(self, "tools") || within(self, "internal")
		for _, name := range p.GoFiles {
			file := filepath.Join(p.Dir, name)
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if x, ok := sel.X.(*ast.Ident); ok && forbidden[x.Name+"."+sel.Sel.Name] {
					calls++
					if !commands {
						t.Errorf("%s uses %s.%s: only cmd may", fset.Position(n.Pos()), x.Name, sel.Sel.Name)
					}
				}
				return true
			})
		}
	}
	if calls == 0 {
		t.Error("not one call was found, though the command exits: the test looks at nothing")
	}
}
