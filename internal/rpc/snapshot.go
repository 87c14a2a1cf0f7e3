package rpc

import (
	"context"
	"fmt"

	"golang.org/x/sync/semaphore"
	"google.golang.org/protobuf/proto"

	pleg "github.com/plegd/plegd"
	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
)

const (
	// chunkBytes is how large a message of several pods may grow. A pod that is
	// larger comes alone.
	chunkBytes = 256 << 10
	// maxSnapshots are taken and converted at once; others wait for their turn, which
	// doesn't depend on a client.
	maxSnapshots = 8
	// maxUnsent bounds what is converted and not yet taken by clients, bytes as they
	// are sent: several times all that is known of a full node. A snapshot that is
	// larger may go alone.
	maxUnsent = 32 << 20
)

// parts are pods on their way to a client.
type parts struct {
	unsent *semaphore.Weighted
	chunks []chunk
}

// chunk is what comes in one message.
type chunk struct {
	pods  []*plegdv1.Pod
	size  int   // as it is sent, bytes
	share int64 // of maxUnsent
}

// takePods takes pods and converts them. What take returns is converted before any
// of it is sent: so a client that takes nothing holds up nobody who wants pods.
func (s *Server) takePods(ctx context.Context, full bool, take func() ([]pleg.Pod, error)) (*parts, error) {
	if err := s.snapshot.wait(ctx); err != nil {
		return nil, err
	}
	defer s.snapshot.free()
	pods, err := take()
	if err != nil {
		return nil, err
	}
	p := &parts{unsent: s.unsent}
	if p.chunks, err = chunks(pods, full); err != nil {
		return nil, err
	}
	left := int64(maxUnsent)
	for i := range p.chunks {
		c := &p.chunks[i]
		c.share = min(left, int64(c.size))
		left -= c.share
	}
	if !s.unsent.TryAcquire(maxUnsent - left) {
		err := fmt.Errorf("%d MiB of pods wait for clients to take them, which is all that may be; try again later", maxUnsent>>20)
		return nil, busy(err)
	}
	return p, nil
}

// send sends the parts, and lets go of each that is sent.
func (p *parts) send(send func([]*plegdv1.Pod) error) error {
	defer func() {
		for _, c := range p.chunks {
			p.unsent.Release(c.share)
		}
	}()
	for len(p.chunks) > 0 {
		if err := send(p.chunks[0].pods); err != nil {
			return err
		}
		p.unsent.Release(p.chunks[0].share)
		p.chunks[0] = chunk{}
		p.chunks = p.chunks[1:]
	}
	return nil
}

// chunks converts pods. There is at least one part, of no pods if there are none.
func chunks(pods []pleg.Pod, full bool) ([]chunk, error) {
	all := []chunk{{}}
	for i := range pods {
		p, err := protoPod(&pods[i], full)
		if err != nil {
			return nil, err
		}
		n, last := proto.Size(p), &all[len(all)-1]
		if len(last.pods) > 0 && last.size+n > chunkBytes {
			all = append(all, chunk{})
			last = &all[len(all)-1]
		}
		last.pods, last.size = append(last.pods, p), last.size+n
	}
	return all, nil
}
