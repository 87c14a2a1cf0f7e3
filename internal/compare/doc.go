// Package compare runs several modes of pod lifecycle event generation beside
// each other on one runtime and judges what each of them told.
//
// It has three parts, and what passes between them are lines ([Line]):
//
//   - The child ([Run]) runs one mode ([Mode]) in a process of its own: a
//     generator with its own state and its own connection, on which everything
//     is counted. It writes one line for each event that its reader was handed
//     ([Event]), for what the runtime said ([Raw]), and each second for what it
//     cost ([Sample]).
//   - A [Trace] collects the lines of one mode, from a process or from a replay
//     of a recording: whoever can produce lines can be judged.
//   - The judge ([Judge]) makes a [Report] of all traces. It does no I/O and has
//     no clock: the same lines give the same report.
//
// The truth is the union of what any mode was told or has told, by entity and
// transition, with the runtime's own times; see [Truth]. What no mode saw is not
// in it, unless the runtime is a simulated one that keeps its history.
//
// # A mode for a comparison
//
//	rec := compare.NewRecorder(w, clock)   // takes what follows, and writes lines
//	rec.Watch(&cfg)                        // before pleg.New: counts calls, commits and what was said
//	g, err := pleg.New(cfg)
//	rec.Event(ev)                          // each event, in the order in which the reader gets it
//	rec.Sample()                           // now and then; once at the end
//	rec.End(err)
//
// # Invariants
//
//  1. All times in lines are nanoseconds of the wall clock of the one machine
//     that the runtime and all modes run on, or of the recording's.
//  2. Lines of a mode are in the order in which things happened to it.
//  3. Counters of a [Sample] only grow, and the last one is the total.
//  4. A report covers the time from when all modes were ready to the end of the
//     measurement. What follows, until the modes stop, only shows what was late.
//  5. A mode that ends early is judged by what it has told, up to its end, and the report says so.
package compare
