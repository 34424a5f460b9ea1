"""Checks the data of messages against the schemas of their jobs, where the route says so."""

from __future__ import annotations

from collections.abc import Sequence

from babelgate.brokers.binding import Delivery
from babelgate.envelope import Envelope, Poison, Received
from babelgate.errors import BabelgateError, EnvelopeError, Problem
from babelgate.gateway.broker_calls import PendingPublish
from babelgate.gateway.routing import Route
from babelgate.observe.events import Event, Observe
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger
from babelgate.runtime import turns
from babelgate.schemas.job_schemas import JobSchemas

_throttled = LogThrottle(get_logger(__name__))


class SchemaChecks:
    """The checks of one process. Its callers have seen that the schema of the route is not ``off``."""

    def __init__(self, observe: Observe) -> None:
        self.schemas = JobSchemas()
        """Those of the configuration, which may be replaced at any time."""
        self.refresh_failure: str | None = None
        """Why the schemas at a URL were not read, or cannot be used, at the last try; None: they are used."""
        self._observe = observe

    async def check(self, route: Route, sent: Envelope) -> None:
        """Check a message that is published, in turns of the event loop, and report what is wrong.

        Raises EnvelopeError where the route enforces the schemas.
        """
        problems = await turns.run(self._problems, sent, size=len(sent.body))
        if problems and (error := self._reported(route, sent, problems)) is not None:
            raise error

    def is_reported(self, sent: Envelope) -> bool:
        """Whether :meth:`check` must be called: something is wrong, or the check may take more than a moment."""
        return len(sent.body) > turns.SMALL_BYTES or bool(self._problems(sent))

    async def checked(
        self, route: Route, pendings: Sequence[PendingPublish | BabelgateError]
    ) -> list[PendingPublish | BabelgateError]:
        """The messages of a batch; those that are refused are replaced by their errors, and errors stay."""

        def problems(pending: PendingPublish | BabelgateError) -> Sequence[Problem]:
            return () if isinstance(pending, BabelgateError) else self._problems(pending.envelope)

        def size(pending: PendingPublish | BabelgateError) -> int:
            return 0 if isinstance(pending, BabelgateError) else len(pending.envelope.body)

        found = await turns.mapped(problems, pendings, size=size, background=True)
        results: list[PendingPublish | BabelgateError] = []
        for pending, wrong in zip(pendings, found, strict=True):
            error = None
            if wrong and not isinstance(pending, BabelgateError):
                error = self._reported(route, pending.envelope, wrong)
            results.append(pending if error is None else error)
        return results

    async def dry_run(self, route: Route, sent: Envelope) -> Sequence[Problem]:
        """What is wrong with a message that is not published; it is not reported.

        Raises EnvelopeError where the route enforces the schemas.
        """
        problems = _placed(sent, await turns.run(self._problems, sent, size=len(sent.body), background=True))
        if problems and route.policy.schema == "enforce":
            raise EnvelopeError(problems, sent.trace_id)
        return problems

    async def received(
        self, route: Route, deliveries: Sequence[Delivery], inspected: Sequence[Received | Poison]
    ) -> list[Received | Poison]:
        """What :class:`babelgate.gateway.inspection.Inspector` has found, where a message that violates its schema is
        poison if the route enforces the schemas, and else reported."""

        def problems(index: int) -> Sequence[Problem]:
            received = inspected[index]
            return () if isinstance(received, Poison) else self.schemas.problems(received.job, deliveries[index].body)

        found = await turns.mapped(problems, range(len(inspected)), size=lambda index: len(deliveries[index].body))
        results: list[Received | Poison] = []
        for received, wrong in zip(inspected, found, strict=True):
            if wrong and not isinstance(received, Poison):
                if route.policy.schema == "enforce":
                    self._observe(Event("schema_violation", route.queue, route.broker, reason="dead_lettered"))
                    results.append(Poison(wrong[0].code, wrong[0].detail, wrong[0].pointer))
                    continue
                self._warn(route, received.job, wrong)
            results.append(received)
        return results

    def _problems(self, sent: Envelope) -> Sequence[Problem]:
        return self.schemas.problems(sent.job, sent.body)

    def _reported(self, route: Route, sent: Envelope, problems: Sequence[Problem]) -> EnvelopeError | None:
        """Count ``problems``, and log those that refuse nothing.

        Returns the error with which the message is refused; None if it is published.
        """
        if route.policy.schema == "enforce":
            self._observe(Event("schema_violation", route.queue, route.broker, reason="refused"))
            return EnvelopeError(_placed(sent, problems), sent.trace_id)
        self._warn(route, sent.job, problems)
        return None

    def _warn(self, route: Route, job: str, problems: Sequence[Problem]) -> None:
        # Nothing of the message is quoted but its job, which is known if it has a schema.
        known, code = job if self.schemas.get(job) is not None else None, problems[0].code
        _throttled.warning("schema violation", queue=route.queue, broker=route.broker, code=code, job=known)
        self._observe(Event("schema_violation", route.queue, route.broker, reason="warned"))


def _placed(sent: Envelope, problems: Sequence[Problem]) -> list[Problem]:
    """``problems`` with pointers in the body of the client."""
    return [Problem(sent.placed(each.pointer), each.code, each.detail) for each in problems]
