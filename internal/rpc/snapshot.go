package rpc

import (
	"context"
	"fmt"

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
	// are sent: several times all that is known of a full node. What is larger may go
	// alone.
	maxUnsent = 32 << 20
)

// parts are pods on their way to a client.
type parts []part

// part is what comes in one message.
type part struct {
	pods []*plegdv1.Pod
	size int    // as it is sent, bytes
	give func() // gives its room back
}

// takePods takes pods and converts them. What take returns is converted before any
// of it is sent: so a client that takes nothing holds up nobody who wants pods.
func (s *Server) takePods(ctx context.Context, full bool, take func() ([]pleg.Pod, error)) (parts, error) {
	if err := s.snapshot.wait(ctx); err != nil {
		return nil, err
	}
	defer s.snapshot.free()
	pods, err := take()
	if err != nil {
		return nil, err
	}
	p, err := chunks(pods, full)
	if err != nil {
		return nil, err
	}
	left := maxUnsent
	for i := range p {
		share := min(left, p[i].size)
		left -= share
		give, ok := s.unsent.Take(share)
		if !ok {
			p[:i].drop()
			return nil, errUnsent()
		}
		p[i].give = give
	}
	return p, nil
}

func (p parts) drop() {
	for i := range p {
		p[i].give()
	}
}

// errUnsent is the status of an answer for which there is no room.
func errUnsent() error {
	return busy(fmt.Errorf("%d MiB of answers wait for clients to take them, which is all that may be; try again later", maxUnsent>>20))
}

// send sends the parts. From then on each counts as what is sent does.
func (p parts) send(send func([]*plegdv1.Pod) error) error {
	defer p.drop()
	for i := range p {
		p[i].give()
		if err := send(p[i].pods); err != nil {
			return err
		}
		p[i].pods = nil
	}
	return nil
}

// chunks converts pods. There is at least one part, of no pods if there are none.
func chunks(pods []pleg.Pod, full bool) (parts, error) {
	all := parts{{}}
	for i := range pods {
		p, err := protoPod(&pods[i], full)
		if err != nil {
			return nil, err
		}
		n, last := proto.Size(p), &all[len(all)-1]
		if len(last.pods) > 0 && last.size+n > chunkBytes {
			all = append(all, part{})
			last = &all[len(all)-1]
		}
		last.pods, last.size = append(last.pods, p), last.size+n
	}
	return all, nil
}
