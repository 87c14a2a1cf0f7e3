// Package replay lets what a recording holds happen again, in virtual time: a generator
// meets a runtime that says what the recorded one said, when it said it. An hour takes
// as long as the processor needs for it, and the same recording and the same generator
// give the same bytes.
//
// Virtual time is that of testing/synctest. It needs a test to be in, so the process
// becomes one, and ends with it:
//
//	rec, err := replay.Open(path) // one clear error for what is no recording
//	...
//	replay.Main(rec, func(ctx context.Context, w *replay.World) (code int) {
//		cfg := pleg.Config{Mode: mode, RelistPeriod: period}
//		w.Configure(&cfg, seam.Hooks{Stats: counter})
//		gen, err := pleg.New(cfg)
//		...
//		err = gen.Run(ctx) // until the recording ends
//		...
//		end, torn := w.End()
//		...
//	}) // never returns
//
// A program that runs in both worlds needs a [timestamps.Clock], as World.Clock is, and
// a function that dials, as World.Dial is; Configure puts both into a pleg.Config. Other
// clients and sources of chance take World.Redial and World.Random.
//
// # Duties of what runs in it
//
//  1. It makes all its channels, timers, contexts and goroutines in the function that
//     Main calls, and none of them outlives that function.
//  2. It takes the time of day from World.Clock, and durations from there or from package
//     time, whose time of day is of the year 2000.
//  3. It reaches the runtime by World.Dial alone. To wait for anything outside, such as a
//     socket or a process, makes time stand still. To read and write files is fine.
//
// # The runtime
//
// It answers what the recorded runtime answered last, corrected by what came since: on
// the stream, and in other answers. A list is of all that is known then, in the order of
// ids, or of what its filter lets through; a status is the last one of that id. A call
// that the recorded generator had under way at the same time gets its answer. Before the
// first answer of its kind a call waits for that. A list that failed last fails again
// until one was recorded that didn't, and so does the status of an id. An answer takes as long
// as the last one of its method. The stream gives events when they came and ends when it
// ended, and the connection is lost when it was lost and made when it was made.
//
// # Invariants
//
//  1. What the generator is told at one moment depends on nothing but the recording and
//     what the generator has asked for.
//  2. It is told one thing at a time: the next one waits until all that the one before has
//     set off is done. That goes on one processor, so that what one thing sets off in
//     several goroutines has one order too. (Not so with the race detector in the
//     program: it makes Go's scheduler leave that order to chance.)
//  3. Of a recording no more is held than what is known at one moment.
package replay
