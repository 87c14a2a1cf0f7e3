//go:build !race

package pleg_test

const underRace = false
