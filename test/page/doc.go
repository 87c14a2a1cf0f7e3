// Package page tests the web page that plegd serves, in a real Chromium without
// a window: what it shows, that it goes on over a restart of the agent, and that
// it can be used with the keyboard, with a screen reader and on a narrow screen.
//
// The agent is the real binary on a simulated runtime. Where there is no
// Chromium the tests are skipped, loudly, but not in CI: install.sh gets it.
// With PLEGD_PAGE_SHOTS=DIR they leave pictures of the page there.
package page
