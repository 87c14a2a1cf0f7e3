package simruntime

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// noImages is the image service of a runtime without images: clients such as crictl
// ask for it before they ask for anything else.
type noImages struct {
	runtimeapi.UnimplementedImageServiceServer
}

// ListImages implements [runtimeapi.ImageServiceServer].
func (noImages) ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	return &runtimeapi.ListImagesResponse{}, nil
}

// ImageStatus implements [runtimeapi.ImageServiceServer]: there is none.
func (noImages) ImageStatus(context.Context, *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	return &runtimeapi.ImageStatusResponse{}, nil
}

// ImageFsInfo implements [runtimeapi.ImageServiceServer].
func (noImages) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{}, nil
}
