package store

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Whatever a record says of its entity is content; only when and how strongly
// it was observed is not. The test fails for a new field until that is decided.
func TestSameContentSeesEveryField(t *testing.T) {
	notContent := []string{"Known", "Evidence"}
	base := func() *Record { return sampleRecord("c1") }
	typ := reflect.TypeFor[Record]()
	for i := range typ.NumField() {
		field := typ.Field(i).Name
		changed := base()
		alter(t, reflect.ValueOf(changed).Elem().Field(i))
		if got, want := base().SameContent(changed), slices.Contains(notContent, field); got != want {
			t.Errorf("records that differ in %s have the same content: %v, want %v", field, got, want)
		}
	}
	identity := reflect.TypeFor[Identity]()
	for i := range identity.NumField() {
		changed := base()
		alter(t, reflect.ValueOf(&changed.Identity).Elem().Field(i))
		if base().SameContent(changed) {
			t.Errorf("records that differ in Identity.%s have the same content", identity.Field(i).Name)
		}
	}
	var none *Record
	if r := base(); !r.SameContent(r) || !r.SameContent(base()) || r.SameContent(none) || none.SameContent(r) || !none.SameContent(nil) {
		t.Error("a record and itself, or none, are compared wrongly")
	}
}

// alter changes a value of any kind that records have.
func alter(t *testing.T, v reflect.Value) {
	t.Helper()
	switch {
	case v.CanInt():
		v.SetInt(v.Int() + 1)
	case v.CanUint():
		v.SetUint(v.Uint() + 1)
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	case v.Kind() == reflect.String:
		v.SetString(v.String() + "x")
	case v.Kind() == reflect.Slice:
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
	case v.Kind() == reflect.Map:
		m := reflect.MakeMap(v.Type())
		m.SetMapIndex(reflect.ValueOf("new"), reflect.ValueOf("label"))
		v.Set(m)
	case v.Kind() == reflect.Struct || v.Kind() == reflect.Array:
		if v.Kind() == reflect.Array {
			alter(t, v.Index(0))
		} else {
			alter(t, v.Field(0))
		}
	default:
		t.Fatalf("can't alter a %s", v.Type())
	}
}

func TestNames(t *testing.T) {
	var got []string
	for _, k := range []Kind{KindSandbox, KindContainer, 9} {
		got = append(got, k.String()+":")
		for s := range StateRemoved + 2 {
			got = append(got, s.Name(k))
		}
	}
	want := "sandbox: none created ready notready removed none container: none created running exited removed none invalid: none created running exited removed none"
	if text := strings.Join(got, " "); text != want {
		t.Errorf("got %q, want %q", text, want)
	}
	if names := (ReasonDetails | ReasonExit137).Names(); !slices.Equal(names, []string{"details", "exit_137"}) {
		t.Errorf("got %q", names)
	}
	if names := Reason(1<<Reasons - 1).Names(); len(names) != Reasons || slices.Contains(names, "") {
		t.Errorf("got %q", names)
	}
	if table(99).String() != "invalid" || tableJournal.String() != "journal" {
		t.Error("tables have the wrong names")
	}
}

func TestPodKey(t *testing.T) {
	r := Record{Sandbox: "s", Identity: Identity{Pod: PodRef{UID: "u"}}}
	if got := r.PodKey(); got != "u" {
		t.Errorf("got %q", got)
	}
	r.Identity.Pod.UID = ""
	if got := r.PodKey(); got != PodKeyOfSandbox("s") {
		t.Errorf("got %q", got)
	}
	if (Exit{}).Known() || !(Exit{FinishedAt: 1}).Known() {
		t.Error("an exit is known if and only if it has an end")
	}
}

// TestPodKeys: no two pods have one key, and each key says which pod it is of.
func TestPodKeys(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	ids := []string{"a", "sandbox:a", "uid:a", "uid:sandbox:a", "sandbox:sandbox:a", "uid:uid:a", "sandbox:uid:a", "sandbox:", "uid:"}
	for _, id := range ids {
		for what, key := range map[string]string{"UID " + id: PodKeyOfUID(id), "sandbox " + id: PodKeyOfSandbox(id)} {
			if other, ok := seen[key]; ok {
				t.Errorf("%s and %s are both %q", what, other, key)
			}
			seen[key] = what
			uid, sandbox := ParsePodKey(key)
			if got := "UID " + uid; sandbox != "" {
				got = "sandbox " + sandbox
				if got != what || uid != "" {
					t.Errorf("%q is of %s%s, want %s", key, uid, got, what)
				}
			} else if got != what {
				t.Errorf("%q is of %s, want %s", key, got, what)
			}
		}
	}
	if PodKeyOfUID("8e1f") != "8e1f" {
		t.Error("an ordinary UID is changed")
	}
}
