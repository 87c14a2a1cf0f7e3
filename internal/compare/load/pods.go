package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/compare"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/retry"
	"github.com/plegd/plegd/internal/sysclock"
)

const (
	// callTimeout bounds one call. Making a pod takes a busy runtime seconds.
	callTimeout = 30 * time.Second
	// pullTimeout bounds the pull of the image.
	pullTimeout = 5 * time.Minute
	// retryPause is between tries of a pod whose call has failed.
	retryPause = time.Second
)

// Pods makes pods on a real runtime. It implements trial.Load.
type Pods struct {
	spec    Spec
	command []string // of the containers, nil for the image's own
	owner   owner
	client  *cri.Client
	api     runtimeapi.RuntimeServiceClient
	images  runtimeapi.ImageServiceClient
	tell    func(string)

	cancel context.CancelFunc
	wait   sync.WaitGroup

	mu     sync.Mutex
	failed map[string]int // calls that failed, by what was said
}

// NewPods prepares a load on the runtime at an endpoint, and removes what one has
// left behind that was killed. tell is told in words what is done.
func NewPods(ctx context.Context, endpoint string, spec Spec, command []string, tell func(string)) (*Pods, error) {
	self, err := newOwner()
	if err != nil {
		return nil, err
	}
	client, err := cri.Dial(cri.Config{Endpoint: endpoint, RPCTimeout: callTimeout, Clock: sysclock.New()})
	if err != nil {
		return nil, err
	}
	p := &Pods{
		spec: spec, command: command, owner: self, client: client, tell: tell, failed: map[string]int{},
		api: runtimeapi.NewRuntimeServiceClient(client.Conn()), images: runtimeapi.NewImageServiceClient(client.Conn()),
	}
	err = p.removeStale(ctx)
	if err == nil {
		err = p.pull(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Close closes the connection.
func (p *Pods) Close() error { return p.client.Close() }

// pull gets the image if it is not there.
func (p *Pods) pull(ctx context.Context) error {
	image := &runtimeapi.ImageSpec{Image: p.spec.Image}
	there, err := call(ctx, callTimeout, p.images.ImageStatus, &runtimeapi.ImageStatusRequest{Image: image})
	switch {
	case err != nil:
		return fmt.Errorf("image %s: %w", p.spec.Image, err)
	case there.GetImage() != nil:
		return nil
	}
	p.tell("pulling image " + p.spec.Image)
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	_, err = p.images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: image})
	if err != nil && !cri.Unimplemented(err) { // a simulated runtime takes any image
		return fmt.Errorf("image %s is not there and can't be pulled: %w", p.spec.Image, err)
	}
	return nil
}

// Begin implements trial.Load. Each pod has a goroutine that plays the kubelet for
// it, with a random source of its own: what a pod does depends on the seed
// alone, and how the pods interleave on the runtime.
func (p *Pods) Begin(ctx context.Context) error {
	// Ctrl-C ends the measurement, and Halt the load.
	ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for i := range p.spec.Pods {
		p.wait.Go(func() { p.play(ctx, i) })
	}
	return nil
}

// Halt implements trial.Load. What is being done is finished.
func (p *Pods) Halt() {
	if p.cancel != nil {
		p.cancel()
	}
	p.wait.Wait()
}

// History implements trial.Load: a real runtime keeps none.
func (p *Pods) History() ([]compare.Happened, error) { return nil, nil }

// Words implements trial.Load.
func (p *Pods) Words() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spec.Words() + p.failures("; ")
}

// Failed says in words which calls failed, "" if none did.
func (p *Pods) Failed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failures("")
}

// failures says which calls failed, behind a prefix, "" if none did.
func (p *Pods) failures(prefix string) string {
	total, most, example := 0, 0, ""
	for why, n := range p.failed {
		total += n
		if why != others && (n > most || n == most && why < example) {
			most, example = n, why
		}
	}
	if total == 0 {
		return ""
	}
	return fmt.Sprintf("%s%d calls of the load failed, such as: %s", prefix, total, example)
}

// play is the life of one place for a pod: one pod after the other.
func (p *Pods) play(ctx context.Context, place int) {
	rng := rand.New(rand.NewPCG(p.spec.Seed, uint64(place)))
	// The first ones come at the configured pace too.
	perPod := float64(2 + 2*p.spec.Containers)
	_ = retry.Sleep(ctx, time.Duration(float64(place)*perPod/p.spec.Rate*float64(time.Second)))
	for n := 0; ctx.Err() == nil; n++ {
		pod := &pod{p: p, rng: rng, name: "plegd-compare-" + strconv.Itoa(place) + "-" + strconv.Itoa(n)}
		if err := pod.live(ctx); err != nil && ctx.Err() == nil {
			p.fail(err)
			_ = retry.Sleep(ctx, retryPause)
		}
	}
}

const (
	// maxFailures bounds how many different failures are kept; others is what the rest
	// counts as.
	maxFailures = 20
	others      = "others"
)

// names are what differs between failures that are the same: ids, and names of pods.
var names = regexp.MustCompile(`[0-9a-f]{12,}|plegd-compare-[0-9-]+`)

// fail counts what failed by the beginning of what was said.
func (p *Pods) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	why := fmt.Sprintf("%.300s", names.ReplaceAllString(err.Error(), "..."))
	if _, ok := p.failed[why]; !ok && len(p.failed) >= maxFailures {
		why = others
	}
	p.failed[why]++
}

// call makes one call, to its end even if ctx ends meanwhile: one that is taken
// back may leave something half made.
func call[Req, Resp any](ctx context.Context, timeout time.Duration, f func(context.Context, Req, ...grpc.CallOption) (Resp, error), req Req) (Resp, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	return f(ctx, req)
}
