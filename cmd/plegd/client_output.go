package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/template"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// The forms of what client commands write, beside outputJSON.
const (
	formTable       = "table"
	formWide        = "wide"
	formName        = "name"
	formYAML        = "yaml"
	formCloudEvents = "cloudevents"
	// formTemplate is followed by = and a template of text/template.
	formTemplate = "go-template"
)

// form is the value of --output of a client command.
type form struct {
	name     string
	template *template.Template // of formTemplate
	allowed  []string
}

// formFlag adds --output with the forms that a command has, the first being
// the default.
func formFlag(cmd *cobra.Command, f *form, names ...string) {
	f.name, f.allowed = names[0], names
	words := slices.Clone(names)
	if i := slices.Index(words, formTemplate); i >= 0 {
		words[i] += "="
	}
	cmd.Flags().VarP(f, "output", "o", "form of the output")
	// It fails for a flag that doesn't exist only.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// Set implements [pflag.Value].
func (f *form) Set(s string) error {
	name, text, isTemplate := strings.Cut(s, "=")
	if !slices.Contains(f.allowed, name) || isTemplate && name != formTemplate {
		return fmt.Errorf("must be one of %s", strings.Join(f.words(), ", "))
	}
	if name != formTemplate {
		f.name = name
		return nil
	}
	if text == "" {
		return fmt.Errorf("must have a template after it, such as %s='{{.type}}'", formTemplate)
	}
	t, err := template.New("output").Parse(text)
	if err != nil {
		return fmt.Errorf("no template of Go's text/template: %s", strings.TrimPrefix(err.Error(), "template: "))
	}
	f.name, f.template = name, t
	return nil
}

// String implements [pflag.Value].
func (f *form) String() string { return f.name }

// Type implements [pflag.Value].
func (f *form) Type() string { return strings.Join(f.words(), "|") }

// words are the forms as they are given.
func (f *form) words() []string {
	list := slices.Clone(f.allowed)
	if i := slices.Index(list, formTemplate); i >= 0 {
		list[i] += "=TEMPLATE"
	}
	return list
}

// structured reports whether the form is made of a value's JSON.
func (f *form) structured() bool {
	return f.name == outputJSON || f.name == formYAML || f.name == formTemplate
}

// write writes a value in a structured form, JSON on several lines.
func (f *form) write(w io.Writer, v any) error {
	var b bytes.Buffer
	if err := writeIndented(&b, v); err != nil {
		return err
	}
	return f.writeJSON(w, b.Bytes())
}

// writeJSON writes what JSON says in a structured form.
func (f *form) writeJSON(w io.Writer, text []byte) error {
	var err error
	switch f.name {
	case formYAML:
		if text, err = yaml.JSONToYAML(harmless(text)); err != nil {
			return err
		}
	case formTemplate:
		if text, err = f.execute(text, isTerminal(w)); err != nil {
			return err
		}
	default:
		if isTerminal(w) {
			text = harmless(text)
		}
	}
	_, err = w.Write(text)
	return err
}

// record returns what JSON says as one of several records: as a line, as a
// document of YAML, or as the template has it.
func (f *form) record(text []byte, terminal bool) ([]byte, error) {
	switch f.name {
	case formYAML:
		doc, err := yaml.JSONToYAML(harmless(text))
		return append([]byte("---\n"), doc...), err
	case formTemplate:
		return f.execute(text, terminal)
	default:
		return jsonLine(text, terminal), nil
	}
}

// jsonLine returns JSON as a line.
func jsonLine(text []byte, terminal bool) []byte {
	if terminal {
		text = harmless(text)
	}
	return append(slices.Clip(text), '\n')
}

// marshal returns the JSON of a value on one line, as the encoder of events
// writes it.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// execute gives the fields of JSON, by their names, to the template. The result
// ends with its line. Numbers are as they were written. For a terminal what
// would speak to it is replaced.
func (f *form) execute(text []byte, terminal bool) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if terminal {
		v = allPrintable(v)
	}
	var b bytes.Buffer
	if err := f.template.Execute(&b, v); err != nil {
		return nil, fmt.Errorf("--output %s: %s", formTemplate, strings.TrimPrefix(err.Error(), "template: "))
	}
	if b.Len() > 0 && !bytes.HasSuffix(b.Bytes(), []byte("\n")) {
		b.WriteByte('\n')
	}
	return b.Bytes(), nil
}

// allPrintable returns a value decoded from JSON with its strings printable.
func allPrintable(v any) any {
	switch v := v.(type) {
	case string:
		return printable(v)
	case []any:
		for i := range v {
			v[i] = allPrintable(v[i])
		}
	case map[string]any:
		for key, value := range v {
			delete(v, key)
			v[printable(key)] = allPrintable(value)
		}
	}
	return v
}
