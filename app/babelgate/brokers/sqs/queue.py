"""Reads the native name and the options of a route into an SQS queue."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from babelgate.brokers.options import BOOLEAN, OptionMap, OptionReader, choice
from babelgate.errors import ConfigError

FIFO = ".fifo"
DEAD_SUFFIX = "-dlq"
"""The SDKs of BabelQueue write dead letters to ``<queue>-dlq``, and to ``<queue>-dlq.fifo`` of ``<queue>.fifo``."""

_NAME = re.compile(r"[A-Za-z0-9_-]+(\.fifo)?")
_MAX_NAME = 80
"""https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-queues.html"""

_ARN = re.compile(r"arn:[a-z-]+:sqs:(?P<region>[a-z0-9-]+):(?P<account>\d{12}):(?P<name>[^:]+)")
_GROUP = re.compile(r"[!-~]{1,128}")
"""https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html"""


@dataclass(frozen=True, slots=True)
class SqsQueue:
    """A queue with the validated options of its route.

    ``url``: where the route gives it. ``account`` and ``region``: those of an ARN; None: the caller's own. ``group``:
    the message group of messages without an ordering key. ``content_based``: the queue itself finds duplicates by
    content. ``create``: whether the gateway creates a queue that is missing, with ``attributes``.
    ``for_dead_letters``: it is the queue of another one's dead letters.
    """

    name: str
    url: str | None = None
    account: str | None = None
    region: str | None = None
    group: str = ""
    content_based: bool = False
    create: bool = False
    for_dead_letters: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def fifo(self) -> bool:
        """Whether it is a FIFO queue."""
        return self.name.endswith(FIFO)

    @property
    def key(self) -> str:
        """Identifies the queue among all accounts: another one may have a queue of this name."""
        return self.url or f"{self.account or ''}/{self.name}"

    @property
    def dead(self) -> SqsQueue:
        """The queue of its dead letters, in the same account."""
        name = dead_name(self.name)
        url = None if self.url is None else self.url.removesuffix(self.name) + name
        return SqsQueue(name, url, self.account, self.region, create=self.create, for_dead_letters=True)


def dead_name(name: str) -> str:
    """The name of the queue of the dead letters of the queue ``name``."""
    return name.removesuffix(FIFO) + DEAD_SUFFIX + (FIFO if name.endswith(FIFO) else "")


def queue_of(native_name: str, options: Mapping[str, Any]) -> SqsQueue:
    """The queue ``native_name``, a name, a URL or an ARN, with a route's options.

    ``create``: ``never`` (the default) or ``missing``; ``attributes`` of a queue that the gateway creates, by Amazon's
    names. Of FIFO queues: ``group`` (default: the queue's name) and ``content_based_deduplication`` (default false).
    Raises ConfigError, ``key`` "native_name" or the option's name.
    """
    given = OptionMap(options)
    name, url, account, region = _located(native_name)
    _check_name(name)
    fifo = name.endswith(FIFO)
    group, content_based = name, False
    if fifo:
        group = given.read("group", _GROUP_OPTION, name)
        content_based = given.read("content_based_deduplication", BOOLEAN, False)
    create = given.read("create", choice("never", "missing"), "never") == "missing"
    if not create:
        given.refuse("attributes", "create: missing is expected beside it")
    if create and (url is not None or account is not None):
        raise ConfigError(key="create", reason="only a queue that is given by its name can be created")
    attributes = given.read("attributes", _ATTRIBUTES, {})
    given.finish(" for a FIFO queue" if fifo else " for a standard queue")
    return SqsQueue(name, url, account, region, group, content_based, create, attributes=attributes)


def _located(native_name: str) -> tuple[str, str | None, str | None, str | None]:
    """Name, URL, account and region in a name, a URL or an ARN."""
    if native_name.startswith(("http://", "https://")):
        parts = urlsplit(native_name)
        name = parts.path.rpartition("/")[2]
        if not parts.hostname or "@" in parts.netloc or parts.query or not name:
            raise ConfigError(key="native_name", reason="the URL of a queue ends with its name")
        return name, native_name, None, None
    if native_name.startswith("arn:"):
        found = _ARN.fullmatch(native_name)
        if found is None:
            raise ConfigError(key="native_name", reason="arn:aws:sqs:REGION:ACCOUNT:NAME is expected")
        return found["name"], None, found["account"], found["region"]
    return native_name, None, None, None


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        reason = "a name on Amazon SQS has letters, digits, - and _, and no dot but in .fifo at its end"
        raise ConfigError(key="native_name", reason=reason)
    if len(dead_name(name)) > _MAX_NAME:
        reason = f"a name on Amazon SQS has at most {_MAX_NAME} characters, with {DEAD_SUFFIX} for the dead letters"
        raise ConfigError(key="native_name", reason=reason)


def _group(value: object) -> str:
    if not isinstance(value, str) or not _GROUP.fullmatch(value):
        raise ValueError
    return value


def _attributes(value: object) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError
    made: dict[str, str] = {}
    for name, each in value.items():
        if not isinstance(name, str) or isinstance(each, bool) or not isinstance(each, str | int):
            raise ValueError
        made[name] = str(each)
    return made


_GROUP_OPTION = OptionReader("1 to 128 printable ASCII characters", _group)
_ATTRIBUTES = OptionReader("a mapping of the names of attributes to texts or whole numbers", _attributes)
