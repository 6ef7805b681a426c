package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/spf13/pflag"
)

// maxConfigFile bounds the size of a configuration file, in bytes.
const maxConfigFile = 1 << 20

// notInFile are flags that say what this one call of the command does.
var notInFile = map[string]bool{"config": true, "print-config": true, "ready-json": true, "help": true}

// readConfigFile sets the flags that a file names and the command line does
// not. What is wrong with it is an error with the line.
func readConfigFile(fl *pflag.FlagSet, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return usageError("configuration file: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxConfigFile+1))
	if err != nil {
		return fmt.Errorf("configuration file %s: %w", path, err)
	}
	if len(data) > maxConfigFile {
		return usageError("configuration file %s has more than %d bytes", path, maxConfigFile)
	}
	if err := setFromYAML(fl, data); err != nil {
		return usageError("configuration file %s: %w", path, err)
	}
	return nil
}

// setFromYAML sets flags from a mapping of their names to their values.
func setFromYAML(fl *pflag.FlagSet, data []byte) error {
	pairs, err := parsePairs(data)
	if err != nil {
		return err
	}
	given := map[string]bool{}
	fl.Visit(func(f *pflag.Flag) { given[f.Name] = true })
	seen := map[string]int{}
	for _, p := range pairs {
		f := fl.Lookup(p.name)
		switch {
		case f == nil || notInFile[p.name]:
			return fmt.Errorf("line %d: %q is not a setting", p.line, p.name)
		case seen[p.name] > 0:
			return fmt.Errorf("line %d: %q was set in line %d already", p.line, p.name, seen[p.name])
		case !p.scalar:
			return fmt.Errorf("line %d: %q needs one value", p.line, p.name)
		}
		seen[p.name] = p.line
		if given[p.name] {
			if err := tryValue(f, p.value); err != nil {
				return fmt.Errorf("line %d: %q: %w", p.line, p.name, err)
			}
			continue
		}
		if err := fl.Set(p.name, p.value); err != nil {
			return fmt.Errorf("line %d: %w", p.line, err)
		}
	}
	return nil
}

// tryValue reports what is wrong with a value that the command line overrides,
// and leaves the flag as it is.
func tryValue(f *pflag.Flag, value string) error {
	was := f.Value.String()
	err := f.Value.Set(value)
	return errors.Join(err, f.Value.Set(was))
}

type pair struct {
	name, value string
	line        int
	scalar      bool
}

func parsePairs(data []byte) ([]pair, error) {
	file, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var y yaml.Error
		if errors.As(err, &y) && y.GetToken() != nil {
			return nil, fmt.Errorf("line %d: %s", y.GetToken().Position.Line, y.GetMessage())
		}
		return nil, err
	}
	var pairs []pair
	for i, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if i > 0 {
			return nil, errors.New("it holds several documents: write one")
		}
		m, ok := doc.Body.(ast.MapNode)
		if !ok {
			if _, empty := doc.Body.(*ast.CommentGroupNode); empty {
				continue
			}
			return nil, fmt.Errorf("line %d: write settings as name: value", doc.Body.GetToken().Position.Line)
		}
		for it := m.MapRange(); it.Next(); {
			key := it.Key().GetToken()
			p := pair{name: key.Value, line: key.Position.Line}
			p.value, p.scalar = scalar(it.Value())
			pairs = append(pairs, p)
		}
	}
	return pairs, nil
}

func scalar(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// writeConfigFile writes the flags' values as a file that readConfigFile reads.
func writeConfigFile(fl *pflag.FlagSet, w io.Writer) error {
	var all yaml.MapSlice
	comments := yaml.CommentMap{}
	fl.VisitAll(func(f *pflag.Flag) {
		if notInFile[f.Name] {
			return
		}
		var value any = f.Value.String()
		switch f.Value.Type() {
		case "int", "int64":
			value, _ = strconv.ParseInt(f.Value.String(), 10, 64)
		case "bool":
			value = f.Value.String() == "true"
		}
		all = append(all, yaml.MapItem{Key: f.Name, Value: value})
		_, usage := pflag.UnquoteUsage(f)
		comments["$."+f.Name] = []*yaml.Comment{yaml.HeadComment(" " + usage)}
	})
	data, err := yaml.MarshalWithOptions(all, yaml.WithComment(comments))
	if err == nil {
		_, err = w.Write(data)
	}
	if err != nil {
		return fmt.Errorf("print the configuration: %w", err)
	}
	return nil
}
