package simruntime

import (
	"net"
	"sync"
)

// valve makes a listener that can't be opened again (a bufconn, a TCP port that
// must not change) outlive the runs of the runtime: it accepts all the time and
// closes at once what comes while the runtime is down.
type valve struct {
	lis  net.Listener
	done chan struct{} // the accepting goroutine has ended

	mu    sync.Mutex
	run   *valveRun
	first *valveRun // the run that open is to return first, made ahead
	err   error     // of the listener, once it has failed
}

// valveRun is the listener of one run.
type valveRun struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	err    func() error
}

// newValve begins to accept. If the runtime is up, who comes before the first
// open waits for it: to the client the listener has listened all the time.
func newValve(lis net.Listener, up bool) *valve {
	v := &valve{lis: lis, done: make(chan struct{})}
	if up {
		v.first = v.newRun()
		v.run = v.first
	}
	go v.accept()
	return v
}

func (v *valve) newRun() *valveRun {
	return &valveRun{addr: v.lis.Addr(), conns: make(chan net.Conn), closed: make(chan struct{}), err: v.failure}
}

func (v *valve) accept() {
	defer close(v.done)
	for {
		conn, err := v.lis.Accept()
		v.mu.Lock()
		run := v.run
		if err != nil {
			v.err = err
		}
		v.mu.Unlock()
		switch {
		case err != nil:
			if run != nil {
				_ = run.Close()
			}
			return
		case run == nil:
			_ = conn.Close()
		default:
			select {
			case run.conns <- conn:
			case <-run.closed:
				_ = conn.Close()
			}
		}
	}
}

func (v *valve) failure() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.err != nil {
		return v.err
	}
	return net.ErrClosed
}

func (v *valve) open() (net.Listener, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.err != nil {
		return nil, v.err
	}
	v.run, v.first = v.first, nil
	if v.run == nil {
		v.run = v.newRun()
	}
	return v.run, nil
}

func (v *valve) close() {
	_ = v.lis.Close()
	v.mu.Lock()
	first := v.first
	v.mu.Unlock()
	if first != nil { // never opened, so nobody has closed it
		_ = first.Close()
	}
	<-v.done
}

func (l *valveRun) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, l.err()
	}
}

func (l *valveRun) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *valveRun) Addr() net.Addr { return l.addr }
