package page

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/plegd/plegd/internal/compare/report"
	"github.com/plegd/plegd/internal/compare/report/reporttest"
)

// openReport opens the page of a comparison from a file, as whoever is sent one does.
func openReport(t *testing.T, window size) *tab {
	t.Helper()
	if browser == nil {
		t.Skip("there is no Chromium; test/page/install.sh gets it")
	}
	html, err := report.HTML(reporttest.Report())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(path, html, 0o600); err != nil {
		t.Fatal(err)
	}
	p := &tab{t: t}
	ctx, stop := chromedp.NewContext(browser, chromedp.WithListener(p.hear))
	t.Cleanup(stop)
	p.ctx = ctx
	p.run(chromedp.EmulateViewport(window.width, window.height), chromedp.Navigate("file://"+path))
	p.await("the list of transitions is filled", `document.querySelectorAll("#transitions tbody tr").length > 0`)
	return p
}

// lifeWords is what the page says of the transition that is followed.
const lifeWords = `document.getElementById("life-words").textContent`

// A single transition can be followed through the modes, from the list and from a
// finding; nothing is loaded, and a pod's name is never markup.
func TestReportFollowsATransition(t *testing.T) {
	t.Parallel()
	p := openReport(t, size{1160, 1400})
	p.await("what a mode missed is shown first", lifeWords+`.includes("container started shop/web-2") && `+lifeWords+`.includes("generic missed it")`)
	if !p.is(`document.querySelectorAll("#life [data-told=missed]").length === 1 && document.querySelectorAll("#life [data-mode]").length === 2`) {
		t.Error("one mode missed it and two told it, but the picture says otherwise")
	}
	if !p.is(`new Set([...document.querySelectorAll("#life [data-mode]")].map((e) => e.outerHTML.slice(1, 8))).size === 2`) {
		t.Error("two modes have the same shape")
	}

	value[bool](p, `document.querySelector("#filter [name=faults]").click() || true`)
	p.await("only what was not told well is listed", `document.querySelectorAll("#transitions tbody tr").length === 4`)
	value[bool](p, `(() => { const f = document.querySelector("#filter [name=text]"); f.value = "WEB-5"; return f.dispatchEvent(new Event("input", { bubbles: true })); })()`)
	p.await("the search finds one", `document.querySelectorAll("#transitions tbody tr").length === 1`)
	value[bool](p, `document.querySelector("#transitions tbody tr").click() || true`)
	p.await("the one that was clicked is followed", lifeWords+`.includes("container died shop/web-5") && `+lifeWords+`.includes("evented told it after 2.50 s (late: told 2.5s after it happened)")`)

	value[bool](p, `(() => { const d = [...document.querySelectorAll(".finding")].find((d) => d.innerText.includes("exit code 0, the runtime says 7")); d.open = true; d.querySelector("button.show").click(); return true; })()`)
	p.await("the finding's transition is followed", lifeWords+`.includes("container died shop/web-4")`)
	if !p.is(`[...document.querySelectorAll(".finding[open] table.around td")].some((e) => e.innerText === "STOPPED")`) {
		t.Error("what the runtime said is not beside the finding")
	}

	p.run(chromedp.EmulateViewport(1160, 1400))
	if !p.is(`document.body.innerText.includes('shop/"><script>alert("evil")</script>')`) {
		t.Error("the pod's name is not shown as it is")
	}
	if n := value[int](p, `performance.getEntriesByType("resource").filter((e) => !e.name.startsWith("data:")).length`); n != 0 {
		t.Errorf("the page loaded %d things", n)
	}
	p.shoot("report")
	p.noErrors("")
}

// The list is usable by keys alone.
func TestReportByKeys(t *testing.T) {
	t.Parallel()
	p := openReport(t, size{1160, 1400})
	first := value[string](p, lifeWords)
	value[bool](p, `(() => {
		const row = document.querySelector("#transitions tbody tr[aria-selected=false]");
		row.focus();
		return row.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true })) || true;
	})()`)
	p.await("Enter follows the row", lifeWords+` !== `+quoted(first))
	second := value[string](p, lifeWords)
	value[bool](p, `document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowDown", bubbles: true })) || true`)
	p.await("the arrow goes on", lifeWords+` !== `+quoted(second))
	p.noErrors("")
}

// What is folded is printed; what is only of use on a screen is not. Nothing is
// wider than the page, and on a narrow screen only tables scroll.
func TestReportInPrintAndOnAPhone(t *testing.T) {
	t.Parallel()
	p := openReport(t, size{1160, 1400})
	if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"}); err != nil {
		t.Fatal(err)
	}
	value[bool](p, `dispatchEvent(new Event("beforeprint"))`)
	if !p.is(`[...document.querySelectorAll("details")].every((d) => d.open)`) {
		t.Error("something stays folded in print")
	}
	if !p.is(`getComputedStyle(document.getElementById("filter")).display === "none" && getComputedStyle(document.getElementById("transitions")).display === "none"`) {
		t.Error("the list to choose from is printed")
	}
	if !p.is(`getComputedStyle(document.getElementById("life")).display !== "none" && document.querySelectorAll("figure svg path").length > 10`) {
		t.Error("the charts are not printed")
	}
	p.shoot("report-print")
	phone := openReport(t, phone)
	if !phone.is(`document.documentElement.scrollWidth <= innerWidth`) {
		t.Error("the page is wider than a phone")
	}
	phone.shoot("report-phone")
	phone.noErrors("")
}

// quoted is a text as an expression.
func quoted(s string) string {
	out := "`"
	for _, c := range s {
		if c == '`' || c == '\\' || c == '$' {
			out += `\`
		}
		out += string(c)
	}
	return out + "`"
}
