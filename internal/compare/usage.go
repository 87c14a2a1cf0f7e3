package compare

import (
	"runtime/metrics"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// The names by which the Go runtime counts allocations, of which it keeps count
// anyway: reading them stops nothing.
const (
	allocObjects = "/gc/heap/allocs:objects"
	allocBytes   = "/gc/heap/allocs:bytes"
)

// Usage adds what this process has used since its start.
func Usage(s *Sample) {
	var ru unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &ru) == nil {
		s.CPU = ru.Utime.Nano() + ru.Stime.Nano()
		s.RSS = ru.Maxrss << 10 // KiB on Linux
	}
	m := []metrics.Sample{{Name: allocObjects}, {Name: allocBytes}}
	metrics.Read(m)
	s.Allocs, s.Alloced = m[0].Value.Uint64(), m[1].Value.Uint64()
}

// clockTick is what /proc counts processor time in: USER_HZ, 100 a second on
// every architecture that Linux has a port of Go for.
const clockTick = 10_000_000 // ns

// ProcessCPU returns the processor time that a process has used, in ns, as
// /proc says, to 10 ms.
func ProcessCPU(pid int) (int64, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	st, err := p.Stat()
	if err != nil {
		return 0, err
	}
	return int64(st.UTime+st.STime) * clockTick, nil
}
