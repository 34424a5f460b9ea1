"""Says which path was probably meant by one that no endpoint serves."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from babelgate.schematext import closest

_MAX_PATH = 200
"""Maximum characters of a path that is compared: a queue of ordinary length, and all words of the longest path."""
_MAX_WORDS = 8
"""Maximum words of a path that is compared: two more than the longest path has. It takes at most a millisecond."""
_MAX_SHOWN = 3
_SEPARATOR = re.compile("[/:]|%3A")
_QUEUE = "/queues/{queue}"
_ALSO_CALLED = {
    "livez": ("health", "healthz", "healthcheck", "live", "liveness", "alive", "ping", "status"),
    "readyz": ("health", "healthz", "healthcheck", "ready", "readiness"),
    "docs": ("swagger", "swagger-ui", "redoc", "api-docs", "help"),
    "messages": ("publish", "send", "enqueue", "produce", "push", "jobs"),
    "receive": ("consume", "dequeue", "poll", "pull", "pop", "fetch", "subscribe"),
    "stream": ("streaming", "sse", "websocket", "ws", "watch"),
    "dead-letters": ("dlq", "deadletters", "dead-letter-queue"),
    "metrics": ("prometheus",),
}
"""Names that other services have for a part of a path."""


def path_hint(path: str, templates: Sequence[str]) -> str:
    """Sentences about a ``path`` that is none of ``templates``: which were probably meant, which paths a queue has, and
    where all are described. The parameters of a template are in braces."""
    given = _words(path) if len(path) <= _MAX_PATH else []
    if len(given) > _MAX_WORDS:
        given = []
    by_words = {template: _words(template) for template in templates}
    vocabulary = sorted({word for words in by_words.values() for word in words if not _is_parameter(word)})
    read = [_readings(each, vocabulary) for each in given]
    if not {each.lower() for each in given}.isdisjoint(_ALSO_CALLED["messages"]):
        # Who publishes means the messages of a queue, not the search for one.
        by_words = {template: words for template, words in by_words.items() if words[0] != "messages"}
    sentences = []
    if meant := _meant(given, read, by_words):
        sentences.append(f"Did you mean {' or '.join(meant)}?")
    if read and "queues" in read[0]:
        below = [each.removeprefix(_QUEUE).removeprefix("/") for each in templates if each.startswith(_QUEUE)]
        sentences.append(f"The paths below {_QUEUE} are {', '.join(each for each in below if each)}.")
    return " ".join([*sentences, "All paths are described at /docs."])


def _words(path: str) -> list[str]:
    return [each for each in _SEPARATOR.split(path) if each]


def _is_parameter(word: str) -> bool:
    return word.startswith("{")


def _readings(word: str, vocabulary: Sequence[str]) -> list[str]:
    """The words of the templates that ``word`` may stand for."""
    lower = word.lower()
    also = [each for each, others in _ALSO_CALLED.items() if lower in others]
    found = closest(word, vocabulary)
    return also or ([found] if found else [])


def _meant(given: Sequence[str], read: Sequence[Sequence[str]], by_words: Mapping[str, Sequence[str]]) -> list[str]:
    """The templates with the fewest words besides those ``given``, filled in. The words before ``queues``, or else
    before the last word, may be superfluous, such as a version."""
    for start in range(len(given)):
        found: dict[str, tuple[int, int]] = {}
        for template, words in by_words.items():
            values, named = _filled(given[start:], read[start:], words)
            if named:
                shown = template
                for name, value in values.items():
                    shown = shown.replace(name, value)
                found[shown] = len(words), -named
        if found or "queues" in read[start]:
            least = min(found.values(), default=None)
            return [shown for shown, rank in found.items() if rank == least][:_MAX_SHOWN]
    return []


def _filled(given: Sequence[str], read: Sequence[Sequence[str]], words: Sequence[str]) -> tuple[dict[str, str], int]:
    """The values of the parameters among ``words``, and how many words are named, if all of ``given`` are among them in
    order; else none is. The last one given must name a word, unless no word is missing."""
    values: dict[str, str] = {}
    named = 0
    at = last = len(given) - 1
    for word in reversed(words):
        if at < 0:
            break
        if _is_parameter(word) and (at < last or len(given) == len(words)):
            values[word] = given[at]
        elif word in read[at]:
            named += 1
        else:
            continue
        at -= 1
    return (values, named) if at < 0 else ({}, 0)
