// Package runtimes pins the CRI runtimes and clients that test/e2e runs against; see install.sh.
package runtimes
