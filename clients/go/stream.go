package babelgate

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// A gateway sends a keep-alive after 15 s without an event. A connection that is silent for three of them is dead.
	longestSilence = 45 * time.Second
	// Where a stream has worked, so many answers in a row that are no streams come from a gateway that is away.
	mostRefusals = 8
	jsonLines    = "application/x-ndjson"
)

var (
	errSilent = errors.New("nothing came within " + longestSilence.String())
	errEnded  = errors.New("the stream has ended")
	// errUndecodable ends the consumer: the next stream would send the same line.
	errUndecodable = &ProblemError{Status: 200, Code: "http_200", Detail: "a line of the stream is no JSON object"}
	// errNoStreams: the gateway is older than streams, or a proxy in front of it refuses or buffers them.
	errNoStreams = errors.New("babelgate: no streams")
)

// A stream is the source of a consumer with Stream: one stream after the other, each after a pause as between long polls.
type stream struct {
	consumer *Consumer
	// arrived are deliveries that no handler has begun. The window of the stream bounds them.
	arrived chan *Delivery
	failed  chan error // at most one: errNoStreams, or why the gateway refuses the consumer
	works   bool       // a stream has sent something
}

// openStream reads until reading is done, and then ends the stream: the gateway delivers what is not settled again, and
// counts no attempt. What arrives when ctx is done is left to that, and no other stream is opened.
func (c *Consumer) openStream(ctx, reading context.Context) *stream {
	s := &stream{consumer: c, arrived: make(chan *Delivery, c.options.Concurrency), failed: make(chan error, 1)}
	go func() {
		if err := s.read(ctx, reading); err != nil {
			s.failed <- err
		}
	}()
	return s
}

func (s *stream) read(ctx, reading context.Context) error {
	pauses := &attempts{pause: firstPause}
	refusals := 0
	for ctx.Err() == nil {
		begun, err := s.once(ctx, reading)
		if reading.Err() != nil {
			return nil
		}
		s.forget()
		s.consumer.suspectLeases()
		if ctx.Err() != nil {
			return nil
		}
		if !errors.Is(err, errNoStreams) {
			refusals = 0
		} else if refusals++; s.works && refusals <= mostRefusals {
			err = &UnreachableError{err, false}
		}
		if begun {
			pauses = &attempts{pause: firstPause}
		}
		pause, again := pauses.pauseAfter(err)
		if !again {
			return err
		}
		s.consumer.options.Logger.Warn("stream ended", "queue", s.consumer.queue, "next_in", pause, "error", err)
		if sleep(reading, pause) != nil {
			return nil
		}
	}
	return nil
}

// next waits for a delivery. It returns none when ctx is done: what is not started is delivered again.
func (s *stream) next(ctx context.Context) (*Delivery, error) {
	select {
	case delivery := <-s.arrived:
		if ctx.Err() != nil {
			return nil, nil
		}
		return delivery, nil
	case err := <-s.failed:
		return nil, err
	case <-ctx.Done():
		return nil, nil
	}
}

// forget drops what has arrived: it is delivered again.
func (s *stream) forget() {
	for {
		select {
		case <-s.arrived:
		default:
			return
		}
	}
}

// once reads one stream until it ends. begun: it sent an event. The error is never nil.
func (s *stream) once(ctx, reading context.Context) (begun bool, err error) {
	connection, cut := context.WithCancelCause(reading)
	defer cut(nil)
	silence := time.AfterFunc(longestSilence, func() { cut(errSilent) })
	defer silence.Stop()
	body, err := s.open(connection)
	if err == nil {
		defer body.Close()
		lines := bufio.NewReader(&noisy{body, silence})
		for err == nil {
			var line []byte
			if line, err = lines.ReadBytes('\n'); err == nil {
				begun, s.works = true, true
				err = s.take(ctx, reading, line)
			}
		}
	}
	var problem *ProblemError
	switch {
	case errors.Is(context.Cause(connection), errSilent) && !begun:
		return begun, fmt.Errorf("%w: %w", errNoStreams, errSilent)
	case errors.Is(context.Cause(connection), errSilent):
		return begun, &UnreachableError{errSilent, false}
	case errors.As(err, &problem) || errors.Is(err, errNoStreams):
		return begun, err
	case errors.Is(err, io.EOF):
		return begun, &UnreachableError{errEnded, false}
	}
	return begun, &UnreachableError{err, false}
}

// open returns the body of a stream.
func (s *stream) open(ctx context.Context) (io.ReadCloser, error) {
	c := s.consumer.client
	query := url.Values{
		"max_in_flight": {strconv.Itoa(s.consumer.options.Concurrency)},
		"lease_seconds": {strconv.FormatFloat(s.consumer.options.Lease.Seconds(), 'f', -1, 64)},
	}
	request := call{method: http.MethodGet, path: pathOf(s.consumer.queue, "messages:stream?"+query.Encode())}
	request.header = http.Header{"Accept": {jsonLines}, "Accept-Encoding": {"identity"}}
	made, err := c.request(ctx, request)
	if err != nil {
		return nil, err
	}
	endless := *c.http
	endless.Timeout = 0
	answer, err := endless.Do(made)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode == http.StatusOK && strings.HasPrefix(answer.Header.Get("Content-Type"), jsonLines) {
		return answer.Body, nil
	}
	defer answer.Body.Close()
	if answer.StatusCode < 300 {
		return nil, fmt.Errorf("%w: the answer has the type %q", errNoStreams, answer.Header.Get("Content-Type"))
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	err = problemOf(answer, body)
	var problem *ProblemError
	if errors.As(err, &problem) {
		none := false
		switch problem.Status {
		case http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusNotImplemented:
			none = true
		case http.StatusNotFound:
			none = problem.Code != "queue_not_found"
		case http.StatusGatewayTimeout:
			none = problem.ofProxy()
		}
		if none {
			return nil, fmt.Errorf("%w: %v", errNoStreams, err)
		}
	}
	return nil, err
}

// take handles one event.
func (s *stream) take(ctx, reading context.Context, line []byte) error {
	var event struct {
		Event string          `json:"event"`
		Data  json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(bytes.TrimSpace(line), &event); err != nil {
		return errUndecodable
	}
	switch event.Event {
	case "message":
		delivery := &Delivery{Queue: s.consumer.queue}
		if err := json.Unmarshal(event.Data, delivery); err != nil {
			return errUndecodable
		}
		select {
		case s.arrived <- delivery:
		case <-ctx.Done():
		case <-reading.Done():
		}
	case "problem":
		problem := &ProblemError{}
		if err := json.Unmarshal(event.Data, problem); err != nil {
			return errUndecodable
		}
		if !problem.Retryable {
			return problem
		}
		s.consumer.options.Logger.Warn("stream has a problem", "queue", s.consumer.queue, "error", problem)
	}
	return nil
}

// noisy puts off the end of the silence whenever something is read.
type noisy struct {
	io.Reader
	silence *time.Timer
}

func (n *noisy) Read(into []byte) (int, error) {
	count, err := n.Reader.Read(into)
	if count > 0 {
		n.silence.Reset(longestSilence)
	}
	return count, err
}
