package criserver

import (
	"context"
	"strconv"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Version is passed through.
func (s *Server) Version(ctx context.Context, req *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return pass[runtimeapi.VersionResponse](ctx, s, runtimeapi.RuntimeService_Version_FullMethodName, req)
}

// Status is passed through, but for secrets.
func (s *Server) Status(ctx context.Context, req *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return passEdited(ctx, s, runtimeapi.RuntimeService_Status_FullMethodName, req, maskSecrets)
}

// RuntimeConfig is passed through.
func (s *Server) RuntimeConfig(ctx context.Context, req *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	return pass[runtimeapi.RuntimeConfigResponse](ctx, s, runtimeapi.RuntimeService_RuntimeConfig_FullMethodName, req)
}

// ContainerStats is passed through.
func (s *Server) ContainerStats(ctx context.Context, req *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	return pass[runtimeapi.ContainerStatsResponse](ctx, s, runtimeapi.RuntimeService_ContainerStats_FullMethodName, req)
}

// ListContainerStats is passed through.
func (s *Server) ListContainerStats(ctx context.Context, req *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	return pass[runtimeapi.ListContainerStatsResponse](ctx, s, runtimeapi.RuntimeService_ListContainerStats_FullMethodName, req)
}

// StreamContainerStats is passed through.
func (s *Server) StreamContainerStats(req *runtimeapi.StreamContainerStatsRequest, out grpc.ServerStreamingServer[runtimeapi.StreamContainerStatsResponse]) error {
	return passStream(s, runtimeapi.RuntimeService_StreamContainerStats_FullMethodName, req, out)
}

// PodSandboxStats is passed through.
func (s *Server) PodSandboxStats(ctx context.Context, req *runtimeapi.PodSandboxStatsRequest) (*runtimeapi.PodSandboxStatsResponse, error) {
	return pass[runtimeapi.PodSandboxStatsResponse](ctx, s, runtimeapi.RuntimeService_PodSandboxStats_FullMethodName, req)
}

// ListPodSandboxStats is passed through.
func (s *Server) ListPodSandboxStats(ctx context.Context, req *runtimeapi.ListPodSandboxStatsRequest) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	return pass[runtimeapi.ListPodSandboxStatsResponse](ctx, s, runtimeapi.RuntimeService_ListPodSandboxStats_FullMethodName, req)
}

// StreamPodSandboxStats is passed through.
func (s *Server) StreamPodSandboxStats(req *runtimeapi.StreamPodSandboxStatsRequest, out grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxStatsResponse]) error {
	return passStream(s, runtimeapi.RuntimeService_StreamPodSandboxStats_FullMethodName, req, out)
}

// ListMetricDescriptors is passed through.
func (s *Server) ListMetricDescriptors(ctx context.Context, req *runtimeapi.ListMetricDescriptorsRequest) (*runtimeapi.ListMetricDescriptorsResponse, error) {
	return pass[runtimeapi.ListMetricDescriptorsResponse](ctx, s, runtimeapi.RuntimeService_ListMetricDescriptors_FullMethodName, req)
}

// ListPodSandboxMetrics is passed through.
func (s *Server) ListPodSandboxMetrics(ctx context.Context, req *runtimeapi.ListPodSandboxMetricsRequest) (*runtimeapi.ListPodSandboxMetricsResponse, error) {
	return pass[runtimeapi.ListPodSandboxMetricsResponse](ctx, s, runtimeapi.RuntimeService_ListPodSandboxMetrics_FullMethodName, req)
}

// StreamPodSandboxMetrics is passed through.
func (s *Server) StreamPodSandboxMetrics(req *runtimeapi.StreamPodSandboxMetricsRequest, out grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxMetricsResponse]) error {
	return passStream(s, runtimeapi.RuntimeService_StreamPodSandboxMetrics_FullMethodName, req, out)
}

// ListImages is passed through.
func (s *Server) ListImages(ctx context.Context, req *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	return pass[runtimeapi.ListImagesResponse](ctx, s, runtimeapi.ImageService_ListImages_FullMethodName, req)
}

// StreamImages is passed through.
func (s *Server) StreamImages(req *runtimeapi.StreamImagesRequest, out grpc.ServerStreamingServer[runtimeapi.StreamImagesResponse]) error {
	return passStream(s, runtimeapi.ImageService_StreamImages_FullMethodName, req, out)
}

// ImageStatus is passed through.
func (s *Server) ImageStatus(ctx context.Context, req *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	return pass[runtimeapi.ImageStatusResponse](ctx, s, runtimeapi.ImageService_ImageStatus_FullMethodName, req)
}

// ImageFsInfo is passed through.
func (s *Server) ImageFsInfo(ctx context.Context, req *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	return pass[runtimeapi.ImageFsInfoResponse](ctx, s, runtimeapi.ImageService_ImageFsInfo_FullMethodName, req)
}

// quoted shows an id that a client gave.
func quoted(id string) string { return strconv.Quote(id[:min(len(id), 200)]) }
