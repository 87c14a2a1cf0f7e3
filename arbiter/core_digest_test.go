package arbiter

import (
	"reflect"
	"testing"
	"unsafe"

	"github.com/plegd/plegd/store"
)

// undigested are the fields that a digest need not hold, and why.
var undigested = map[string]string{
	"Core.limits.TombstoneAge": "never changes",
	"Core.limits.Tombstones":   "never changes",
	"Core.boot":                "never changes",
	"Core.ents":                "by entity, below",
	"Core.members":             "follows from the entities",
	"Core.sandboxes":           "follows from the entities",
	"Core.tombs":               "by tombstone, below",
	"Core.tombOrder":           "follows from the tombstones",
	"Core.revive":              "below",
	"Core.asks":                "by question, below",
	"Core.out":                 "by action, below",
	"Core.missing":             "by mark, below",
	"Core.wanted":              "by wish, below",
	"Core.habits":              "follows from the identity",
	"Core.steps":               "tells steps apart",
	"Core.clock":               "by its drift; the rest is another package's",
	"Core.lastList.Mono":       "not read",
	"Core.lastList.Source":     "not read",
	"Core.work":                "holds nothing between steps",
	"Core.owner":               "tells clones apart",
	"Core.digesting":           "the digest itself",
	"Core.sum":                 "the digest itself",
	"entity.pub":               "as rec between steps, but for evidence, which is not written",
	"entity.owner":             "tells clones apart",
	"entity.step":              "tells steps apart",
	"entity.absent.source":     "not read",
	"entity.content":           "the digest itself",
	"entity.sum":               "the digest itself",
}

// TestDigestHasEveryField: a field that is added to the state of a core must
// not be forgotten in its digest, else the search of small worlds would take
// different states for one.
func TestDigestHasEveryField(t *testing.T) {
	used := map[string]bool{}
	parts := map[string]func(c *Core) (reflect.Value, func()){
		"Core":   func(c *Core) (reflect.Value, func()) { return reflect.ValueOf(c).Elem(), func() {} },
		"entity": func(c *Core) (reflect.Value, func()) { return reflect.ValueOf(c.ents["E"]).Elem(), func() {} },
		"tombstone": func(c *Core) (reflect.Value, func()) {
			return reflect.ValueOf(c.tombs["T"]).Elem(), func() {}
		},
		"ask":     inMap(func(c *Core) map[string]store.Ask { return c.asks }, "E"),
		"out":     inMap(func(c *Core) map[ActionKey]outstanding { return c.out }, ActionKey{ActList, ""}),
		"missing": inMap(func(c *Core) map[string]missMark { return c.missing }, "E"),
		"wish":    inMap(func(c *Core) map[ActionKey]wish { return c.wanted }, ActionKey{ActPod, "U"}),
	}
	for name, part := range parts {
		v, _ := part(digestible())
		for _, path := range leaves(v, name) {
			if undigested[path.name] != "" {
				used[path.name] = true
				continue
			}
			c := digestible()
			before := c.Clone().Digest()
			v, put := part(c)
			alterField(v.FieldByIndex(path.index))
			put()
			if c.Digest() == before {
				t.Errorf("%s is not in the digest", path.name)
			}
		}
	}
	for name := range undigested {
		if !used[name] {
			t.Errorf("there is no field %s", name)
		}
	}
}

// inMap is a part that is a value of a map.
func inMap[K comparable, V any](of func(*Core) map[K]V, key K) func(*Core) (reflect.Value, func()) {
	return func(c *Core) (reflect.Value, func()) {
		v := of(c)[key]
		return reflect.ValueOf(&v).Elem(), func() { of(c)[key] = v }
	}
}

// digestible is a core with one of each.
func digestible() *Core {
	c := NewCore(Limits{}, "boot")
	c.ents["E"] = &entity{rec: store.Record{ID: "E", Kind: store.KindContainer}}
	c.tombs["T"] = &store.Record{ID: "T", Kind: store.KindContainer}
	c.asks["E"] = store.Ask{ID: "E"}
	c.out[ActionKey{ActList, ""}] = outstanding{}
	c.missing["E"] = missMark{}
	c.wanted[ActionKey{ActPod, "U"}] = wish{}
	c.revive["T"] = 1
	return c
}

type leaf struct {
	name  string
	index []int
}

// leaves are the fields that hold values, with those of structs in them.
func leaves(v reflect.Value, name string) []leaf {
	var all []leaf
	for i := range v.NumField() {
		f, full := v.Field(i), name+"."+v.Type().Field(i).Name
		if f.Kind() != reflect.Struct || undigested[full] != "" {
			all = append(all, leaf{full, []int{i}})
			continue
		}
		for _, l := range leaves(f, full) {
			all = append(all, leaf{l.name, append([]int{i}, l.index...)})
		}
	}
	return all
}

// alterField gives a field another value.
func alterField(f reflect.Value) {
	f = reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem() //nolint:gosec // the fields of a core are its own
	switch f.Kind() {
	case reflect.Bool:
		f.SetBool(!f.Bool())
	case reflect.Int, reflect.Int32, reflect.Int64:
		f.SetInt(f.Int() + 1)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		f.SetUint(f.Uint() + 1)
	case reflect.String:
		f.SetString(f.String() + "x")
	case reflect.Array:
		alterField(f.Index(f.Len() - 1))
	case reflect.Slice:
		f.Set(reflect.Append(f, reflect.Zero(f.Type().Elem())))
	case reflect.Map:
		m := reflect.MakeMap(f.Type())
		m.SetMapIndex(reflect.Zero(f.Type().Key()), reflect.Zero(f.Type().Elem()))
		f.Set(m)
	default:
		panic("cannot change a " + f.Type().String())
	}
}
