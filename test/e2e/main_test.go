package e2e

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	var code int
	var err error
	switch stage := os.Getenv(stageEnv); {
	case stage == stageInit:
		code, err = runInit()
	case stage == stageTests, unavailable() != "":
		code = m.Run()
	default:
		code, err = runInNamespaces()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}
