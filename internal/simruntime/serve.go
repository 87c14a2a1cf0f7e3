package simruntime

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Serve answers CRI calls on a listener until the context ends, and then
// returns nil once every goroutine it started is gone. The listener is closed
// in the end. Several may be served at once. When the runtime goes down, the
// server ends and all its connections with it; when it comes up again, a
// listener of Listen is made anew, and any other goes on accepting.
func (r *Runtime) Serve(ctx context.Context, lis net.Listener) error {
	r.mu.Lock()
	r.loops++
	up := r.up
	r.mu.Unlock()
	src := newOpener(lis, up)
	defer src.close()

	defer func() {
		r.mu.Lock()
		r.loops--
		r.changed.Broadcast()
		r.mu.Unlock()
	}()
	// A Serve that waits for the runtime to come up waits on a condition, which
	// the end of the context has to wake.
	stopWaking := context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.changed.Broadcast()
	})
	defer stopWaking()

	for {
		down, ok := r.waitUp(ctx)
		if !ok {
			return nil
		}
		err := r.serveRun(ctx, src, down)
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// waitUp waits until the runtime is up and returns the channel that tells of
// the end of that run.
func (r *Runtime) waitUp(ctx context.Context) (<-chan struct{}, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.up && ctx.Err() == nil {
		r.changed.Wait()
	}
	return r.down, ctx.Err() == nil
}

// serveRun serves until the context or the present run of the runtime ends.
func (r *Runtime) serveRun(ctx context.Context, src opener, down <-chan struct{}) error {
	lis, err := src.open()
	if err != nil {
		return fmt.Errorf("runtime: listen: %w", err)
	}
	stop := make(chan struct{})
	svc := &service{r: r, stop: stop, down: down}
	server := grpc.NewServer(append([]grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.UnaryInterceptor(svc.unary), grpc.StreamInterceptor(svc.stream),
		grpc.WaitForHandlers(true),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: r.cfg.KeepaliveMinTime}),
	}, r.cfg.ServerOptions...)...)
	runtimeapi.RegisterRuntimeServiceServer(server, svc)
	runtimeapi.RegisterImageServiceServer(server, noImages{})

	socket, _ := lis.(*unixListener)
	if !r.enter(down, socket) {
		// Down was faster; the next turn opens anew.
		_ = lis.Close()
		return nil
	}
	served := make(chan struct{})
	watched := r.watched(lis)
	var serveErr error
	go func() {
		defer close(served)
		serveErr = server.Serve(watched)
	}()
	select {
	case <-ctx.Done():
	case <-down:
	case <-served:
		err = fmt.Errorf("runtime: serve: %w", serveErr)
	}
	close(stop) // lets go of calls that hang and streams that are idle
	if r.endsCleanly() {
		drain(server, watched)
	}
	watched.hangUp()
	server.Stop()
	<-served
	r.leave(socket)
	return err
}

// drainTime is how long an end in good order waits for clients.
const drainTime = time.Second

// drain lets calls and streams come to their end, but for those whose client
// doesn't read.
func drain(server *grpc.Server, watched *watchedListener) {
	timer := time.AfterFunc(drainTime, func() {
		watched.hangUp()
		server.Stop()
	})
	defer timer.Stop()
	server.GracefulStop()
}

// endsCleanly says whether the runtime, when it ends, ends streams without an
// error.
func (r *Runtime) endsCleanly() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.profile.CleanEnd && !r.killed && !r.gate.isShut()
}

// enter counts a server that is about to listen, unless its run is over.
func (r *Runtime) enter(down <-chan struct{}, socket *unixListener) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.up || (<-chan struct{})(r.down) != down {
		return false
	}
	r.serving++
	if socket != nil {
		r.sockets = append(r.sockets, socket)
	}
	r.changed.Broadcast()
	return true
}

func (r *Runtime) leave(socket *unixListener) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.serving--
	r.sockets = slices.DeleteFunc(r.sockets, func(l *unixListener) bool { return l == socket })
	r.changed.Broadcast()
}

// Down ends the runtime's process in good order, as SIGTERM does: listeners and
// connections close, streams end (with Unavailable, or as the profile says),
// queued and held events are lost. Containers live on under their shims:
// ExitContainer and ExitSandbox work, without an event. It returns when nothing
// listens any more. If the runtime was frozen, it is killed.
func (r *Runtime) Down() { r.end(false) }

// Kill is Down by SIGKILL: nothing is said to anybody, and the socket file
// stays and refuses connections until Up.
func (r *Runtime) Kill() { r.end(true) }

func (r *Runtime) end(kill bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.up {
		r.up, r.killed = false, kill || r.gate.isShut()
		if r.killed {
			r.gate.shut() // not a word gets out
			for _, l := range r.sockets {
				l.keepFile()
			}
		}
		close(r.down)
		r.lane.reset()
		r.hub.reset()
		r.changed.Broadcast()
	}
	for r.serving > 0 && !r.up {
		r.changed.Wait()
	}
	r.gate.unshut()
}

// RemoveSocket removes the files of the unix sockets on which the runtime
// listens, as somebody cleaning up does. Connections that are open stay, new
// ones find nothing until the runtime is down and up again.
func (r *Runtime) RemoveSocket() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.sockets {
		l.keepFile() // by then the path may be another's
		if err := os.Remove(l.path); err != nil {
			return fmt.Errorf("socket: %w", err)
		}
	}
	return nil
}

// Up starts the runtime again after Down or Kill. It knows of every exit
// meanwhile but tells of none. It returns when every Serve listens again (or
// has failed).
func (r *Runtime) Up() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.up {
		r.up, r.killed = true, false
		r.down = make(chan struct{})
		r.changed.Broadcast()
	}
	for r.up && r.serving < r.loops {
		r.changed.Wait()
	}
}

// Restart is Down and Up.
func (r *Runtime) Restart() {
	r.Down()
	r.Up()
}
