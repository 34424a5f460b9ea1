"""What a gateway remembers: where, and entries that are as large as they can be.

The list is complete and true, because tests look for caches in the source and measure entries of each.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from itertools import chain
from typing import Any, NamedTuple

from babelgate.brokers.binding import QueueStats
from babelgate.brokers.kafka.admin import Topic
from babelgate.brokers.kafka.emptiness import Progress
from babelgate.brokers.kafka.url import KafkaQueue
from babelgate.brokers.pulsar.wire import EntryId
from babelgate.brokers.sqlite.file import WIDEST
from babelgate.brokers.sqs.settle import ReceiptHandle
from babelgate.cluster.client import Address
from babelgate.gateway.access import Access
from babelgate.gateway.ack_tokens import Lease
from babelgate.gateway.authorization import ANYONE, Right
from babelgate.gateway.routing import Route, Rule
from babelgate.http.publish_parameters import PublishParameters
from babelgate.observe.events import Facts
from babelgate.runtime.cache import Cache
from tests.architecture.sources import belongs, modules, parsed
from tests.brokers.registry import ALL

_PROGRAMS = ("babelgate.pipeline", "babelgate.cli", "babelgate.demo")
"""Programs of their own, which no caller of a gateway reaches."""

Entry = Callable[[int], tuple[Any, ...]]


class Remembered(NamedTuple):
    """One cache. ``place``: its module and its name there. ``scope``: what has one of its own.

    ``entry`` makes the n-th entry: a key and a value, or the arguments of a remembered call. ``entry_bytes``: the most
    that an entry of a remembered call takes; a Cache counts by itself.
    """

    place: str
    what: str
    scope: str
    entry: Entry
    entry_bytes: int = 0


class Bound(NamedTuple):
    """The most entries of a cache, and a Cache that counts their bytes as it does; None for an ``lru_cache``."""

    entries: int
    counting: Cache[Any, Any] | None = None

    def max_bytes(self, entry_bytes: int) -> int:
        """The most bytes. ``entry_bytes``: of an ``lru_cache``, the most that an entry takes."""
        return self.entries * entry_bytes if self.counting is None else self.counting.max_bytes


def _text(number: int, length: int = 120) -> str:
    return f"{number:06}".ljust(length, "x")


def _wide(number: int, length: int) -> str:
    """A text of ``length`` bytes in UTF-8, of which one makes each character take four in memory."""
    return _text(number, length - 4) + "\U0001f600"


def _bytes(number: int, length: int = 120) -> bytes:
    return _text(number, length).encode()


def _largest_rule() -> Rule:
    """The OJS profile of RabbitMQ has the routes with the most names and declarations."""
    (variant,) = (each for each in ALL if each.column == "RabbitMQ, OJS profile")
    return Rule("*", variant.binding(), options=variant.queue_options)


_LARGEST = _largest_rule()


def _route(number: int) -> tuple[str, Route]:
    queue = _text(number)
    return queue, _LARGEST.route(queue)


def _access(number: int) -> tuple[Any, Access]:
    queue, route = _route(number)
    return (ANYONE, Right.SEND, queue), Access(ANYONE, Right.SEND, route)


def _lease(number: int) -> tuple[str, Lease]:
    facts = Facts(1, _wide(number, 250), _wide(number, 250), _wide(number, 250), number, "python", 1, _text(number, 55))
    names = _text(number), _text(number, 64), _text(number, 2_048), _text(number, 16)
    return _text(number, 4_608), Lease(*names, 1_800_000_000_000 + number, 1_000 + number, facts)


def _receipt(number: int) -> tuple[str, ReceiptHandle]:
    name = _text(number, 36)
    return name, ReceiptHandle(name, _text(number, 1_024), 1_800_000_000_000 + number, 1_000 + number)


def _url(number: int) -> tuple[str, str]:
    name = _text(number, 80)
    return f"{10**12 - 1}/{name}", f"https://{_text(number, 253)}:65535/{10**12 - 1}/{name}"


def _partitions(number: int) -> tuple[str, Any]:
    return _text(number, 300), (number / 7, 1_000 + number)


def _line(number: int) -> tuple[Any, Any]:
    return ("messages of another program stay on the queue", _text(number)), (number / 7, 1_000 + number)


def _queue(number: int) -> tuple[str, KafkaQueue]:
    delays = tuple(number + each / 7 for each in range(99))
    return _text(number, 249), KafkaQueue(_text(number, 249), retry_delays_seconds=delays)


def _progress(number: int) -> tuple[str, Progress]:
    return _text(number, 255), Progress(10**12 + number, -(2**62) - number, number / 7)


def _plain(number: int) -> tuple[str, float]:
    return _text(number), number / 7


def _table(number: int) -> tuple[bytes]:
    # Names of one character, and the smallest values.
    return (b"\x01AI%b" % number.to_bytes(4) + b"".join(b"\x01%ct\x01" % (0x7F - n) for n in range(126)),)


def _entry_of_others(number: int) -> tuple[Any, float]:
    return (_text(number, 300), EntryId(10**12 + number, 10**12 + 2 * number)), number / 7


def _counts(number: int) -> tuple[Any, ...]:
    many = 10**12 + number
    return _text(number), (number / 7, QueueStats(many, many + 1, many + 2, many + 3, number / 3, many + 4))


CACHES = [
    Remembered(
        "babelgate.http.heads._remembered",
        "parts of targets",
        "process",
        lambda n: (b"/queues/%%F0%%9F%%98%%80%b" % _bytes(n, 230),),
        3_500,
    ),
    Remembered("babelgate.http.heads._is_host", "valid hosts", "process", lambda n: (_bytes(n, 256),), 600),
    Remembered(
        "babelgate.http.auth._is_own", "hosts of requests", "process", lambda n: (_bytes(n, 300), frozenset()), 800
    ),
    Remembered(
        "babelgate.http.schemas._remembered",
        "queries",
        "process",
        lambda n: (b"ordering_key=%%F0%%9F%%98%%80%b" % _bytes(n, 100), PublishParameters),
        1_200,
    ),
    Remembered(
        "babelgate.http.direct._callers",
        "callers by credential",
        "process",
        lambda n: ((_bytes(n, 900), _bytes(n, 100)), ANYONE),
    ),
    Remembered(
        "babelgate.identities.identities._refused",
        "refused tokens of issuers",
        "process",
        lambda n: (_text(n, 64), _text(n, 200)),
    ),
    Remembered(
        "babelgate.identities.issuer._missing",
        "names of keys that an issuer does not have",
        "issuer",
        lambda n: (_wide(n, 256), n / 7),
    ),
    Remembered("babelgate.gateway.gateway.accesses", "rights of callers", "process", _access),
    Remembered(
        "babelgate.gateway.overview._warned",
        "warnings about queues",
        "process",
        lambda n: (_text(n), (n / 7, [_text(n * 20 + each, 300) for each in range(20)])),
    ),
    Remembered("babelgate.gateway.recent_counts._counts", "counts of queues", "process", _counts),
    Remembered("babelgate.gateway.routing._routes", "routes", "process", _route),
    Remembered("babelgate.gateway.runtimes._names", "names of idle queues", "process", _plain),
    Remembered("babelgate.gateway.ack_tokens._leases", "leases of ack tokens", "process", _lease),
    Remembered("babelgate.leases.table.ended", "ended leases", "broker", _plain),
    Remembered("babelgate.observe.log_throttle._written", "repeated warnings", "kind of warning", _line),
    Remembered(
        "babelgate.server.cycle._lines", "fields of answers", "process", lambda n: ((b"server", _bytes(n)),), 1_000
    ),
    Remembered(
        "babelgate.cluster.client._url",
        "URLs of peers",
        "process",
        lambda n: (Address(_text(n, 253), n), "/settle"),
        1_500,
    ),
    Remembered(
        "babelgate.clock.timestamp", "times of jobs and events", "process", lambda n: (1_800_000_000_000 + n,), 300
    ),
    Remembered(
        "babelgate.brokers.sqlite.file.widened",
        "SQL statements",
        "process",
        lambda n: ("add_messages", WIDEST - n),
        4_000,
    ),
    Remembered("babelgate.brokers.sqlite.writer._queue_ids", "rows of queues", "SQLite broker", _plain),
    Remembered("babelgate.brokers.redis.binding._empty", "empty queues", "Redis broker", _plain),
    Remembered("babelgate.brokers.redis.binding._foreign", "queues with foreign messages", "Redis broker", _plain),
    Remembered("babelgate.brokers.redis.used_queues._recorded", "recorded queues", "Redis broker", _plain),
    Remembered("babelgate.brokers.sqs.settle._latest", "latest receipts", "SQS broker", _receipt),
    Remembered("babelgate.brokers.sqs.client._urls", "URLs of queues", "SQS broker", _url),
    Remembered(
        "babelgate.brokers.pulsar.client._owners", "owners of topics", "Pulsar broker", lambda n: (_text(n, 300), None)
    ),
    Remembered("babelgate.brokers.pulsar.client._partitions", "partitions of topics", "Pulsar broker", _partitions),
    Remembered("babelgate.brokers.pulsar.browse._removed", "removed dead letters", "Pulsar broker", _plain),
    Remembered("babelgate.brokers.pulsar.browse.counted", "purged messages", "purge on Pulsar", _plain),
    Remembered(
        "babelgate.brokers.pulsar.client.acked_for_others",
        "entries acked for others",
        "Pulsar broker",
        _entry_of_others,
    ),
    Remembered(
        "babelgate.brokers.servicebus.binding._unconfirmed",
        "settles without answer",
        "Service Bus broker",
        lambda n: (n.to_bytes(16), None),
    ),
    Remembered(
        "babelgate.brokers.kafka.admin._topics",
        "topics",
        "Kafka broker",
        lambda n: (_text(n, 249), Topic(_text(n, 249), 1_000 + n, 10**9 + n, n.to_bytes(16), 10**12 + n)),
    ),
    Remembered("babelgate.brokers.kafka.emptiness._progress", "partitions of others", "Kafka broker", _progress),
    Remembered("babelgate.brokers.kafka.retry._watched", "used queues", "Kafka broker", _queue),
    Remembered(
        "babelgate.brokers.rabbitmq.delays.delayed_topology",
        "bindings of delays",
        "process",
        lambda n: (_text(n, 200),),
        3_000,
    ),
    Remembered(
        "babelgate.brokers.rabbitmq.frames._publish_method",
        "frames of publishes",
        "process",
        lambda n: (_wide(n, 255), _wide(n, 255), n),
        3_500,
    ),
    Remembered(
        "babelgate.brokers.rabbitmq.incoming._present",
        "sets of properties",
        "process",
        lambda n: (0xFFFC - 4 * n,),
        1_000,
    ),
    Remembered("babelgate.brokers.rabbitmq.incoming._table_of", "headers of messages", "process", _table, 6_000),
]


def bounds() -> Mapping[str, Bound]:
    """Every cache of the source, by its place: each ``lru_cache``, and each Cache."""
    return dict(chain.from_iterable(_of(name) for name in modules() if not any(belongs(name, p) for p in _PROGRAMS)))


def _of(name: str) -> Iterator[tuple[str, Bound]]:
    text = modules()[name].read_text("utf-8")
    # To parse every module takes seconds.
    for node in ast.walk(parsed(text)) if "Cache(" in text or "lru_cache(" in text else ():
        if isinstance(node, ast.FunctionDef):
            for made in node.decorator_list:
                if isinstance(made, ast.Call) and _is(made, "lru_cache"):
                    yield f"{name}.{node.name}", Bound(_size(name, made))
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            label = target.attr if isinstance(target, ast.Attribute) else ast.unparse(target)
            if _is(node.value, "Cache"):
                counting: Cache[Any, Any] = Cache(*(_value(name, each) for each in node.value.args))
                yield f"{name}.{label}", Bound(counting.max_entries, counting)
            elif isinstance(node.value.func, ast.Call) and _is(node.value.func, "lru_cache"):
                yield f"{name}.{label}", Bound(_size(name, node.value.func))


def _is(call: ast.Call, name: str) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == name


def _size(module: str, call: ast.Call) -> int:
    (given,) = [*call.args, *(each.value for each in call.keywords)]
    return _value(module, given)


def _value(module: str, node: ast.expr) -> int:
    """The value of a number, or of a constant of ``module``."""
    value = node.value if isinstance(node, ast.Constant) else getattr(import_module(module), ast.unparse(node))
    assert isinstance(value, int)
    return value
