// Package store keeps plegd's state: one record for each sandbox and container,
// tombstones of removed ones, where each container belongs, the reinspection
// queue, the journal of events and a little meta data, in a bbolt file ([Bolt])
// or in memory ([Memory]). It decides nothing about pods.
//
// Invariants
//
//  1. A [Batch] is one transaction: readers and restarts see all of it or none.
//  2. Committing the same batch again changes nothing.
//  3. A change to one container writes that container's record and no other.
//  4. Every stored value carries a version and a checksum; a damaged value is
//     left out and counted, never misread.
//  5. A file of a newer schema or of another runtime is refused untouched; a
//     damaged file is set aside under another name and a fresh one started.
//  6. A lock file of its own, held for life, keeps a second process out; bbolt's
//     own lock would move with a renamed file. A commit that succeeded was in
//     the file that the next start finds, see [ErrReplaced].
//  7. An entry of the journal that was lost, by retention or by damage, is told
//     to readers as [ErrExpired]; only a SequenceSkipped entry explains a hole.
//
// What the owner does when a Commit fails stands at [Rescuer]. Schema 1 is
// frozen: testdata/schema1.db was written by its first version, and every later
// one must read it.
//
// Who may call: the arbiter's loop owns Load and Commit; any goroutine may read
// events. The loop makes the batches, this package never looks into them
// further than to store them.
package store
