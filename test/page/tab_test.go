package page

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// tab is one tab of the browser with the page in it.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string // what the console shows as errors and warnings
}

// size is that of the window, in CSS pixels.
type size struct{ width, height int64 }

var (
	desktop = size{1280, 1400}
	phone   = size{400, 1400}
)

// open opens the page of an agent and waits until it is live.
func open(t *testing.T, a *agent, window size) *tab {
	t.Helper()
	p := openAt(t, a, window)
	p.await("the page is live", `document.getElementById("link").textContent === "live"`)
	p.await("health is shown", `document.getElementById("checks").children.length > 0`)
	return p
}

func openAt(t *testing.T, a *agent, window size) *tab {
	t.Helper()
	p := &tab{t: t}
	ctx, stop := chromedp.NewContext(browser, chromedp.WithListener(p.hear))
	t.Cleanup(stop)
	p.ctx = ctx
	p.run(chromedp.EmulateViewport(window.width, window.height), chromedp.Navigate("http://"+a.address+"/"))
	value[int](p, "window.mark = 1") // is gone if the page is loaded again
	return p
}

// hear keeps what the console shows as errors and warnings.
func (p *tab) hear(ev any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch ev := ev.(type) {
	case *runtime.EventExceptionThrown:
		p.problems = append(p.problems, fmt.Sprintf("exception: %s", ev.ExceptionDetails.Text))
	case *runtime.EventConsoleAPICalled:
		if ev.Type == runtime.ConsoleAPICalledTypeError || ev.Type == runtime.ConsoleAPICalledTypeWarning {
			p.problems = append(p.problems, fmt.Sprintf("console %s: %s", ev.Type, ev.Args[0].Value))
		}
	case *log.EventEntryAdded:
		if ev.Entry.Level == log.EntryLevelError || ev.Entry.Level == log.EntryLevelWarning {
			p.problems = append(p.problems, fmt.Sprintf("%s: %s %s", ev.Entry.Source, ev.Entry.Text, ev.Entry.URL))
		}
	}
}

// run does something in the tab, in reasonable time.
func (p *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// value returns what an expression is worth.
func value[T any](p *tab, expression string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

func (p *tab) is(expression string) bool {
	p.t.Helper()
	return value[bool](p, "Boolean("+expression+")")
}

// await waits until an expression is true.
func (p *tab) await(what, expression string) {
	p.t.Helper()
	defer func() {
		if p.t.Failed() {
			p.t.Logf("the page shows:\n%s\n%s", value[string](p, "document.body.innerText"), strings.Join(p.consoleErrors(""), "\n"))
		}
	}()
	eventually(p.t, what, func() bool { return p.is(expression) })
}

// fill types into a field of the filters.
func (p *tab) fill(name, text string) {
	p.t.Helper()
	field := chromedp.CSS(fmt.Sprintf("#filters [name=%s]", name))
	p.run(chromedp.SendKeys(field, text))
}

// set puts a text into a field of the filters, in place of what is there.
func (p *tab) set(name, text string) {
	p.t.Helper()
	value[bool](p, fmt.Sprintf(`(() => {
		const field = document.querySelector("#filters [name=%s]");
		field.value = %q;
		return field.dispatchEvent(new Event("input", { bubbles: true }));
	})()`, name, text))
}

// consoleErrors returns what the console has shown, but for what contains a text
// that is expected.
func (p *tab) consoleErrors(expected string) (found []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, problem := range p.problems {
		if expected == "" || !strings.Contains(problem, expected) {
			found = append(found, problem)
		}
	}
	return found
}

// noErrors checks that the console shows no errors.
func (p *tab) noErrors(expected string) {
	p.t.Helper()
	for _, problem := range p.consoleErrors(expected) {
		p.t.Errorf("console: %s", problem)
	}
}

// scheme lets the user prefer light or dark.
func (p *tab) scheme(name string) {
	p.t.Helper()
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

// shoot leaves a picture of the whole page, if pictures are wanted.
func (p *tab) shoot(name string) {
	p.t.Helper()
	dir := os.Getenv("PLEGD_PAGE_SHOTS")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600); err != nil {
		p.t.Fatal(err)
	}
}
