"""Every error babelgate raises on purpose, each with its stable code.

The tree::

    BabelgateError
    ├── ConfigError                  config_invalid          refused at start-up, names the key
    ├── EnvelopeError                (the first problem's)   a body the contract refuses
    │   └── EnvelopeSyntaxError      invalid_json            a body that is not one JSON object
    ├── BodyTooLarge                 body_too_large          actual size and limit
    ├── TooManyLines                 too_many_lines          an upload of more lines than are read
    ├── InvalidParameter             invalid_parameter       a parameter outside its range
    ├── InvalidIdempotencyKey        invalid_idempotency_key the header holds no key
    ├── IdempotencyUnsupported       idempotency_unsupported nobody keeps keys for that queue
    ├── IdempotencyKeyReused         idempotency_key_reused  the key belongs to another message
    ├── IdempotencyInProgress        idempotency_in_progress the first call with the key is under way
    ├── IdempotencyUnresolved        outcome_unknown         the first call with the key was cut off
    ├── KeysFull                     idempotency_keys_full   the store takes no new keys
    ├── UnsupportedByBroker          (given)                 the route's broker cannot do that
    ├── QueueNotFound                queue_not_found         no route for the name
    ├── Unauthenticated              unauthenticated         no credential, or an unknown one
    ├── Forbidden                    forbidden               the credential lacks the right
    ├── InvalidAckToken              invalid_ack_token       forged, malformed, of another queue
    ├── LeaseLost                    lease_lost              expired, or handed out again
    ├── OwnerUnreachable             owner_unreachable       the replica that holds it cannot be asked
    ├── Draining                     draining                the process is stopping
    ├── Overloaded                   overloaded              a bound of this process is reached
    └── BrokerError
        ├── BrokerUnavailable        broker_unavailable      nothing was written
        ├── OutcomeUnknown           outcome_unknown         written, and not confirmed
        ├── BrokerRejected           broker_rejected         the broker refused this message
        ├── StorageFull              storage_full            disk or memory of the broker is full
        └── StorageReadOnly          storage_read_only       the file cannot be written

An error carries facts as attributes; its docstring, formatted with them, is its message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self


@dataclass(frozen=True, slots=True)
class Problem:
    """One defect of a body: RFC 6901 ``pointer``, stable ``code``, and a sentence."""

    pointer: str
    code: str
    detail: str


class BabelgateError(Exception):
    """Something went wrong."""

    code: ClassVar[str] = "error"
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
        """Itself, as a result that is kept or was answered. The frames that it was raised through hold bodies, and soon
        itself: only the collector of cycles would free them."""
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


class ConfigError(BabelgateError):
    """{key}: {reason}"""

    code = "config_invalid"


class EnvelopeError(BabelgateError):
    """The body is not a valid envelope."""

    code = "invalid_envelope"

    def __init__(self, problems: Sequence[Problem], trace_id: str | None = None) -> None:
        super().__init__(problems=tuple(problems), trace_id=trace_id)
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
    """The upload has more than {limit} {kind}. What stands before them was published."""

    code = "too_many_lines"


class InvalidParameter(BabelgateError):
    """{name}: {reason}"""

    code = "invalid_parameter"


class InvalidIdempotencyKey(BabelgateError):
    """Idempotency-Key: {reason}"""

    code = "invalid_idempotency_key"


class IdempotencyUnsupported(BabelgateError):
    """Messages of the queue {queue} take no idempotency key: {reason}."""

    code = "idempotency_unsupported"


class IdempotencyKeyReused(BabelgateError):
    """This idempotency key was used for another message of the queue {queue}. Nothing was published."""

    code = "idempotency_key_reused"


class IdempotencyInProgress(BabelgateError):
    """The first call with this idempotency key is under way. Nothing was published; ask again for its answer."""

    code = "idempotency_in_progress"
    retryable = True


class IdempotencyUnresolved(BabelgateError):
    """The first call with this idempotency key was cut off: its message may have been published. None was now."""

    code = "outcome_unknown"


class KeysFull(BabelgateError):
    """The broker {broker} keeps idempotency.max_keys = {limit} keys already. Nothing was published."""

    code = "idempotency_keys_full"
    retryable = True


class UnsupportedByBroker(BabelgateError):
    """{reason}"""

    def __init__(self, code: str, pointer: str, reason: str, **facts: Any) -> None:
        super().__init__(reason=reason, pointer=pointer, **facts)
        self._code = code

    @property
    def problem_code(self) -> str:
        return self._code


class QueueNotFound(BabelgateError):
    """No route is configured for the queue {queue}."""

    code = "queue_not_found"


class Unauthenticated(BabelgateError):
    """A valid bearer token is needed."""

    code = "unauthenticated"


class Forbidden(BabelgateError):
    """{reason}"""

    code = "forbidden"


class InvalidAckToken(BabelgateError):
    """The ack token is malformed, was not issued by this gateway, or belongs to another queue."""

    code = "invalid_ack_token"


class LeaseLost(BabelgateError):
    """The lease has expired, or the message was handed out again."""

    code = "lease_lost"


class OwnerUnreachable(BabelgateError):
    """The replica that handed this message out could not be reached: {reason}. Nothing was settled."""

    code = "owner_unreachable"
    retryable = True


class Draining(BabelgateError):
    """The gateway is stopping and takes no new work."""

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


class OutcomeUnknown(BrokerError):
    """The broker {broker} did not confirm the operation: {reason}. It may or may not have taken effect."""

    code = "outcome_unknown"
    retryable = True


class BrokerRejected(BrokerError):
    """The broker {broker} refused the operation: {reason}"""

    code = "broker_rejected"


class StorageFull(BrokerError):
    """The storage of the broker {broker} is full: {reason}. Nothing was written."""

    code = "storage_full"
    retryable = True


class StorageReadOnly(BrokerError):
    """The storage of the broker {broker} is read-only: {reason}. Nothing was written."""

    code = "storage_read_only"
