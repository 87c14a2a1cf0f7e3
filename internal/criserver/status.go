package criserver

import (
	"context"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/store"
)

// PodSandboxStatus answers from the cache; the verbose form is passed through.
func (s *Server) PodSandboxStatus(ctx context.Context, req *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	ask := func() (*runtimeapi.PodSandboxStatusResponse, error) {
		return pass[runtimeapi.PodSandboxStatusResponse](ctx, s, runtimeapi.RuntimeService_PodSandboxStatus_FullMethodName, req)
	}
	if req.GetVerbose() {
		return ask()
	}
	src, d := s.cache()
	if d != "" {
		return doubted(s, d, ask)
	}
	e, err := s.find(ctx, src, store.KindSandbox, req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if d := doubtStatus(&e); d != "" {
		return doubted(s, d, ask)
	}
	st := sandboxStatus(&e)
	if st == nil || !settled(st) {
		st = s.shelf.last(e.ID)
	}
	if st != nil {
		return &runtimeapi.PodSandboxStatusResponse{Status: st}, nil
	}
	// The cache is right, but doesn't have all of it.
	resp, err := ask()
	if st := resp.GetStatus(); err == nil && st.GetId() == e.ID && st.GetState() == runtimeapi.PodSandboxState_SANDBOX_NOTREADY && settled(st) {
		s.shelf.keepLast(st)
	}
	return resp, err
}

// ContainerStatus answers from the cache; the verbose form is passed through.
func (s *Server) ContainerStatus(ctx context.Context, req *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	ask := func() (*runtimeapi.ContainerStatusResponse, error) {
		return pass[runtimeapi.ContainerStatusResponse](ctx, s, runtimeapi.RuntimeService_ContainerStatus_FullMethodName, req)
	}
	if req.GetVerbose() {
		return ask()
	}
	src, d := s.cache()
	if d != "" {
		return doubted(s, d, ask)
	}
	e, err := s.find(ctx, src, store.KindContainer, req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if d := doubtStatus(&e); d != "" {
		return doubted(s, d, ask)
	}
	if st := containerStatus(&e); st != nil {
		return &runtimeapi.ContainerStatusResponse{Status: st}, nil
	}
	return ask() // the cache is right, but doesn't have all of it
}

// doubted answers where the cache can't be relied on, as configured.
func doubted[T any](s *Server, d doubt, ask func() (T, error)) (T, error) {
	if s.cfg.Untrusted == Unavailable {
		var zero T
		return zero, d.err()
	}
	return ask()
}

// find finds a sandbox or container by its id, or by a beginning of it that no
// other of its kind has. Errors are worded and coded as containerd does it,
// since there are clients that look at the words.
func (s *Server) find(ctx context.Context, src Source, kind store.Kind, id string) (pleg.Entity, error) {
	if e, ok := src.Entity(id); ok && e.Kind == kind {
		return e, nil
	}
	what := "sandbox"
	if kind == store.KindContainer {
		what = "container " + quoted(id)
	}
	failed := func(code codes.Code, why string) error {
		return status.Error(code, "an error occurred when try to find "+what+": "+why)
	}
	if id == "" {
		return pleg.Entity{}, failed(codes.Unknown, "prefix can't be empty")
	}
	var found []string
	if err := s.inTurn(ctx, func() { found = matching(id, ofKind(src.Entities(), kind)) }); err != nil {
		return pleg.Entity{}, err
	}
	switch len(found) {
	case 0:
		return pleg.Entity{}, failed(codes.NotFound, "not found")
	case 1:
		if e, ok := src.Entity(found[0]); ok {
			return e, nil
		}
		return pleg.Entity{}, failed(codes.NotFound, "not found") // gone in this moment
	default:
		return pleg.Entity{}, failed(codes.Unknown, "Multiple IDs found with provided prefix: "+id)
	}
}

// matching returns the id itself if it is known, else those that begin with it.
func matching(id string, known []pleg.Entity) []string {
	var found []string
	for _, e := range known {
		switch {
		case id == "":
		case e.ID == id:
			return []string{id}
		case strings.HasPrefix(e.ID, id):
			found = append(found, e.ID)
		}
	}
	return found
}
