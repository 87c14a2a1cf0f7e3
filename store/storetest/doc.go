// Package storetest holds what tests of stores and of their users share: a
// conformance suite that every [store.Store] must pass, generators of records,
// events and batches, and [Faulty], a store whose commits fail on demand.
package storetest
