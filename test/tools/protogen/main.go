// Command protogen generates the Go code of a proto file, with nothing but Go:
// what protoc does with its plugins. `make generate` is how to call it.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	root := flag.String("root", ".", "directory that the file's path begins from")
	out := flag.String("out", ".", "directory that the code is written below")
	flag.Parse()
	if flag.NArg() != 1 {
		return fmt.Errorf("got %d proto files, must be one", flag.NArg())
	}
	file := flag.Arg(0)
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{*root}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(context.Background(), file)
	if err != nil {
		return err
	}
	req := &pluginpb.CodeGeneratorRequest{FileToGenerate: []string{file}, Parameter: proto.String("paths=source_relative")}
	req.ProtoFile = withImports(files[0], map[string]bool{})
	for _, plugin := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		if err := generate(plugin, req, *out); err != nil {
			return fmt.Errorf("%s: %w", plugin, err)
		}
	}
	return nil
}

// withImports returns a file's descriptor after those of all that it imports.
func withImports(f protoreflect.FileDescriptor, done map[string]bool) (all []*descriptorpb.FileDescriptorProto) {
	if done[f.Path()] {
		return nil
	}
	done[f.Path()] = true
	for i := range f.Imports().Len() {
		all = append(all, withImports(f.Imports().Get(i).FileDescriptor, done)...)
	}
	return append(all, protoutil.ProtoFromFileDescriptor(f))
}

// generate asks a plugin, which go.mod pins as a tool, and writes what it answers.
func generate(plugin string, req *pluginpb.CodeGeneratorRequest, dir string) error {
	in, err := proto.Marshal(req)
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "tool", plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	var res pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &res); err != nil {
		return err
	}
	if res.Error != nil {
		return fmt.Errorf("%s", res.GetError())
	}
	for _, f := range res.GetFile() {
		path := filepath.Join(dir, f.GetName())
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
