package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// probeTimeout is enough for a runtime on a busy machine, and for a person who waits.
const probeTimeout = 2 * time.Second

// usualSockets are where runtimes listen if nobody configured them otherwise.
var usualSockets = []string{
	"/run/containerd/containerd.sock",
	"/run/crio/crio.sock",
	"/var/run/cri-dockerd.sock",
	"/run/k3s/containerd/containerd.sock",
}

// target is a runtime that answered; the zero target is none.
type target struct {
	name   string // the runtime's own, fit for a folder's name
	socket string
}

// choose finds the runtime to run on. An endpoint that the user named is taken or refused, never
// passed over. Of the usual sockets the first that answers is taken, so that a file left behind by a
// runtime that is gone doesn't win; what doesn't answer is told.
func choose(ctx context.Context, endpoint string, usual []string, say func(string, ...any)) (target, error) {
	if endpoint != "" {
		socket := strings.TrimPrefix(endpoint, "unix://")
		if !filepath.IsAbs(socket) {
			return target{}, fmt.Errorf("CONTAINER_RUNTIME_ENDPOINT %q is not unix:// and an absolute path", endpoint)
		}
		name, err := probe(ctx, socket)
		if err != nil {
			return target{}, fmt.Errorf("CONTAINER_RUNTIME_ENDPOINT %s can't be used: %w (unset it to look elsewhere)", endpoint, err)
		}
		return target{name: name, socket: socket}, nil
	}
	for _, socket := range usual {
		name, err := probe(ctx, socket)
		switch {
		case err == nil:
			return target{name: name, socket: socket}, nil
		case errors.Is(err, fs.ErrNotExist):
		default:
			say("passing over %s: %v", socket, err)
		}
	}
	return target{}, ctx.Err()
}

// probe asks who listens on the socket.
func probe(ctx context.Context, socket string) (name string, err error) {
	// gRPC would say only that it can't connect.
	if _, err := os.Stat(socket); err != nil {
		return "", err
	}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", fmt.Errorf("dial: %w", err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	v, err := runtimeapi.NewRuntimeServiceClient(conn).Version(ctx, &runtimeapi.VersionRequest{})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return "", errors.New("it serves no CRI (is the CRI plugin disabled?)")
	case status.Code(err) == codes.DeadlineExceeded:
		return "", fmt.Errorf("no answer within %v", probeTimeout)
	case err != nil:
		return "", explain(err)
	}
	return folderName(v.GetRuntimeName()), nil
}

// explain keeps the part of a connection error that says what to do.
func explain(err error) error {
	message := status.Convert(err).Message()
	switch {
	case strings.Contains(message, "permission denied"):
		return errors.New("permission denied (run as root, or as a member of the socket's group)")
	case strings.Contains(message, "connection refused"):
		return errors.New("connection refused: nobody listens, the runtime has ended")
	}
	return errors.New(message)
}

// folderName makes a name that a runtime gave itself fit for a path.
func folderName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return -1
	}, strings.ToLower(name))
	if name == "" || name == "simulated" {
		return "runtime"
	}
	return name
}
