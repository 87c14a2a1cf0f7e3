// Package field holds the field cases: what went wrong with the kubelet,
// container runtimes and node agents in public, retold as tests. Each case runs
// one or more agents in this process, with a state file, against a simulated
// runtime (internal/simruntime) on a unix socket, and beside each case stands a
// variation of its kind: other calls, other entities, another timing.
//
// # Rules
//
// Every case ends with the same checks (checkRules); what they can't see
// afterwards is sampled while the case runs.
//
//	G1  In a life, each step of an entity is told at most once, and in order.
//	    Positions are without gaps and never given out twice.
//	G2  When the runtime goes quiet, the cache equals it after at most one relist
//	    and the inspections that are due; and the stored state equals what was
//	    shown last, in a file that bbolt finds to be sound.
//	G3  A known exit, start or address is never replaced by less, and no exit code
//	    is told that nobody said: over all events and all samples of the cache.
//	G4  Run ends within seconds and without an error.
//	G5  Goroutines, open files, connections and calls in flight return to where
//	    they were, both while the agent goes on and after its end.
//	G6  Nothing is told to be removed that the runtime has, and nothing leaves the
//	    cache without being told to be removed.
//	G7  Neighbours of what is in trouble wait for a relist at most; cases that
//	    have neighbours count the lists.
//	G8  No message is logged more than twice in a run, or as often as the case
//	    allows.
//
// # Durations
//
// P, the base period, is 100 ms; L, the longest, 1.6 s; the timeout of a call 5 s
// or what the case needs; H, the threshold of readiness, 20 s or what the case
// needs. Tests don't measure: where a case asks for "within one relist" the full
// lists that have begun in between are counted, with some to spare for one that
// was under way; where it asks for "not by a relist" there must be none.
//
// # Sizes
//
// Every run of the tests has the cases in a size that takes seconds. make
// field-long sets PLEGD_FIELD_LONG=1, and they have the size in which they were
// seen in the field: size says both where it is used.
//
// # Killed agents
//
// In most cases a killed agent is one whose state file was copied in the midst
// of its run (crash): what it does after that is thrown away, and another agent
// starts from the copy. TestC50Variation_AgentKilledUnderChurn has agents that are
// processes and really ends them by SIGKILL.
//
// # Cases
//
// Each test is named after its case, TestC01_... and TestC01Variation_... What a
// case leaves open is decided in the comment of its test.
//
//	case  what                                      variation
//	C01   pod vanishes between two relists          two sandboxes, codes known, silent stream
//	C03   life between two relists                  a whole pod, exit code 0
//	C05   listed container is gone when asked       an old sandbox, which stays listed
//	C07   container that can't be inspected         a sandbox that hangs
//	C09   node full of dead containers              of dead sandboxes, a pod starts meanwhile
//	C10   before the first relist                   a socket that accepts, then lists that fail
//	C12   status that hangs on and off              a sandbox's fails on and off, false DELETED
//	C14   runtime learns to tell events             and forgets it, as CRI-O with events off
//	C15   runtime restarts again and again          streams cut in all ways, SIGKILL
//	C18   events go to another subscriber           removals do
//	C20   stop and delete arrive twice              the sandbox's, and all of a life again later
//	C22   container without a sandbox               without labels, beside a new sandbox
//	C24   event without the containers              without the neighbours, or only them
//	C26   seconds for nanoseconds                   zero, negative, ms, far ahead, extremes
//	C28   shutdown and reconnect under load         the runtime goes at the same moment
//	C30   one bad event or container                undecodable event, undecodable list
//	C31   stop whose payload says running           DELETED of what is there, STOPPED of a READY sandbox
//	C33   pod IP survives termination               poll only, late address, removal
//	C36   sandboxes that no kubelet made            without metadata, by the stream
//	C37   sandboxes without containers              READY, by the stream, some silently
//	C40   UNKNOWN comes and goes                    in payloads, of what was created or has exited
//	C41   runtime notices a death late              frozen, killed, a sandbox late
//	C43   numbers outside the enums                 negative, enormous, unknown ids
//	C46   lists too large for a message             sandboxes, really too large, then streamed
//	C48   wall clock jumps ahead                    back, and the runtime's alone
//	C50   changes while the agent is down           killed, pod begun anew, poll only; SIGKILL
//	C52   store is damaged                          again and again; the last two are kept
//	C54   disk full in the middle of the run        at the start
//	C56   slow reader of the store                  of the journal
//	C58   no pings on an idle node                  in trouble
package field
