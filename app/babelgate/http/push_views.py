"""Requests and answers about pushes, as FastAPI validates and documents them."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import ConfigDict, Field

from babelgate.config.push import PushTargetSettings
from babelgate.http.views import View
from babelgate.masking import mask_url
from babelgate.push.bodies import BodyFormat
from babelgate.push.circuit import State
from babelgate.push.pushes import PushInfo
from babelgate.push.targets import PushTarget


class PushRequest(PushTargetSettings):
    """Where the messages of the queue are pushed to, as `push` in a route of the configuration."""

    # Of a request, no type is converted to another.
    model_config = ConfigDict(strict=True, coerce_numbers_to_str=False)


class PushTargetView(View):
    """A target, without its secrets."""

    url: str = Field(description="The URL; the values of its query are `***`.")
    body: BodyFormat
    """What is posted."""
    max_messages: int | None
    """Most messages in one post, whose body is a list; `null`: one message, without a list."""
    concurrency: int
    """Most posts at a time, of each process."""
    per_second: float | None
    """Most posts in a second, of each process; `null`: no bound."""
    timeout_seconds: float
    """Seconds for a post."""
    reject_statuses: list[int]
    """Statuses of answers with which a message is dead-lettered at once."""
    headers: list[str]
    """The names of the additional headers."""
    secrets: int
    """How many secrets sign each post."""

    @classmethod
    def of(cls, target: PushTarget) -> Self:
        """The view of ``target``."""
        return cls(
            url=mask_url(target.url),
            body=target.body,
            max_messages=target.max_messages,
            concurrency=target.concurrency,
            per_second=target.per_second,
            timeout_seconds=target.timeout_seconds,
            reject_statuses=list(target.reject_statuses),
            headers=[name for name, _ in target.headers],
            secrets=len(target.secrets),
        )


class PushFailureView(View):
    """A post that was no success."""

    at: int = Field(description="When it began; Unix milliseconds UTC.")
    webhook_id: str
    """The `webhook-id` of the message."""
    status: int | None
    """The status of the answer; `null` without one."""
    code: Literal["status", "no_answer", "unreachable", "internal_error"]
    """Whether the status was no success, there was no answer, or no connection."""
    detail: str
    """The same for people, with the beginning of the answer."""


class PushOutcomesView(View):
    """What became of the posts since the push started in the process that answers."""

    acked: int = Field(default=0, description="Messages that are done.")
    nacked: int = Field(default=0, description="Failed attempts.")
    rejected: int = Field(default=0, description="Messages that were dead-lettered at once.")
    held: int = Field(default=0, description="Messages that went back, because the target asked for a pause.")
    unreachable: int = Field(default=0, description="Messages that went back, because there was no connection.")


class PushStateView(View):
    """The state of a push in the process that answers."""

    circuit: State = Field(
        description="`open`: nothing is pushed for `wait_seconds`. `half_open`: a single message probes the target."
    )
    wait_seconds: float
    """Seconds until a message is pushed again; 0 while nothing holds it."""
    in_flight: int
    """Messages that were received and are not settled yet."""
    outcomes: PushOutcomesView
    failures: list[PushFailureView] = Field(description="The latest failures, at most 10, the newest last.")


class PushView(View):
    """The push of a queue."""

    queue: str
    """The name of the queue in paths."""
    source: Literal["configuration", "api"]
    """Where the target comes from. One of the configuration cannot be changed by calls."""
    paused: bool
    """Whether nothing is pushed until `:resume`."""
    target: PushTargetView
    state: PushStateView | None = Field(
        description="`null` while the push is paused, or does not run; the log has the reason."
    )

    @classmethod
    def of(cls, info: PushInfo) -> Self:
        """The view of ``info``."""
        state = None
        if (pusher := info.pusher) is not None:
            state = PushStateView(
                circuit=pusher.circuit.state,
                wait_seconds=round(pusher.circuit.wait_seconds, 3),
                in_flight=pusher.in_flight,
                outcomes=PushOutcomesView(**pusher.state.outcomes),
                failures=[PushFailureView.model_validate(each) for each in pusher.state.failures],
            )
        target = PushTargetView.of(info.target)
        return cls(queue=info.queue, source=info.source, paused=info.paused, target=target, state=state)


class PushChangeView(PushView):
    """The push of a queue after a change, and which processes know it."""

    told: int
    """How many other processes have confirmed that they know the change."""
    silent: list[str]
    """Peers that gave no answer, by address or socket. They learn it when they answer again."""

    @classmethod
    def of(cls, info: PushInfo) -> Self:
        """The view of ``info``."""
        told, silent = info.heard.told, list(info.heard.silent)
        return cls(**dict(PushView.of(info)), told=told, silent=silent)


class PushRemovedView(View):
    """A push that was removed, and which processes know it."""

    queue: str
    """The name of the queue in paths."""
    removed: bool = True
    """Always `true`."""
    told: int
    """How many other processes have confirmed that they know it."""
    silent: list[str]
    """Peers that gave no answer, by address or socket. They learn it when they answer again."""


class PushTestResultView(View):
    """What became of a test post."""

    webhook_id: str
    """Its `webhook-id`, which begins with `test_`."""
    status: int | None
    """The status of the answer; `null` without one."""
    seconds: float
    """Its duration in seconds."""
    detail: str
    """The beginning of the answer, or why there was none."""
