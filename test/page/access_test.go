package page

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/plegd/plegd/internal/simruntime"
)

func click(selector string) chromedp.Action[chromedp.Void] {
	return chromedp.Click(chromedp.CSS(selector))
}

// enter types into a field and ends with Enter.
func (p *tab) enter(selector, text string) {
	p.t.Helper()
	p.run(chromedp.SendKeys(chromedp.CSS(selector), text+kb.Enter))
}

// fullPage runs an agent with pods of all kinds and opens its page.
func fullPage(t *testing.T) *tab {
	t.Helper()
	a, rt := startAgent(t)
	for i := range 4 {
		runPod(t, rt, fmt.Sprintf("web-%d", i))
	}
	for i, code := range []int32{0, 137} {
		if err := rt.ExitContainer(runPod(t, rt, fmt.Sprintf("job-%d", i)), code, ""); err != nil {
			t.Fatal(err)
		}
	}
	long := "a-name-as-long-as-a-pod-of-a-cron-job-may-have-" + strings.Repeat("0123456789", 4)
	runPod(t, rt, long)
	if _, err := rt.RunPodSandbox(simruntime.PodSpec{Name: "bare", BareLabels: true}); err != nil {
		t.Fatal(err)
	}
	p := open(t, a, desktop)
	p.await("everything is told", has("ContainerStarted", long))
	p.await("everything is there", `document.querySelectorAll("#pod-rows tr").length === 8`)
	return p
}

// Whoever it is, the page can be used: one page, looked at in four ways.
func TestUsable(t *testing.T) {
	t.Parallel()
	p := fullPage(t)
	t.Run("keyboard", func(t *testing.T) { testKeyboard(t, p) })
	t.Run("accessibility tree", func(t *testing.T) { testTree(t, p) })
	t.Run("contrast", func(t *testing.T) { testContrast(t, p) })
	t.Run("narrow", func(t *testing.T) { testNarrow(t, p) })
	p.noErrors("")
}

// At 400 px nothing has to be scrolled sideways, in light and dark, and nothing
// is cut off.
func testNarrow(t *testing.T, p *tab) {
	p.run(chromedp.EmulateViewport(phone.width, phone.height))
	if width := value[int](p, "document.scrollingElement.scrollWidth"); width > int(phone.width) {
		t.Errorf("the page is %d px wide", width)
	}
	wide := value[[]string](p, `[...document.querySelectorAll("main *")].filter((e) => e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0 && getComputedStyle(e).display !== "inline")
		.map((e) => e.tagName + "." + e.className + " " + e.scrollWidth + " > " + e.clientWidth)`)
	for _, e := range wide {
		t.Errorf("%s", e)
	}
	for _, scheme := range []string{"light", "dark"} {
		p.scheme(scheme)
		p.shoot("400-" + scheme)
	}
}

// The contrast of all text is that of WCAG AA, in light and dark.
func testContrast(t *testing.T, p *tab) {
	for _, scheme := range []string{"light", "dark"} {
		p.scheme(scheme)
		p.shoot("1280-" + scheme)
		for _, e := range value[[]string](p, contrastScript) {
			t.Errorf("%s: %s", scheme, e)
		}
	}
}

// contrastScript lists the texts whose contrast is below 4.5, and says how many
// it has looked at if those are too few.
const contrastScript = `(() => {
	const rgba = (s) => s.match(/[\d.]+/g).map(Number);
	const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const back = (e) => {
		for (; e; e = e.parentElement) {
			const c = rgba(getComputedStyle(e).backgroundColor);
			if (c.length === 3 || c[3] === 1) return c;
		}
		return [255, 255, 255];
	};
	const low = [];
	let seen = 0;
	for (const e of document.querySelectorAll("body *")) {
		const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || e.placeholder;
		if (!own || !e.checkVisibility() || e.closest("noscript, script")) continue;
		seen++;
		const a = light(rgba(getComputedStyle(e, e.placeholder ? "::placeholder" : undefined).color)), b = light(back(e));
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (ratio < 4.5) low.push(ratio.toFixed(2) + " " + e.tagName + "." + e.className + " " + e.textContent.slice(0, 30));
	}
	return seen < 50 ? [...low, "only " + seen + " texts were found"] : low;
})()`

// With Tab alone one comes to everything that can be used, in the order of the
// page, and always sees where one is.
func testKeyboard(t *testing.T, p *tab) {
	var reached []string
	for range 16 {
		p.run(chromedp.KeyEvent(kb.Tab))
		at := value[struct{ Name, Outline string }](p, `(() => { const e = document.activeElement; return {
			Name: e.name || e.id || e.getAttribute("aria-label") || e.textContent.trim(),
			Outline: getComputedStyle(e).outlineStyle + " " + getComputedStyle(e).outlineWidth }; })()`)
		if !strings.HasPrefix(at.Outline, "solid 3px") {
			t.Errorf("the focus on %q can't be seen: %s", at.Name, at.Outline)
		}
		reached = append(reached, at.Name)
		if at.Name == "The API's description" {
			break
		}
	}
	want := []string{
		"Skip to the events", "pause", "namespace", "pod", "container", "selector", "type", "source", "Clear",
		"Events, newest first", "Table of pods", "The API's description",
	}
	if !slices.Equal(reached, want) {
		t.Errorf("Tab reaches\n%q\nwant\n%q", reached, want)
	}
}

// What a screen reader is told: every control has a name, the parts of the page
// are landmarks, what changes is told politely, and the events, of which there may
// be many, are not read out one by one.
func testTree(t *testing.T, p *tab) {
	tree, err := chromedp.Call(p.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil {
		t.Fatal(err)
	}
	controls := []string{"button", "textbox", "combobox", "link", "checkbox", "searchbox", "image", "img", "region", "form", "dialog", "table"}
	count := map[string]int{}
	for _, n := range tree.Nodes {
		if n.Ignored || n.Role == nil {
			continue
		}
		role, name := text(n.Role), text(n.Name)
		count[role]++
		if slices.Contains(controls, role) && name == "" {
			t.Errorf("a %s has no name", role)
		}
	}
	for role, least := range map[string]int{
		"main": 1, "banner": 1, "contentinfo": 1, "form": 1, "region": 9, "heading": 8, "status": 2, "textbox": 4, "combobox": 2,
		"button": 2, "table": 2, "columnheader": 9, "rowheader": 3, "row": 12,
	} {
		if count[role] < least {
			t.Errorf("%d of role %s, want at least %d", count[role], role, least)
		}
	}
	if count["main"] != 1 || count["log"] > 0 {
		t.Errorf("roles %v", count)
	}
	live := value[[]string](p, `[...document.querySelectorAll("[aria-live], [role=status], [role=alert], [role=log], output")].map((e) => e.id)`)
	if want := []string{"link", "verdict", "filter-error", "token-error"}; !slices.Equal(live, want) {
		t.Errorf("live regions %q, want %q", live, want)
	}
	if !p.is(`document.documentElement.lang === "en" && document.title.includes("node-7")`) {
		t.Error("the page has no language or no title")
	}
}

// text is the value of a property of the tree.
func text(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	return strings.Trim(string(v.Value), `"`)
}
