// Package doctor examines a runtime: is it fit to be followed by its event
// stream? A CRI runtime says nothing about that by itself (no field of Status
// names events), so the doctor listens for a while, lists at the same time, and
// compares what was told with what was seen.
//
// [Examine] gathers observations; [Judge] makes a [Report] of them and does
// nothing else, so that what each finding means is a table in a test. A report
// has one [Line] for each question, with a verdict and what to do about it.
//
// The doctor changes nothing in the runtime. It listens twice, on two
// connections, since that is the only way to see whether subscribers get each
// event or compete for it. Where they compete (containerd 1.7), what it hears is
// taken from whoever else listens, for as long as it does.
package doctor
