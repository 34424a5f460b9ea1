"""The names of OJS exchanges and queues. The OJS texts differ, so a route chooses the names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from babelgate.brokers.rabbitmq.delays import MAX_QUEUE_BYTES, ROUTING_KEY_BYTES
from babelgate.errors import ConfigError
from babelgate.ojs.terms import MAX_QUEUE, is_queue

QUEUE, DELAY = "{queue}", "{delay_ms}"
_LONGEST_DELAY = "9" * 10
_placeholders = re.compile(r"\{[^{}]*\}").findall


@dataclass(frozen=True, slots=True)
class Names:
    """Templates with ``{queue}``, for delays also with ``{delay_ms}``. The three exchanges are direct exchanges."""

    job_exchange: str = "ojs.direct"
    job_queue: str = "ojs.queue.{queue}"
    job_key: str = "{queue}"
    dead_exchange: str = "ojs.dlx"
    dead_queue: str = "ojs.dead.{queue}"
    dead_key: str = "{queue}"
    retry_exchange: str = "ojs.retry"
    retry_queue: str = "ojs.queue.retry.{queue}.{delay_ms}"
    retry_key: str = "{queue}.{delay_ms}"

    def of(self, queue: str) -> Names:
        """The names for the OJS queue ``queue``."""
        return Names(**{field.name: getattr(self, field.name).replace(QUEUE, queue) for field in fields(self)})

    def after(self, delay_ms: int) -> tuple[str, str]:
        """The queue that delays by ``delay_ms``, and its routing key."""
        return self.retry_queue.replace(DELAY, str(delay_ms)), self.retry_key.replace(DELAY, str(delay_ms))


SITE = Names()
"""As on https://openjobspec.org/spec/amqp-binding, which does not name the delay queues."""

SPEC = Names(
    job_exchange="ojs.exchange.direct",
    dead_exchange="ojs.exchange.dlx",
    dead_queue="ojs.queue.dlx.{queue}",
    retry_exchange="ojs.exchange.retry",
)
"""As in ``ojs-amqp-binding.md`` (1.0.0-rc.1, section 4.1) of the specification's repository."""

_NAMINGS = {"site": SITE, "spec": SPEC}
_OF_A_QUEUE = ("job_queue", "job_key", "dead_queue", "dead_key")
_OF_A_DELAY = ("retry_queue", "retry_key")


def names_of(naming: Any, queue: str) -> Names:
    """The names for the OJS queue ``queue``: ``site``, ``spec``, or templates that replace some of the site's.

    Raises ConfigError, ``key`` the option's name, also for a ``queue`` that is no OJS name.
    """
    if not is_queue(queue) or len(queue) > MAX_QUEUE:
        reason = f"{queue!r} is no OJS queue: [a-z0-9][a-z0-9.-]*, at most {MAX_QUEUE} characters"
        raise ConfigError(key="native_name", reason=reason)
    if isinstance(naming, Mapping):
        templates = _templates(naming)
    elif isinstance(naming, str) and naming in _NAMINGS:
        templates = _NAMINGS[naming]
    else:
        raise ConfigError(key="naming", reason="site, spec, or templates by name are expected")
    found = templates.of(queue)
    for template in (templates.dead_queue, templates.retry_queue):
        # Declared first, it would block the dead letters or retries of the other queue.
        if _matches(template, found.job_queue):
            reason = f"the jobs of {queue!r} would lie in {found.job_queue!r}, a name of another queue's {template!r}"
            raise ConfigError(key="native_name", reason=reason)
    for field in fields(found):
        # A schedule's routing key has the name of the job queue after the bits of the delay.
        most = MAX_QUEUE_BYTES if field.name == "job_queue" else ROUTING_KEY_BYTES
        if len(getattr(found, field.name).replace(DELAY, _LONGEST_DELAY).encode()) > most:
            raise ConfigError(key=f"naming.{field.name}", reason=f"more than {most} bytes for the queue {queue!r}")
    return found


def _matches(template: str, name: str) -> bool:
    """Whether ``template`` gives ``name`` for some queue."""
    pattern = re.escape(template)
    for placeholder, group, text in ((QUEUE, "queue", "[a-z0-9][a-z0-9.-]*"), (DELAY, "delay", "[0-9]+")):
        # A repeated placeholder stands for the same text, so that only the length of the first has to be tried.
        pattern = pattern.replace(re.escape(placeholder), f"(?P<{group}>{text})", 1)
        pattern = pattern.replace(re.escape(placeholder), f"(?P={group})")
    return re.fullmatch(pattern, name) is not None


def _templates(given: Mapping[str, Any]) -> Names:
    known = [field.name for field in fields(Names)]
    for name, template in given.items():
        key = f"naming.{name}"
        if name not in known:
            raise ConfigError(key=key, reason=f"unknown; known are {', '.join(known)}")
        if not isinstance(template, str) or not template:
            raise ConfigError(key=key, reason="a text is expected")
        needed = (QUEUE,) if name in _OF_A_QUEUE else (QUEUE, DELAY) if name in _OF_A_DELAY else ()
        allowed = (QUEUE, *needed)
        for placeholder in needed:
            if placeholder not in template:
                raise ConfigError(key=key, reason=f"must contain {placeholder}, or queues would share it")
        for placeholder in _placeholders(template):
            if placeholder not in allowed:
                raise ConfigError(key=key, reason=f"{placeholder} is unknown here; known are {', '.join(allowed)}")
    return replace(SITE, **given)
