//go:build !race

package replay

const shuffled = false
