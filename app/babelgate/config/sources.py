"""Reads the YAML file and the environment into one tree of dicts, lists and scalars."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from babelgate.errors import ConfigError

PREFIX = "BABELGATE_"
NOT_SETTINGS = frozenset({"CONFIG", "URL", "TOKEN", "TOKEN_FILE"})
"""Variables of the command line, not of the settings: the path of the file, and the address of a client."""
_SERVICE_LINK = re.compile(r"(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?)")
_LINK_URL = re.compile(r"(tcp|udp|sctp)://")
_REFERENCE = re.compile(r"\$(?P<escape>\$)?\{(?P<kind>[a-z]*):?(?P<name>[^}]*)\}")

_YAML_PROBLEMS = {
    "mapping values are not allowed": "a colon stands where no key can be; put the text in quotes",
    "could not find expected ':'": "a colon is missing after a key",
    "expected <block end>": "the indentation does not fit the lines before",
    "expected ',' or": "a comma or the closing bracket is missing",
    "expected the node content": "a value is missing",
    "found character '\\t'": "a tab is used where only spaces are allowed",
    "found character": "a character here needs quotes",
    "found unexpected end of stream": "a quote is not closed",
    "found unknown escape": "an escape in double quotes is invalid",
    "a key must be text": "a key must be text",
    "could not determine a constructor": "a tag (!…) is not known here; put the text in quotes",
}
"""What the problems of the YAML parser, by their beginnings, mean in our words. Our words never quote the file."""


class _Loader(yaml.SafeLoader):
    """Loads YAML in which ``on``, ``no``, dates, ``1:30`` and all keys are text, and duplicate keys are errors."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise ConstructorError(None, None, "a key must be text", key.start_mark)
            if key.value in seen:
                line = key.start_mark.line + 1
                raise ConfigError(key=key.value, reason=f"duplicate key, repeated in line {line}")
            seen.add(key.value)
            if key.tag != "tag:yaml.org,2002:merge":
                key.tag = "tag:yaml.org,2002:str"
        return super().construct_mapping(node, deep)


# All others make values that JSON does not have.
_Loader.yaml_constructors = {
    tag: construct
    for tag, construct in yaml.SafeLoader.yaml_constructors.items()
    if tag is None or tag.rpartition(":")[2] in {"null", "bool", "int", "float", "str", "seq", "map"}
}
_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"null|~|", ["n", "~", ""]),
    ("bool", r"true|false", ["t", "f"]),
    ("int", r"-?(0|[1-9][0-9]*)", list("-0123456789")),
    ("float", r"-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?", list("-0123456789")),
    ("merge", r"<<", ["<"]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), _first)


def read_file(path: Path, environ: Mapping[str, str]) -> dict[str, Any]:
    """Read a YAML file, and replace ``${env:NAME}`` and ``${file:/path}`` in it; ``$${`` is a literal ``${``.

    Raises ConfigError. Its text quotes keys, lines and columns, but never values.
    """
    try:
        tree = yaml.load(path.read_text("utf-8"), _Loader)
    except ConfigError as error:
        raise ConfigError(key=error.key, reason=f"{error.reason} of {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(key=str(path), reason=f"cannot be read: {getattr(error, 'strerror', 'not UTF-8')}") from None
    except (yaml.YAMLError, ValueError, KeyError) as error:
        # A scalar that is not what its tag says, such as !!int one, is no YAMLError.
        raise ConfigError(key=str(path), reason=_describe(error)) from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(key=str(path), reason="the file must contain a mapping")
    tree = _interpolate(tree, "", environ)
    if isinstance(tree.get("brokers"), dict):
        tree["brokers"] = {k: {"url": v} if isinstance(v, str) else v for k, v in tree["brokers"].items()}
    return dict(tree)


def referred_files(text: str) -> list[str]:
    """The paths of all ``${file:/path}`` in the text of a YAML file, each once."""
    found = (each for each in _REFERENCE.finditer(text) if each["kind"] == "file" and not each["escape"])
    return list(dict.fromkeys(each["name"] for each in found))


def lines(path: Path) -> dict[str, int]:
    """The line of each dotted key of a YAML file, counted from 1; empty for a file that cannot be read."""
    try:
        root = yaml.compose(path.read_text("utf-8"), _Loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    found: dict[str, int] = {}
    waiting = [("", root)]
    # An alias may lead back to a node around it.
    seen: set[int] = set()
    while waiting:
        key, node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        members = []
        if isinstance(node, yaml.MappingNode):
            members = [(name.value, name, value) for name, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            members = [(index, value, value) for index, value in enumerate(node.value)]
        for name, at, value in members:
            dotted = f"{key}.{name}".removeprefix(".")
            found[dotted] = at.start_mark.line + 1
            waiting.append((dotted, value))
    return found


def overlay(tree: dict[str, Any], environ: Mapping[str, str]) -> dict[tuple[str, ...], str]:
    """Put the ``BABELGATE_A__B=value`` variables of ``environ`` into ``tree`` as ``a.b``; JSON values are decoded.

    ``BABELGATE_A__B_FILE`` names a file that contains the value. A URL for ``brokers.name`` becomes its ``url``.
    Returns the name of the variable that set each path. Raises ConfigError.
    """
    origins: dict[tuple[str, ...], str] = {}
    for variable, text in sorted(environ.items()):
        name = variable.removeprefix(PREFIX)
        if name == variable or name in NOT_SETTINGS or _is_service_link(name, text):
            continue
        value: Any = _decoded(text)
        if name.endswith("_FILE"):
            name = name.removesuffix("_FILE")
            text = _read_secret(text, variable)
            value = _decoded(text) if text.startswith(("{", "[")) else text
        path = tuple(name.lower().split("__"))
        if path[0] == "brokers" and len(path) == 2 and isinstance(value, str):
            path = (*path, "url")
        path = _put(tree, path, value, variable)
        if path in origins:
            raise ConfigError(key=variable, reason=f"{origins[path]} sets the same key")
        origins[path] = variable
    return origins


def _put(tree: dict[str, Any], path: tuple[str, ...], value: Any, variable: str) -> tuple[str, ...]:
    """Set ``path``, ignoring the case of existing keys; return the path with the existing spelling."""
    node: Any = tree
    real: list[str] = []
    for step in path:
        if not isinstance(node, dict):
            raise ConfigError(key=variable, reason=f"{'.'.join(real)} is not a mapping")
        key = next((known for known in node if known.lower() == step), step)
        real.append(key)
        if len(real) < len(path):
            if node.get(key) is None:
                node[key] = {}
            node = node[key]
        else:
            node[key] = value
    return tuple(real)


def _is_service_link(name: str, text: str) -> bool:
    # Kubernetes sets variables for each Service of the namespace in every pod. A Service called babelgate produces
    # BABELGATE_PORT=tcp://… and others, which are not settings.
    return bool(_SERVICE_LINK.fullmatch(name) or (name.endswith("PORT") and _LINK_URL.match(text)))


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _interpolate(value: Any, key: str, environ: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _interpolate(item, f"{key}.{name}".lstrip("."), environ) for name, item in value.items()}
    if isinstance(value, list):
        return [_interpolate(item, f"{key}.{index}", environ) for index, item in enumerate(value)]
    if isinstance(value, str):
        return _REFERENCE.sub(lambda reference: _resolve(reference, key, environ), value)
    return value


def _resolve(reference: re.Match[str], key: str, environ: Mapping[str, str]) -> str:
    kind, name = reference["kind"], reference["name"]
    if reference["escape"]:
        return reference[0][1:]
    if kind == "file":
        return _read_secret(name, key)
    if kind == "env":
        if name not in environ:
            raise ConfigError(
                key=key, reason=f"the environment variable {name} is not set; set it, or write the value here"
            )
        return environ[name]
    raise ConfigError(key=key, reason="a reference must be ${env:NAME} or ${file:/path}; write a literal ${ as $${")


def _read_secret(name: str, key: str) -> str:
    try:
        return Path(name).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "not UTF-8")
        reason = f"the file {name} cannot be read: {why}; create it, or correct its path or mode"
        raise ConfigError(key=key, reason=reason) from None


def _describe(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    problem = getattr(error, "problem", None) or ""
    why = next((f": {said}" for start, said in _YAML_PROBLEMS.items() if problem.startswith(start)), "")
    return f"not valid YAML{where}{why}"
