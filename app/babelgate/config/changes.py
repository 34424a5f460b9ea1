"""What differs between two configurations, which of it needs a restart, and how a configuration is shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any

from pydantic import SecretStr

from babelgate.brokers.address import address_of
from babelgate.config.settings import Settings
from babelgate.gateway.idempotency import NONE, OWN
from babelgate.masking import MASK, mask_value

Path = tuple[str | int, ...]
"""Where a value is: names of keys, and indices of lists."""

_IS_APPLIED: Mapping[tuple[str, ...], bool] = {
    ("brokers",): True,
    ("queues",): True,
    ("default",): True,
    ("auth", "*"): False,
    ("auth", "tokens"): True,
    ("auth", "certificates"): True,
    ("auth", "issuers"): True,
    ("body_keys",): True,
    ("limits",): True,
    ("rate_limits",): True,
    ("rate_limits", "store"): False,
    ("schemas",): True,
    ("cors",): True,
    ("push",): True,
    ("log_level",): True,
}
"""What a reload applies, by the path of what changes; ``*``: any name. The longest path that fits decides, the exact
name before ``*``. A section without one needs a restart, also one that is added later."""

_SHOWN_OF_BROKERS = frozenset({"required", "timeout_seconds"})
_HASHES = frozenset({"sha256"})


def applied_sections() -> list[str]:
    """The sections of which a reload applies every change."""
    whole = (rule[0] for rule, applied in _IS_APPLIED.items() if applied and len(rule) == 1)
    return sorted(name for name in whole if all(_IS_APPLIED[rule] for rule in _IS_APPLIED if rule[0] == name))


def plain(settings: Settings) -> dict[str, Any]:
    """The configuration with its secrets and all defaults, spelled as the file spells it."""
    return settings.model_dump(mode="python", by_alias=True)


def is_applied(path: Path) -> bool:
    """Whether a running gateway can apply a change of the value at ``path``."""
    return _IS_APPLIED.get(_rule(path), False)


def needs_restart(before: Settings, after: Settings) -> list[str]:
    """The keys of changes that a running gateway cannot apply, dotted, as the configuration spells them."""
    paths = list(differing_paths(plain(before), plain(after)))
    keys = [dotted(path[: len(_rule(path)) or 1]) for path in paths if not is_applied(path)]
    # What counts there is not taken along.
    store = ("brokers", before.rate_limits.store)
    keys += [dotted(path) for path in paths if path[:2] == store and path[2:] != ("required",)]
    keys += [dotted(path) for path in paths if _loses_keys(before, after, path)]
    return list(dict.fromkeys(keys))


def _loses_keys(before: Settings, after: Settings, path: Path) -> bool:
    """Whether the idempotency keys of all queues would be at another server, by a change at ``path``: a repeated
    request would be published again."""
    name = before.idempotency.store
    if name in (OWN, NONE) or path[:2] != ("brokers", name) or path[2:] in (("required",), ("timeout_seconds",)):
        return False
    both = (before.brokers.get(name), after.brokers.get(name))
    addresses = {each and address_of(name, each.url, each.options) for each in both}
    return len(addresses) > 1


def _rule(path: Path) -> tuple[str, ...]:
    """The path that decides about ``path``; empty: none does."""
    fitting = (
        rule
        for rule in _IS_APPLIED
        if len(rule) <= len(path) and all(name in ("*", part) for name, part in zip(rule, path, strict=False))
    )
    return max(fitting, key=lambda rule: (len(rule), -rule.count("*")), default=())


def dotted(path: Path) -> str:
    """``path`` as the configuration's keys are written."""
    return ".".join(map(str, path))


def differing_paths(before: object, after: object, path: Path = ()) -> Iterator[Path]:
    """Where two configurations differ: the deepest values. A list of another length differs as a whole."""
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in dict.fromkeys((*before, *after)):
            yield from differing_paths(before.get(name), after.get(name), (*path, str(name)))
    elif isinstance(before, list | tuple) and isinstance(after, list | tuple) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from differing_paths(old, new, (*path, index))
    else:
        yield path


def shown(settings: Settings) -> dict[str, Any]:
    """The whole configuration as JSON values, defaults included, with secrets masked. Options of brokers may be
    secrets, so their texts are."""
    tree: dict[str, Any] = _masked(plain(settings))
    for name, broker in tree["brokers"].items():
        masked = {"url": settings.brokers[name].masked_url}
        others = ((key, value) for key, value in broker.items() if key != "url")
        tree["brokers"][name] = masked | {
            key: value if key in _SHOWN_OF_BROKERS or not isinstance(value, str) else MASK for key, value in others
        }
    return tree


def _masked(value: object, name: str = "") -> Any:
    if isinstance(value, Mapping):
        return {str(key): _masked(each, str(key)) for key, each in value.items()}
    if isinstance(value, set | frozenset):
        # Their order differs from process to process.
        return sorted(_masked(each, name) for each in value)
    if isinstance(value, list | tuple):
        return [_masked(each, name) for each in value]
    if isinstance(value, SecretStr):
        return MASK
    if value is None or isinstance(value, bool | int | float):
        return value
    return MASK if name in _HASHES else mask_value(str(value))


def changed_keys(before: Settings, after: Settings) -> list[str]:
    """The keys of at most two levels that differ, such as ``queues.emails``, secrets included."""
    paths = differing_paths(plain(before), plain(after))
    return list(dict.fromkeys(dotted(tuple(takewhile(_is_name, path[:2]))) for path in paths))


def _is_name(part: str | int) -> bool:
    return isinstance(part, str)
