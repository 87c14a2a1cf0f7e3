package simruntime

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// service is the runtime over gRPC. Calls it doesn't know are Unimplemented,
// and recorded like all others.
type service struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	r    *Runtime
	stop <-chan struct{} // closed when this server ends
	down <-chan struct{} // closed when the run of the runtime that it serves ends, which is a little earlier
}

func (s *service) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	profile := s.r.Profile()
	return &runtimeapi.VersionResponse{
		Version:           "0.1.0", // of the kubelet's runtime API, the same for ever
		RuntimeName:       profile.Name,
		RuntimeVersion:    profile.Version,
		RuntimeApiVersion: "v1",
	}, nil
}

// Status says that all is well. Nothing in it tells whether the runtime has
// events: CRI offers no place for that.
func (s *service) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: true},
			{Type: runtimeapi.NetworkReady, Status: true},
		}},
	}, nil
}

func (s *service) RunPodSandbox(_ context.Context, req *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	id, err := s.r.runSandbox(req.GetConfig(), req.GetRuntimeHandler())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, nil
}

func (s *service) StopPodSandbox(_ context.Context, req *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	return &runtimeapi.StopPodSandboxResponse{}, s.r.StopPodSandbox(req.GetPodSandboxId())
}

func (s *service) RemovePodSandbox(_ context.Context, req *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	return &runtimeapi.RemovePodSandboxResponse{}, s.r.RemovePodSandbox(req.GetPodSandboxId())
}

// PodSandboxStatus leaves timestamp and containers_statuses unset, as
// containerd does after setting one without the other emptied pods
// (containerd#11323), unless the profile has them.
func (s *service) PodSandboxStatus(_ context.Context, req *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	return s.r.sandboxAnswer(req.GetPodSandboxId())
}

func (s *service) ListPodSandbox(_ context.Context, req *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{Items: s.r.listSandboxes(req.GetFilter())}, nil
}

func (s *service) StreamPodSandboxes(req *runtimeapi.StreamPodSandboxesRequest, out grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxesResponse]) error {
	if s.r.Profile().NoStreamingLists {
		return status.Error(codes.Unimplemented, "unknown method StreamPodSandboxes")
	}
	return sendBatches(s.r.listSandboxes(req.GetFilter()), s.r.cfg.StreamBatch, func(b []*runtimeapi.PodSandbox) error {
		return out.Send(&runtimeapi.StreamPodSandboxesResponse{PodSandboxes: b})
	})
}

func (s *service) CreateContainer(_ context.Context, req *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	id, err := s.r.createContainer(req.GetPodSandboxId(), req.GetConfig(), 0)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, nil
}

func (s *service) StartContainer(_ context.Context, req *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	return &runtimeapi.StartContainerResponse{}, s.r.StartContainer(req.GetContainerId())
}

func (s *service) StopContainer(_ context.Context, req *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	return &runtimeapi.StopContainerResponse{}, s.r.StopContainer(req.GetContainerId(), req.GetTimeout() == 0)
}

func (s *service) RemoveContainer(_ context.Context, req *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	return &runtimeapi.RemoveContainerResponse{}, s.r.RemoveContainer(req.GetContainerId())
}

func (s *service) ListContainers(_ context.Context, req *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{Containers: s.r.listContainers(req.GetFilter())}, nil
}

func (s *service) StreamContainers(req *runtimeapi.StreamContainersRequest, out grpc.ServerStreamingServer[runtimeapi.StreamContainersResponse]) error {
	if s.r.Profile().NoStreamingLists {
		return status.Error(codes.Unimplemented, "unknown method StreamContainers")
	}
	return sendBatches(s.r.listContainers(req.GetFilter()), s.r.cfg.StreamBatch, func(b []*runtimeapi.Container) error {
		return out.Send(&runtimeapi.StreamContainersResponse{Containers: b})
	})
}

func (s *service) ContainerStatus(_ context.Context, req *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	st, err := s.r.ContainerStatus(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ContainerStatusResponse{Status: st}, nil
}

func (s *service) GetContainerEvents(_ *runtimeapi.GetEventsRequest, out grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	switch profile := s.r.Profile(); {
	case profile.NoEvents:
		return status.Error(codes.Unimplemented, "unknown method GetContainerEvents for service runtime.v1.RuntimeService")
	case profile.EventsOff:
		return nil
	}
	return s.r.getContainerEvents(s.stop, out.Send)
}
