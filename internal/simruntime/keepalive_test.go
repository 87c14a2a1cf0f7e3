package simruntime_test

import (
	"bytes"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	sim "github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// pinger is a client that speaks just enough HTTP/2 to ping. gRPC's own client
// refuses to ping more often than every 10 s.
type pinger struct {
	t       *testing.T
	conn    net.Conn
	framer  *http2.Framer
	goAways chan http2.ErrCode
}

func newPinger(t *testing.T, rt *sim.Runtime) *pinger {
	t.Helper()
	lis := bufconn.Listen(1 << 20)
	simtest.Serve(t, rt, lis)
	conn := must(lis.Dial())
	must(conn.Write([]byte(http2.ClientPreface)))
	p := &pinger{t: t, conn: conn, framer: http2.NewFramer(conn, conn), goAways: make(chan http2.ErrCode, 1)}
	check(t, p.framer.WriteSettings())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			f, err := p.framer.ReadFrame()
			if err != nil {
				return
			}
			if f, ok := f.(*http2.GoAwayFrame); ok {
				p.goAways <- f.ErrCode
			}
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-done })
	return p
}

func (p *pinger) ping() {
	p.t.Helper()
	check(p.t, p.framer.WritePing(false, [8]byte{}))
	synctest.Wait()
}

// subscribe opens a stream of events and leaves it alone.
func (p *pinger) subscribe() {
	p.t.Helper()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", runtimeapi.RuntimeService_GetContainerEvents_FullMethodName},
		{":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		check(p.t, enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}))
	}
	check(p.t, p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true}))
	check(p.t, p.framer.WriteData(1, true, make([]byte, 5))) // an empty message
	synctest.Wait()
}

// Who pings too often is counted and cut off, as gRPC's default policy has it.
func TestKeepaliveStrikes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := simtest.New(t, sim.Config{})
		p := newPinger(t, rt)
		p.ping() // the first is free
		for i, pause := range []time.Duration{2 * time.Hour, time.Hour, time.Minute, time.Second} {
			time.Sleep(pause)
			p.ping()
			if got := rt.Keepalive(); got.Pings != i+2 || got.Strikes != i {
				t.Errorf("after a pause of %v: %+v, want %d strikes", pause, got, i)
			}
		}
		if code := <-p.goAways; code != http2.ErrCodeEnhanceYourCalm {
			t.Errorf("cut off with %v", code)
		}
		synctest.Wait()
		if got := rt.Keepalive(); got.GoAways != 1 {
			t.Errorf("%+v, want one GOAWAY", got)
		}
	})
}

// While a stream is open the pause is MinTime, and what the runtime sends
// forgives a ping.
func TestKeepaliveWithAStream(t *testing.T) {
	for name, tc := range map[string]struct {
		minTime, pause time.Duration
		strikes        int
	}{
		"default, often":  {0, time.Minute, 3},
		"default, seldom": {0, 5 * time.Minute, 0},
		"own, often":      {time.Minute, 30 * time.Second, 3},
		"own, seldom":     {time.Minute, time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, sim.Config{KeepaliveMinTime: tc.minTime}, func(t *testing.T, rt *sim.Runtime, _ client, _ func() *reader) {
				p := newPinger(t, rt)
				p.subscribe()
				for range 4 {
					p.ping()
					time.Sleep(tc.pause)
				}
				if got := rt.Keepalive().Strikes; got != tc.strikes {
					t.Errorf("%+v, want %d strikes", rt.Keepalive(), tc.strikes)
				}
			})
		})
	}
	inBubble(t, sim.Config{}, func(t *testing.T, rt *sim.Runtime, _ client, _ func() *reader) {
		p := newPinger(t, rt)
		p.subscribe()
		for range 5 {
			p.ping()
			inject(rt, "x")
			time.Sleep(time.Second)
		}
		if got := rt.Keepalive(); got.Strikes != 0 || got.GoAways != 0 {
			t.Errorf("%+v, want no strikes: each ping was followed by an event", got)
		}
	})
}

// A client of gRPC's own that works hard and measures its bandwidth by pings
// isn't struck, and an end in good order is no GOAWAY of this kind.
func TestKeepaliveOfAnHonestClient(t *testing.T) {
	rt, path := simtest.Start(t, sim.Config{})
	conn := simtest.Dial(t, path)
	c := runtimeapi.NewRuntimeServiceClient(conn)
	_, app := pod(t, rt, "u1")
	simtest.Rule(t, rt, sim.Rule{Method: "ContainerStatus", Edit: sim.PadTo(1 << 20)})
	for range 50 {
		must(c.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: app}))
	}
	if got := rt.Keepalive(); got.Strikes != 0 || got.GoAways != 0 || got.Pings == 0 {
		t.Errorf("%+v, want pings and no strikes", got)
	}
	r := subscribe(t, conn)
	waitSubscribers(t, rt, 1)
	rt.Restart()
	wantCode(t, r.end(), codes.Unavailable)
	if got := rt.Keepalive(); got.GoAways != 0 {
		t.Errorf("%+v", got)
	}
}
