package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	pleg "github.com/plegd/plegd"
	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
)

// healthServer is gRPC's health service: both services that it knows, "" and
// PodLifecycle, serve while the generator is ready.
type healthServer struct {
	*health.Server
	health func() pleg.Health
}

func newHealth(of func() pleg.Health) *healthServer {
	h := &healthServer{Server: health.NewServer(), health: of}
	h.refresh()
	return h
}

func (h *healthServer) refresh() {
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if h.health().Ready {
		status = healthpb.HealthCheckResponse_SERVING
	}
	for _, service := range []string{"", plegdv1.PodLifecycle_ServiceDesc.ServiceName} {
		h.SetServingStatus(service, status)
	}
}

// follow keeps who watches informed until ctx ends.
func (h *healthServer) follow(ctx context.Context) {
	tick := time.NewTicker(healthPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			h.refresh()
		}
	}
}

// Check answers with what is so now. It implements healthpb.HealthServer.
func (h *healthServer) Check(ctx context.Context, req *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	h.refresh()
	return h.Server.Check(ctx, req)
}

// List answers with what is so now. It implements healthpb.HealthServer.
func (h *healthServer) List(ctx context.Context, req *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	h.refresh()
	return h.Server.List(ctx, req)
}
