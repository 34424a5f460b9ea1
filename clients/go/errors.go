package babelgate

import (
	"errors"
	"fmt"
	"time"
)

// A ProblemError is an answer of the gateway that refuses a request (RFC 9457).
type ProblemError struct {
	Status int    `json:"status"`
	Code   string `json:"code"` // stable: use it, and not the text, to tell problems apart
	Title  string `json:"title"`
	Detail string `json:"detail"`
	// Retryable: the same request may succeed later, after RetryAfter if that is not zero.
	Retryable  bool          `json:"retryable"`
	TraceID    string        `json:"trace_id"`
	Errors     []Defect      `json:"errors"`
	RetryAfter time.Duration `json:"-"`
}

// A Defect is one defect of a request: an RFC 6901 pointer, a stable code, and a sentence.
type Defect struct {
	Pointer string `json:"pointer"`
	Code    string `json:"code"`
	Detail  string `json:"detail"`
}

func (e *ProblemError) Error() string {
	return fmt.Sprintf("babelgate: %s: %s", e.Code, e.Detail)
}

// ofProxy reports whether a proxy in front of the gateway says this, which has no code.
func (e *ProblemError) ofProxy() bool { return e.Code == fmt.Sprintf("http_%d", e.Status) }

// IsLeaseLost reports whether err says that a lease is over: the message was settled, or is delivered again.
func IsLeaseLost(err error) bool {
	var problem *ProblemError
	return errors.As(err, &problem) && problem.Code == "lease_lost"
}

// An UnreachableError says that no gateway answered.
type UnreachableError struct {
	Err error
	// OutcomeUnknown: the request may have been carried out all the same.
	OutcomeUnknown bool
}

func (e *UnreachableError) Error() string {
	if e.OutcomeUnknown {
		return fmt.Sprintf("babelgate: no gateway answered, and the request may have been carried out: %v", e.Err)
	}
	return fmt.Sprintf("babelgate: no gateway answered: %v", e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

type rejection struct{ error }

func (r rejection) Unwrap() error { return r.error }

type retry struct {
	error
	delay time.Duration
}

func (r retry) Unwrap() error { return r.error }

// Reject makes a handler's error dead-letter the message now.
func Reject(err error) error { return rejection{err} }

// RetryIn makes a handler's error deliver the message again after delay. It counts as a failed attempt.
func RetryIn(delay time.Duration, err error) error { return retry{err, delay} }
