// Package babelgate is a client of babelgate, the HTTP gateway in front of message brokers: it publishes messages, and
// consumes them safely.
package babelgate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Version is the version of this module.
const Version = "0.2.0"

const (
	localURL       = "http://127.0.0.1:8080"
	firstPause     = 100 * time.Millisecond
	longestPause   = 10 * time.Second
	connectTimeout = 10 * time.Second
)

var (
	visible    = regexp.MustCompile(`^[!-~]+\z`)
	gatewayURL = regexp.MustCompile(`(?i)^https?://[^\x00-\x20\x7f/?#:][^\x00-\x20\x7f/?#]*(/[^\x00-\x20\x7f?#]*)?\z`)
)

// Options of a Client. Zero values mean the defaults.
type Options struct {
	Token      string        // the bearer token; default: BABELGATE_TOKEN
	Timeout    time.Duration // for one answer, beyond the time that a receive waits; default 30 s
	RetryFor   time.Duration // how long a failed call is repeated; default 60 s, negative: not at all
	HTTPClient *http.Client  // default: a client of its own, with connections that are kept
}

// A Client calls one gateway. It may be used by several goroutines.
type Client struct {
	url      string
	token    string
	timeout  time.Duration
	retryFor time.Duration
	http     *http.Client
	noKeys   sync.Map // queues that keep no idempotency keys
}

// New makes a client of the gateway at url; an empty url means BABELGATE_URL, or else http://127.0.0.1:8080. The error is
// that of a URL or a token that cannot be one; it does not show the token.
func New(url string, options Options) (*Client, error) {
	client := &Client{
		url:      first(url, os.Getenv("BABELGATE_URL"), localURL),
		token:    first(options.Token, os.Getenv("BABELGATE_TOKEN")),
		timeout:  options.Timeout,
		retryFor: options.RetryFor,
		http:     options.HTTPClient,
	}
	if !gatewayURL.MatchString(client.url) {
		return nil, errors.New("babelgate: the URL of the gateway begins with http:// or https:// and names a host, such as " +
			"http://127.0.0.1:8080, without spaces, line ends, query and fragment")
	}
	if client.token != "" && !visible.MatchString(client.token) {
		return nil, errors.New("babelgate: the token is visible ASCII, without spaces and line ends; one that was read " +
			"from a file often ends in a line feed")
	}
	client.url = strings.TrimRight(client.url, "/")
	if client.timeout == 0 {
		client.timeout = 30 * time.Second
	}
	if client.retryFor == 0 {
		client.retryFor = time.Minute
	}
	if client.http == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.DialContext = (&net.Dialer{Timeout: connectTimeout}).DialContext
		transport.MaxIdleConnsPerHost = 100
		client.http = &http.Client{Transport: transport}
	}
	return client, nil
}

// Call makes one request of the API, for what this package does not offer: it repeats nothing. path is relative to the
// gateway's URL. in and out are JSON; the types are in the package generated. Either may be nil.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	request := call{method: method, path: path}
	if in != nil {
		body, err := json.Marshal(in)
		if err != nil {
			return err
		}
		request.body = body
	}
	return c.once(ctx, request, out)
}

// repeat says when the same request may be sent again.
type repeat int

const (
	always        repeat = iota // it has the same effect twice as once
	unlessWritten               // only if it is certain that nothing was written
)

type call struct {
	method, path string
	body         []byte
	header       http.Header
	wait         time.Duration // how long the gateway may wait before it answers
	repeat       repeat
}

// do calls, and repeats the call for at most retryFor.
func (c *Client) do(ctx context.Context, request call, out any, retryFor time.Duration) error {
	attempts := newAttempts(request.repeat, retryFor)
	for {
		err := c.once(ctx, request, out)
		if err == nil || ctx.Err() != nil {
			return err
		}
		pause, again := attempts.pauseAfter(err)
		if !again {
			return err
		}
		if sleep(ctx, pause) != nil {
			return err
		}
	}
}

func (c *Client) once(ctx context.Context, request call, out any) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout+request.wait)
	defer cancel()
	made, err := c.request(ctx, request)
	if err != nil {
		return err
	}
	answer, err := c.http.Do(made)
	if err != nil {
		return &UnreachableError{err, !refused(err)}
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return &UnreachableError{err, true}
	}
	if answer.StatusCode >= 300 {
		return problemOf(answer, body)
	}
	if out == nil || len(body) == 0 {
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("babelgate: the answer cannot be read: %w", err)
	}
	return nil
}

// request is the HTTP request of a call.
func (c *Client) request(ctx context.Context, request call) (*http.Request, error) {
	made, err := http.NewRequestWithContext(ctx, request.method, c.url+"/"+request.path, bytes.NewReader(request.body))
	if err != nil {
		return nil, err
	}
	for name, values := range request.header {
		made.Header[name] = values
	}
	if request.body != nil {
		made.Header.Set("Content-Type", "application/json")
	}
	made.Header.Set("User-Agent", "babelgate-go/"+Version)
	if c.token != "" {
		made.Header.Set("Authorization", "Bearer "+c.token)
	}
	return made, nil
}

func problemOf(answer *http.Response, body []byte) error {
	problem := &ProblemError{}
	if json.Unmarshal(body, problem) != nil || problem.Code == "" {
		problem.Code, problem.Detail = fmt.Sprintf("http_%d", answer.StatusCode), "the answer has no details"
	}
	problem.Status = answer.StatusCode
	if seconds, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil {
		problem.RetryAfter = time.Duration(seconds) * time.Second
	}
	return problem
}

// refused reports whether err is certain to come from before the request was sent.
func refused(err error) bool {
	var operation *net.OpError
	return errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &operation) && operation.Op == "dial"
}

// attempts are the pauses of one call: from 0.1 s, doubling to 10 s, with jitter; or as the gateway says.
type attempts struct {
	repeat   repeat
	deadline time.Time // zero: none
	pause    time.Duration
}

func newAttempts(repeat repeat, retryFor time.Duration) *attempts {
	return &attempts{repeat, time.Now().Add(retryFor), firstPause}
}

// pauseAfter returns the pause until the next attempt, and whether there is one.
func (a *attempts) pauseAfter(err error) (time.Duration, bool) {
	if !repeats(err, a.repeat) {
		return 0, false
	}
	pause := time.Duration(float64(a.pause) * (0.5 + rand.Float64()/2))
	a.pause = min(2*a.pause, longestPause)
	var problem *ProblemError
	if errors.As(err, &problem) {
		pause = max(pause, problem.RetryAfter)
	}
	return pause, a.deadline.IsZero() || time.Now().Add(pause).Before(a.deadline)
}

func repeats(err error, repeat repeat) bool {
	var unreachable *UnreachableError
	if errors.As(err, &unreachable) {
		return repeat == always || !unreachable.OutcomeUnknown
	}
	var problem *ProblemError
	if !errors.As(err, &problem) {
		return false
	}
	if repeat == unlessWritten {
		return problem.Retryable && (problem.Status == 429 || problem.Status == 503)
	}
	switch problem.Status {
	case 408, 429, 502, 503, 504:
		return problem.Retryable || problem.ofProxy()
	}
	return problem.Retryable
}

func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func pathOf(queue, action string) string { return "queues/" + url.PathEscape(queue) + "/" + action }

func first(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}
