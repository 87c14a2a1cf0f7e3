// Package field holds the field cases.
package field
