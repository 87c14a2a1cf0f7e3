package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

func main() {
	only := flag.String("run", "", "run only mutants whose rule, name or file matches this `regexp`, and write their lines alone")
	missing := flag.Bool("missing", false, "run only mutants that have no line in the table yet")
	docs := flag.String("docs", "docs/proof.md", "the `page` whose table is written")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := measure(ctx, *only, *missing, *docs, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		os.Exit(1)
	}
}

// measure runs every mutant that is wanted.
func measure(ctx context.Context, only string, missing bool, docs string, stdout io.Writer) error {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	root, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	have, err := tableIn(docs)
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "plegd-mutation")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temp) }()

	began, caught, survivors, broken := time.Now(), 0, 0, 0
	rows := map[string]string{}
	all := mutants()
	var chosen []*mutant
	for i := range all {
		m := &all[i]
		if wanted.MatchString(m.rules+" "+m.name+" "+m.file) && (!missing || lineOf(m, have) == "") {
			chosen = append(chosen, m)
		}
	}
	for _, c := range controls(chosen) {
		v, err := run(ctx, root, temp, &c)
		if err == nil && v.caught() {
			err = fmt.Errorf("tests of %s fail with nothing broken, so they prove nothing: %s", c.pkg(), row(&c, v))
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "tests of %s pass with nothing broken\n", c.pkg())
	}
	for _, m := range chosen {
		v, err := run(ctx, root, temp, m)
		if ctx.Err() != nil {
			break
		}
		switch {
		case err != nil:
			broken++
			fmt.Fprintln(stdout, "BROKEN", err)
			continue
		case !v.caught():
			survivors++
			rows[m.name] = "" // a line from before is no longer true
			fmt.Fprintf(stdout, "SURVIVES %s: %s (%s)\n", m.rules, m.name, m.file)
			continue
		}
		caught++
		rows[m.name] = row(m, v)
		fmt.Fprint(stdout, row(m, v))
	}
	fmt.Fprintf(stdout, "%d mutants caught, %d survive, %d can't be run; %v\n", caught, survivors, broken, time.Since(began).Round(time.Second))
	if err := writeTable(docs, rows, all); err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case survivors+broken > 0:
		return fmt.Errorf("%d mutants survive and %d can't be run", survivors, broken)
	case caught == 0 && !missing:
		return fmt.Errorf("-run %q (MUTANTS) matches no mutant: it must match rules, what is broken or a file, as in the table of %s", only, docs)
	}
	return nil
}
