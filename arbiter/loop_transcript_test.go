package arbiter

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
	"github.com/plegd/plegd/timestamps"
)

// TestLoopTranscripts runs testdata/loop/*.txt: stories of the loop, its numbers and its disk, in virtual
// time. Each begins with an agent that runs on an empty state. As in TestTranscripts, -rewrite writes the
// answers anew.
//
//	publish ID...                     the stream tells of sandboxes that are ready: two events each
//	list ID...                        a completed full list of what there is
//	disk works|full|full-after|error  how commits end from now on. full-after: they fail, and are written
//	                                  all the same; error: an I/O error, and the state can't be copied
//	wait D                            time passes
//	reader NAME                       NAME reads all it can: from the beginning at first, then from where
//	                                  it was, over restarts too, and from the oldest position where that is gone
//	kill | stop                       the agent ends: at once; cleanly
//	start [full]                      it is started again; full: on a full disk
//	journal                           what the file has
//	commits                           how many commits succeeded since the last time this was asked
//
// Epochs are random, so they are called E1, E2 and so on in the order in which they are seen.
func TestLoopTranscripts(t *testing.T) {
	stories, err := filepath.Glob("testdata/loop/*.txt")
	if err != nil || len(stories) == 0 {
		t.Fatal(stories, err)
	}
	for _, path := range stories {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &story{t: t, m: memory(), epochs: map[timestamps.Epoch]string{}, readers: map[string]*reader{}}
				s.start(false)
				datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
					t.Helper()
					out, err := s.run(d)
					if err != nil {
						d.Fatalf(t, "%s: %v", d.Pos, err)
					}
					return out
				})
				if s.d != nil {
					s.d.crash()
				}
			})
		})
	}
}

// story is the state of one file.
type story struct {
	t       *testing.T
	m       *store.Memory
	d       *driven // nil: the agent doesn't run
	epochs  map[timestamps.Epoch]string
	readers map[string]*reader
	commits int
}

func (s *story) start(full bool) {
	s.m, s.commits = s.m.Reopen(), 0
	f := storetest.NewFaulty(s.m)
	if full {
		f.FailBefore(-1, store.ErrFull)
	}
	s.d = drive(s.t, f)
	s.d.faulty = f
	synctest.Wait()
	s.commits, _ = f.Commits()
}

func (s *story) run(d *datadriven.TestData) (string, error) {
	args := make([]string, len(d.CmdArgs))
	for i, a := range d.CmdArgs {
		args[i] = a.Key
	}
	if s.d == nil && d.Cmd != "start" {
		return "", errors.New("the agent doesn't run")
	}
	switch d.Cmd {
	case "publish":
		time.Sleep(time.Millisecond)
		s.d.tell(args...)
		synctest.Wait()
	case "list":
		s.d.sync(items(args)...)
		synctest.Wait()
	case "disk":
		return "", s.disk(args[0])
	case "wait":
		left, err := time.ParseDuration(args[0])
		time.Sleep(left)
		synctest.Wait()
		return "", err
	case "reader":
		if s.readers[args[0]] == nil {
			s.readers[args[0]] = &reader{at: s.d.beginning()}
		}
		return orNothing(s.read(s.readers[args[0]]))
	case "kill":
		s.d.crash()
		s.end()
	case "stop":
		s.d.stop()
		s.end()
	case "start":
		s.start(len(args) > 0 && args[0] == "full")
	case "journal":
		return orNothing(s.journal())
	case "commits":
		n, _ := s.d.faulty.Commits()
		n, s.commits = n-s.commits, n
		return fmt.Sprintln(n), nil
	default:
		return "", fmt.Errorf("unknown command %q", d.Cmd)
	}
	return "", nil
}

func orNothing(text string, err error) (string, error) {
	if text == "" {
		text = nothing
	}
	return text, err
}

// end: the agent is gone, and with it what readers held open.
func (s *story) end() {
	s.d = nil
	for _, r := range s.readers {
		r.sub = nil
	}
}

func (s *story) disk(how string) error {
	f := s.d.faulty
	f.FailBefore(0, nil)
	f.FailAfter(0, nil)
	switch how {
	case "works":
	case "full":
		f.FailBefore(-1, store.ErrFull)
	case "full-after":
		f.FailAfter(-1, store.ErrFull)
	case "error":
		f.FailBefore(-1, store.ErrIO)
		f.OnRescue(func(error) error { return store.ErrIO })
		f.OnRenew(func(error) error { f.FailBefore(0, nil); return nil })
	default:
		return fmt.Errorf("a disk is not %q", how)
	}
	return nil
}

// read gives a reader all that there is for it now.
func (s *story) read(r *reader) (string, error) {
	now, cancel := context.WithCancel(context.Background())
	cancel() // nothing is waited for
	var b strings.Builder
	for range 2 { // from where it was; if that is gone, from the oldest position
		var err error
		if r.sub == nil {
			if r.sub, err = s.d.Subscribe(&r.at); err == nil {
				r.at = r.sub.Position()
			}
		}
		for err == nil {
			var ev *store.Event
			if ev, err = r.sub.Next(now); err == nil {
				b.WriteString(s.print(ev))
				r.at = ev.Position
			}
		}
		var expired *ExpiredError
		switch {
		case errors.Is(err, context.Canceled):
			return b.String(), nil
		case !errors.As(err, &expired):
			return "", err
		}
		fmt.Fprintf(&b, "%s expired, oldest is %s\n", s.position(r.at), s.position(expired.Oldest))
		*r = reader{at: expired.Oldest}
	}
	return b.String(), nil
}

func (s *story) journal() (string, error) {
	j := s.m.Journal()
	var b strings.Builder
	for after := max(j.First, 1) - 1; after < j.Last; {
		events, err := s.m.Events(after, 1)
		if err != nil || len(events) == 0 {
			return "", fmt.Errorf("after %d: %v, %w", after, events, err)
		}
		b.WriteString(s.print(&events[0]))
		after = events[0].Position.Seq
	}
	return b.String(), nil
}

func (s *story) print(ev *store.Event) string {
	text := fmt.Sprintf("%s %s", s.position(ev.Position), ev.Type)
	if ev.Type == store.SequenceSkipped {
		text += fmt.Sprintf(" %d to %d", ev.From, ev.To)
	} else {
		text += " " + eventID(ev)
	}
	if ev.Volatile {
		text += " volatile"
	}
	return text + "\n"
}

func (s *story) position(p timestamps.Position) string {
	if s.epochs[p.Epoch] == "" {
		s.epochs[p.Epoch] = fmt.Sprintf("E%d", len(s.epochs)+1)
	}
	return fmt.Sprintf("%s/%d", s.epochs[p.Epoch], p.Seq)
}
