package store

// EncodeSchema is for tests that need files of other versions.
var EncodeSchema = encodeSchema

// ScanPages is for tests of the scan alone.
var ScanPages = scanPages
