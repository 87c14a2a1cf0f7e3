package rpc

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	pleg "github.com/plegd/plegd"
	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/internal/unsent"
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

// podParts are pods on their way to a client, in parts that come in one message
// each.
type podParts struct {
	pods [][]*plegdv1.Pod
	room unsent.Parts
}

// takePods takes pods and converts them. What take returns is converted before any
// of it is sent: so a client that takes nothing holds up nobody who wants pods. No more
// is made than there is room for when it is made.
func (s *Server) takePods(ctx context.Context, full bool, take func() ([]pleg.Pod, error)) (*podParts, error) {
	if err := s.snapshot.wait(ctx); err != nil {
		return nil, err
	}
	defer s.snapshot.free()
	if !s.unsent.Fits(1) {
		return nil, errUnsent()
	}
	pods, err := take()
	if err != nil {
		return nil, err
	}
	parts, sizes, err := chunks(pods, full, s.unsent.Fits)
	if err != nil {
		return nil, err
	}
	room, ok := s.unsent.TakeParts(sizes)
	if !ok {
		return nil, errUnsent()
	}
	return &podParts{parts, room}, nil
}

// errUnsent is the status of an answer for which there is no room.
func errUnsent() error {
	return busy(fmt.Errorf("%d MiB of answers wait for clients to take them, which is all that may be; try again later", maxUnsent>>20))
}

// send sends the parts, as the messages that of makes of them.
func (p *podParts) send(o *outlet, of func([]*plegdv1.Pod) proto.Message) error {
	return p.room.Send(func(i int, part *unsent.Part) error {
		m := of(p.pods[i])
		p.pods[i] = nil
		return o.send(part.Of(m), "")
	})
}

// chunks converts pods. There is at least one part, of no pods if there are none.
// sizes are those of the parts as they are sent, bytes. It ends with errUnsent as soon
// as so many bytes don't fit.
func chunks(pods []pleg.Pod, full bool, fits func(bytes int) bool) (parts [][]*plegdv1.Pod, sizes []int, err error) {
	parts, sizes = [][]*plegdv1.Pod{nil}, []int{0}
	total := 0
	for i := range pods {
		p, err := protoPod(&pods[i], full)
		if err != nil {
			return nil, nil, err
		}
		n, last := proto.Size(p)+unsent.PerItem, len(parts)-1
		if total += n; !fits(total) {
			return nil, nil, errUnsent()
		}
		if len(parts[last]) > 0 && sizes[last]+n > chunkBytes {
			parts, sizes, last = append(parts, nil), append(sizes, 0), last+1
		}
		parts[last] = append(parts[last], p)
		sizes[last] += n
	}
	return parts, sizes, nil
}
