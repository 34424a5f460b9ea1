"""All errors that babelgate raises deliberately, each with a stable code.

The tree::

    BabelgateError
    ├── InternalError                internal_error          a defect of the gateway; the log has it
    ├── ConfigError                  config_invalid          a bad configuration key, refused at start-up
    ├── EnvelopeError                (the first problem's)   a body that breaks the contract
    │   └── EnvelopeSyntaxError      invalid_json            a body that is not one JSON object
    ├── BodyTooLarge                 body_too_large          actual size and limit
    ├── TooManyLines                 too_many_lines          an upload with too many lines
    ├── TooManyFailures              too_many_failures       an upload with too many invalid entries
    ├── InvalidParameter             invalid_parameter       a parameter out of range
    ├── InvalidFilter                invalid_filter          a filter with a value outside its closed list
    ├── InvalidIdempotencyKey        invalid_idempotency_key a malformed Idempotency-Key header
    ├── IdempotencyUnsupported       idempotency_unsupported no broker keeps keys for the queue
    ├── IdempotencyKeyReused         idempotency_key_reused  the key belongs to another message
    ├── IdempotencyInProgress        idempotency_in_progress the first request with the key is in progress
    ├── IdempotencyUnresolved        outcome_unknown         the first request with the key was interrupted
    ├── KeysFull                     idempotency_keys_full   the key store is full
    ├── KeyShareFull                 idempotency_share_full  the caller's share of the key store is used up
    ├── UnsupportedByBroker          (given)                 the route's broker does not support it
    ├── QueueNotFound                queue_not_found         no route matches the name
    ├── UnknownDeadLetter            unknown_dead_letter     the queue has no dead letter with this id
    ├── DeadLetterNotReached         dead_letter_not_reached the search for it ended before the letters did
    ├── NotRedrivable                not_redrivable          the dead letter cannot be sent back as it is
    ├── ForceNeedsOtherQueue         force_needs_other_queue a forced redrive would return to the queue it came from
    ├── UnknownRedrive               unknown_redrive         the queue has no redrive job with this id
    ├── RedriveRunning               redrive_running         a redrive job of the queue is running
    ├── TooManyRedrives              too_many_redrives       the caller or the host runs as many jobs as it may
    ├── StateUnavailable             state_unavailable       state_dir cannot be read or written
    ├── Unauthenticated              unauthenticated         missing or unknown credential
    ├── Forbidden                    forbidden               the credential lacks the right
    ├── InvalidAckToken              invalid_ack_token       forged, malformed, or of another queue
    ├── LeaseLost                    lease_lost              expired, or delivered again
    ├── OwnerUnreachable             owner_unreachable       the replica with the lease does not answer
    ├── Draining                     draining                the process is stopping
    ├── Overloaded                   overloaded              a limit of this process is reached
    └── BrokerError
        ├── BrokerUnavailable        broker_unavailable      nothing was written
        ├── OutcomeUnknown           outcome_unknown         written but not confirmed
        ├── BrokerRejected           broker_rejected         the broker refused this message
        ├── PurgeInProgress          purge_in_progress       the broker purged the queue within the last minute
        ├── StorageFull              storage_full            disk or memory of the broker is full
        └── StorageReadOnly          storage_read_only       the file cannot be written

An error carries facts as attributes. Its docstring, formatted with these facts, is its message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

MAX_DETAIL = 1_000
"""Maximum characters of a sentence for a client, which may quote the request, a message or a broker."""


def shortened(detail: str) -> str:
    """``detail``, cut after MAX_DETAIL characters."""
    return detail if len(detail) <= MAX_DETAIL else detail[:MAX_DETAIL] + "…"


@dataclass(frozen=True, slots=True)
class Problem:
    """One defect of a body: RFC 6901 ``pointer``, stable ``code``, and a sentence."""

    pointer: str
    code: str
    detail: str


class BabelgateError(Exception):
    """An error occurred."""

    code: str = "error"
    retryable: ClassVar[bool] = False

    def __init__(self, **facts: Any) -> None:
        self.facts = facts
        super().__init__((type(self).__doc__ or "").format_map(facts))

    @property
    def problem_code(self) -> str:
        """The code a client sees."""
        return self.code

    @property
    def detail(self) -> str:
        """The sentence a client sees."""
        return str(self)

    def without_frames(self) -> Self:
        """Return this error without tracebacks, for results that are kept or were answered.

        The frames of a traceback reference message bodies and, in a cycle, the error itself, so that only the garbage
        collector would free them.
        """
        known: BaseException | None = self
        while known is not None:
            before = known.__context__
            known.__traceback__ = known.__cause__ = known.__context__ = None
            known = before
        return self

    def __getattr__(self, name: str) -> Any:
        facts = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(name)


class InternalError(BabelgateError):
    """An unexpected error occurred. The log has details under the id of this request."""

    code = "internal_error"

    @classmethod
    def caused_by(cls, error: Exception) -> Self:
        """The result of one of several items that ``error`` has made fail; its ``__cause__`` is for the log."""
        made = cls()
        made.__cause__ = error
        return made


class ConfigError(BabelgateError):
    """{key}: {reason}"""

    code = "config_invalid"


class EnvelopeError(BabelgateError):
    """The body is not a valid envelope."""

    code = "invalid_envelope"

    def __init__(self, problems: Sequence[Problem], trace_id: str | None = None, **facts: Any) -> None:
        super().__init__(problems=tuple(problems), trace_id=trace_id, **facts)
        self.problems: tuple[Problem, ...] = tuple(problems)

    @property
    def problem_code(self) -> str:
        return self.problems[0].code

    @property
    def detail(self) -> str:
        return self.problems[0].detail


class EnvelopeSyntaxError(EnvelopeError):
    """The body is not exactly one JSON object."""

    code = "invalid_json"


class BodyTooLarge(BabelgateError):
    """The body has {actual} bytes, more than the limit of {limit} bytes."""

    code = "body_too_large"


class TooManyLines(BabelgateError):
    """The upload has more than {limit} {kind}. The valid entries before this limit were published."""

    code = "too_many_lines"


class TooManyFailures(BabelgateError):
    """{limit} {kind} of the upload failed, so its rest was not read. The valid entries before were published."""

    code = "too_many_failures"


class InvalidParameter(BabelgateError):
    """{name}: {reason}"""

    code = "invalid_parameter"


class InvalidFilter(BabelgateError):
    """{name}: {reason}"""

    code = "invalid_filter"


class InvalidIdempotencyKey(BabelgateError):
    """Idempotency-Key: {reason}"""

    code = "invalid_idempotency_key"


class IdempotencyUnsupported(BabelgateError):
    """The queue {queue} does not support idempotency keys: {reason}."""

    code = "idempotency_unsupported"


class IdempotencyKeyReused(BabelgateError):
    """This idempotency key was already used for another message of the queue {queue}. Nothing was published."""

    code = "idempotency_key_reused"


class IdempotencyInProgress(BabelgateError):
    """The first request with this idempotency key is in progress. This request published nothing; repeat it later."""

    code = "idempotency_in_progress"
    retryable = True


class IdempotencyUnresolved(BabelgateError):
    """The first request with this key was cut short and may have published its message. This one published nothing."""

    code = "outcome_unknown"


class KeysFull(BabelgateError):
    """The broker {broker} already keeps {limit} keys, the value of idempotency.max_keys. Nothing was published."""

    code = "idempotency_keys_full"
    retryable = True


class KeyShareFull(BabelgateError):
    """{whose} has {held} keys in the broker {broker}, and its share is {limit} now. Nothing was published."""

    code = "idempotency_share_full"
    retryable = True


class UnsupportedByBroker(BabelgateError):
    """{reason}"""

    def __init__(self, code: str, pointer: str, reason: str, **facts: Any) -> None:
        super().__init__(reason=reason, pointer=pointer, **facts)
        self.code = code

    def moved(self, pointer: str) -> UnsupportedByBroker:
        """The same refusal with another ``pointer``, for a request in which the envelope is part of another body."""
        return UnsupportedByBroker(self.code, **self.facts | {"pointer": pointer})


class QueueNotFound(BabelgateError):
    """No route is configured for the queue {queue}."""

    code = "queue_not_found"


class UnknownDeadLetter(BabelgateError):
    """The queue {queue} has no dead letter {letter_id}. It may have been redriven or removed."""

    code = "unknown_dead_letter"


class DeadLetterNotReached(BabelgateError):
    """The dead letter {letter_id} is not among the {scanned} dead letters that were read. Go on with `next_cursor`."""

    code = "dead_letter_not_reached"


class NotRedrivable(BabelgateError):
    """The dead letter {letter_id} cannot be sent back as it is: {reason}"""

    code = "not_redrivable"


class ForceNeedsOtherQueue(BabelgateError):
    """`force` needs a `to_queue` other than {queue}, where an invalid message would be dead-lettered again."""

    code = "force_needs_other_queue"


class UnknownRedrive(BabelgateError):
    """The queue {queue} has no redrive job {id} on this host. Only the host that started a job knows it."""

    code = "unknown_redrive"


class RedriveRunning(BabelgateError):
    """The redrive job {id} of the queue {queue} is running. Cancel it, or wait for its end."""

    code = "redrive_running"
    retryable = True


class TooManyRedrives(BabelgateError):
    """{whose} already runs as many redrive jobs as allowed, {limit}. Wait for the end of one, or cancel it."""

    code = "too_many_redrives"
    retryable = True


class StateUnavailable(BabelgateError):
    """The gateway cannot use its state_dir: {reason}."""

    code = "state_unavailable"
    retryable = True


class Unauthenticated(BabelgateError):
    """A valid bearer token is required."""

    code = "unauthenticated"


class Forbidden(BabelgateError):
    """{reason}"""

    code = "forbidden"


class InvalidAckToken(BabelgateError):
    """The ack token {reason}."""

    code = "invalid_ack_token"

    def __init__(self, reason: str = "was not issued by this gateway for this queue", **facts: Any) -> None:
        super().__init__(reason=reason, **facts)


class LeaseLost(BabelgateError):
    """The lease has expired, or the message was delivered again."""

    code = "lease_lost"


class OwnerUnreachable(BabelgateError):
    """The replica that delivered this message could not be reached: {reason}. Nothing was settled."""

    code = "owner_unreachable"
    retryable = True


class Draining(BabelgateError):
    """The gateway is stopping and accepts no new work."""

    code = "draining"
    retryable = True


class Overloaded(BabelgateError):
    """The gateway is overloaded: {reason}."""

    code = "overloaded"
    retryable = True


class BrokerError(BabelgateError):
    """The broker {broker} failed: {reason}"""

    code = "broker_error"

    def __init__(self, broker: str, reason: str, **facts: Any) -> None:
        super().__init__(broker=broker, reason=reason, **facts)


class BrokerUnavailable(BrokerError):
    """The broker {broker} is not available: {reason}. Nothing was written."""

    code = "broker_unavailable"
    retryable = True
    answered = False
    """Whether the broker has answered, but has no answer about one queue now. It does not count as lost."""


class OutcomeUnknown(BrokerError):
    """The broker {broker} did not confirm the operation: {reason}. The operation may have taken effect."""

    code = "outcome_unknown"
    retryable = True
    later: asyncio.Future[BabelgateError | None] | None = None
    """The outcome of a write that still runs; None where it will never be known."""


class BrokerRejected(BrokerError):
    """The broker {broker} refused the operation: {reason}"""

    code = "broker_rejected"


class PurgeInProgress(BrokerError):
    """The broker {broker} purges a queue at most once in 60 seconds: {reason}. Nothing was removed now."""

    code = "purge_in_progress"
    retryable = True


class StorageFull(BrokerError):
    """The storage of the broker {broker} is full: {reason}. Nothing was written."""

    code = "storage_full"
    retryable = True


class StorageReadOnly(BrokerError):
    """The storage of the broker {broker} is read-only: {reason}. Nothing was written."""

    code = "storage_read_only"
