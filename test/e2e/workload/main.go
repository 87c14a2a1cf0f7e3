// Command workload is the only program in the test image: the pause container and every other
// container run it.
//
//	workload pause                 until SIGTERM
//	workload stubborn              ignores SIGTERM, so that only SIGKILL ends it
//	workload exit CODE [AFTER]     exits with CODE, at once or after a Go duration
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "workload:", err)
		code = 125
	}
	os.Exit(code)
}

func run(args []string) (code int, err error) {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM, syscall.SIGINT)

	mode := "pause"
	if len(args) > 0 {
		mode = args[0]
	}
	switch mode {
	case "pause":
		<-term
		return 0, nil
	case "stubborn":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
		<-term // never comes
		return 0, nil
	case "exit":
		return exit(args[1:], term)
	}
	return 0, fmt.Errorf("unknown mode %q", mode)
}

func exit(args []string, term <-chan os.Signal) (code int, err error) {
	if len(args) == 0 {
		return 0, fmt.Errorf("exit: no code")
	}
	if code, err = strconv.Atoi(args[0]); err != nil {
		return 0, fmt.Errorf("exit code: %w", err)
	}
	if len(args) == 1 {
		return code, nil
	}
	after, err := time.ParseDuration(args[1])
	if err != nil {
		return 0, fmt.Errorf("exit after: %w", err)
	}
	select {
	case <-time.After(after):
		return code, nil
	case <-term:
		return 128 + int(syscall.SIGTERM), nil
	}
}
