package criserver

import (
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// way is how a method is served.
type way uint8

const (
	fromCache way = iota + 1
	passed
)

// served are the methods that this endpoint has. None of them changes or enters
// anything.
var served = map[string]way{
	runtimeapi.RuntimeService_ListPodSandbox_FullMethodName:     fromCache,
	runtimeapi.RuntimeService_StreamPodSandboxes_FullMethodName: fromCache,
	runtimeapi.RuntimeService_PodSandboxStatus_FullMethodName:   fromCache,
	runtimeapi.RuntimeService_ListContainers_FullMethodName:     fromCache,
	runtimeapi.RuntimeService_StreamContainers_FullMethodName:   fromCache,
	runtimeapi.RuntimeService_ContainerStatus_FullMethodName:    fromCache,
	runtimeapi.RuntimeService_GetContainerEvents_FullMethodName: fromCache,

	runtimeapi.RuntimeService_Version_FullMethodName:                 passed,
	runtimeapi.RuntimeService_Status_FullMethodName:                  passed,
	runtimeapi.RuntimeService_RuntimeConfig_FullMethodName:           passed,
	runtimeapi.RuntimeService_ContainerStats_FullMethodName:          passed,
	runtimeapi.RuntimeService_ListContainerStats_FullMethodName:      passed,
	runtimeapi.RuntimeService_StreamContainerStats_FullMethodName:    passed,
	runtimeapi.RuntimeService_PodSandboxStats_FullMethodName:         passed,
	runtimeapi.RuntimeService_ListPodSandboxStats_FullMethodName:     passed,
	runtimeapi.RuntimeService_StreamPodSandboxStats_FullMethodName:   passed,
	runtimeapi.RuntimeService_ListMetricDescriptors_FullMethodName:   passed,
	runtimeapi.RuntimeService_ListPodSandboxMetrics_FullMethodName:   passed,
	runtimeapi.RuntimeService_StreamPodSandboxMetrics_FullMethodName: passed,

	runtimeapi.ImageService_ListImages_FullMethodName:   passed,
	runtimeapi.ImageService_StreamImages_FullMethodName: passed,
	runtimeapi.ImageService_ImageStatus_FullMethodName:  passed,
	runtimeapi.ImageService_ImageFsInfo_FullMethodName:  passed,
}

// readOnly is a service with the served methods alone. The others come to
// refuse, like those of services that are not known.
func readOnly(d grpc.ServiceDesc) *grpc.ServiceDesc {
	d.Methods = slices.DeleteFunc(slices.Clone(d.Methods), func(m grpc.MethodDesc) bool {
		return served["/"+d.ServiceName+"/"+m.MethodName] == 0
	})
	d.Streams = slices.DeleteFunc(slices.Clone(d.Streams), func(m grpc.StreamDesc) bool {
		return served["/"+d.ServiceName+"/"+m.StreamName] == 0
	})
	return &d
}

// refuse answers everything that is not served. It doesn't read the request.
func refuse(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	return status.Errorf(codes.PermissionDenied, "%.200s: this is plegd's endpoint, which is read-only; what changes or enters something needs the runtime's own socket", method)
}
