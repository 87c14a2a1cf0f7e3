package simruntime

import (
	"encoding/binary"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// DefaultKeepaliveMinTime is how far apart a client's pings must be: gRPC's own
// default, which container runtimes leave as it is (gRFC A8).
const DefaultKeepaliveMinTime = 5 * time.Minute

// idlePingTime is how far apart pings must be while the client has no call in
// flight, since PermitWithoutStream is off.
const idlePingTime = 2 * time.Hour

// KeepaliveStats counts what clients' pings led to, over all connections and
// runs of the runtime.
type KeepaliveStats struct {
	Pings   int // of clients, those by which gRPC measures bandwidth included
	Strikes int // pings that came too early; after the third in a row the client is cut off
	GoAways int // connections that were ended for too many pings
}

// Keepalive returns the counts of pings.
func (r *Runtime) Keepalive() KeepaliveStats {
	r.pings.mu.Lock()
	defer r.pings.mu.Unlock()
	return r.pings.stats
}

type pingLog struct {
	mu    sync.Mutex
	stats KeepaliveStats
}

// pingMeter judges the pings of one connection as gRPC's server does, which
// tells nobody: by the frames that pass.
type pingMeter struct {
	log     *pingLog
	minTime time.Duration

	mu       sync.Mutex
	in, out  frames
	lastPing time.Time
	answered bool // something was sent since the last ping: that forgives it
	streams  map[uint32]struct{}
}

func newPingMeter(log *pingLog, minTime time.Duration) *pingMeter {
	m := &pingMeter{log: log, minTime: minTime, streams: map[uint32]struct{}{}}
	m.in.skip = len(http2.ClientPreface)
	return m
}

// read looks at what came from the client.
func (m *pingMeter) read(b []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.in.scan(b, func(f http2.FrameHeader, _ []byte) {
		switch {
		case f.Type == http2.FrameHeaders:
			m.streams[f.StreamID] = struct{}{}
		case f.Type == http2.FrameRSTStream:
			delete(m.streams, f.StreamID)
		case f.Type == http2.FramePing && !f.Flags.Has(http2.FlagPingAck):
			m.ping(time.Now())
		}
	})
}

// wrote looks at what goes to the client.
func (m *pingMeter) wrote(b []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.out.scan(b, func(f http2.FrameHeader, start []byte) {
		switch f.Type {
		case http2.FrameHeaders, http2.FrameData:
			m.answered = true
			if f.Flags.Has(http2.FlagHeadersEndStream) { // the same bit as that of data
				delete(m.streams, f.StreamID)
			}
		case http2.FrameRSTStream:
			delete(m.streams, f.StreamID)
		case http2.FrameGoAway:
			if http2.ErrCode(binary.BigEndian.Uint32(start[4:])) == http2.ErrCodeEnhanceYourCalm {
				m.log.mu.Lock()
				defer m.log.mu.Unlock()
				m.log.stats.GoAways++
			}
		}
	})
}

func (m *pingMeter) ping(now time.Time) {
	wait := m.minTime
	if len(m.streams) == 0 {
		wait = idlePingTime
	}
	early := !m.answered && m.lastPing.Add(wait).After(now)
	m.lastPing, m.answered = now, false
	m.log.mu.Lock()
	defer m.log.mu.Unlock()
	m.log.stats.Pings++
	if early {
		m.log.stats.Strikes++
	}
}

// frames finds the frames in one direction of an HTTP/2 connection.
type frames struct {
	skip int    // bytes before the next frame that don't matter
	head []byte // of the frame that has begun: its header, and 8 bytes of a GOAWAY
}

const (
	frameHeader  = 9
	goAwayHeader = 8
)

// scan calls f for each frame whose beginning is complete, with its header and
// the beginning of its payload.
func (s *frames) scan(b []byte, f func(http2.FrameHeader, []byte)) {
	for len(b) > 0 {
		if n := min(s.skip, len(b)); n > 0 {
			s.skip -= n
			b = b[n:]
			continue
		}
		need := frameHeader
		if len(s.head) >= frameHeader {
			need += goAwayHeader
		}
		n := min(need-len(s.head), len(b))
		s.head = append(s.head, b[:n]...)
		b = b[n:]
		if len(s.head) < need {
			return
		}
		h := http2.FrameHeader{
			Length: uint32(s.head[0])<<16 | uint32(s.head[1])<<8 | uint32(s.head[2]),
			Type:   http2.FrameType(s.head[3]), Flags: http2.Flags(s.head[4]),
			StreamID: binary.BigEndian.Uint32(s.head[5:]) & (1<<31 - 1),
		}
		if h.Type == http2.FrameGoAway && need == frameHeader && h.Length >= goAwayHeader {
			continue
		}
		if h.Type != http2.FrameGoAway || need > frameHeader {
			f(h, s.head[frameHeader:])
		}
		s.skip = int(h.Length) - (len(s.head) - frameHeader)
		s.head = s.head[:0]
	}
}
