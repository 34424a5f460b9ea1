"""Puts the document together: the parts, what FastAPI declares of its operations, and the classes of bodies."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from importlib.resources.abc import Traversable
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from babelgate import __version__
from babelgate.gateway.model import Receipt
from babelgate.http import publish_parameters, schemas
from babelgate.http.openapi.problems import problem_examples
from babelgate.http.openapi.reader import FOLDER, PLACE, parts
from babelgate.http.problems import MEANINGS

Json = dict[str, Any]

_REF = "#/components/schemas/{name}"
_CLASSES = (
    Receipt,
    schemas.BatchResult,
    schemas.ReceiveRequest,
    schemas.ReceivedView,
    schemas.AckRequest,
    schemas.NackRequest,
    schemas.RejectRequest,
    schemas.ExtendRequest,
    schemas.SettleRequest,
    schemas.SettleOutcome,
    schemas.StreamRequest,
    schemas.RedriveDeadLetterRequest,
)
"""Classes of the bodies that FastAPI does not know."""
_MEMBERS = ("operationId", "tags", "summary", "description", "parameters", "requestBody", "responses", "security")
_MEMBERS_OF_PARTS = {*_MEMBERS, "kind", "query"}
"""``kind``: a name in ``statuses.yaml``; ``query``: the class with the parameters, of :mod:`babelgate.http.schemas` or
:mod:`babelgate.http.publish_parameters`."""
_OF_PARAMETER = ("description", "default", "examples")
"""Members of a schema that the document gives of the parameter itself."""
_VIEW = "View"
_EVERYWHERE = (400, 408, 431, 500)
_GUARDED = (401, 403)
_WITH_BODY = (413, 415)
_WITH_BROKER = (404, 422, 429, 502, 503, 504)


def document(rest: FastAPI, hot: Collection[str], prefix: str = "", folder: Traversable = FOLDER) -> Json:
    """The document of the service below ``prefix``; ``rest`` serves all endpoints but those with the paths ``hot``.
    ``folder``: that of the parts.

    Raises ValueError for a part that is incomplete. Takes some 150 ms.
    """
    said = parts(folder)
    info = said["info"]
    made = get_openapi(title=info["title"], description=info["description"], version=__version__, routes=rest.routes)
    generated = made["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        generated.pop(name, None)
    _, classes = msgspec.json.schema_components(_CLASSES, ref_template=_REF)
    # 405 belongs to a path, not to one of its operations.
    problems = {name: each for name, each in sorted(problem_examples(said["problems"]).items()) if each[0] != 405}
    served = {*hot, *made["paths"]}
    if silent := served - said["paths"].keys():
        raise ValueError(f"{PLACE}: describe {min(silent)}.")
    whole = {
        "openapi": made["openapi"],
        "info": made["info"] | info,
        "servers": [{"url": prefix or "/"}],
        "security": said["security"],
        "tags": said["tags"],
        "paths": {
            path: _path(path, words, made["paths"].get(path, {}), said)
            for path, words in said["paths"].items()
            if path in served
        },
        "components": {
            "schemas": dict(sorted(_joined(_named(generated | classes), said["schemas"]).items())),
            "responses": dict(_problems(problems, said["headers"])),
            "examples": {name: {"summary": body["title"], "value": body} for name, (_, body) in problems.items()},
            "securitySchemes": said["securitySchemes"],
        },
    }
    _move_examples(whole)
    explicit: Json = _explicit(whole)
    return explicit


def _joined(first: Json, second: Json) -> Json:
    """The members of both, at all levels. What both have is taken from ``first``."""
    made = {**first}
    for name, value in second.items():
        both = isinstance(made.get(name), dict) and isinstance(value, dict)
        made[name] = _joined(made[name], value) if both else made.get(name, value)
    return made


def _path(path: str, words: Json, generated: Json, said: Json) -> Json:
    """The operations of a path, as ``words`` describe them and FastAPI has ``generated`` them."""
    if silent := generated.keys() - words.keys():
        raise ValueError(f"{PLACE}: describe {min(silent)} of {path}.")
    item: Json = {
        method: _operation(path, method, operation, generated.get(method, {"responses": {}}), said)
        for method, operation in words.items()
    }
    # Not a reference: Swagger UI shows a parameter of a path without its name then.
    return {"parameters": [said["queue"]], **item} if "{queue}" in path else item


def _operation(path: str, method: str, words: Json, generated: Json, said: Json) -> Json:
    if unknown := words.keys() - _MEMBERS_OF_PARTS:
        raise ValueError(f"{PLACE}: {method} {path} has {min(unknown)}, which is no member of an operation.")
    # FastAPI's own 422, which this service never sends.
    generated["responses"].pop("422", None)
    made = _joined(words, generated)
    given = [*generated.get("parameters", ()), *_query_of(words), *words.get("parameters", ())]
    # The document names the queue once for all operations of a path.
    made["parameters"] = [_parameter(each) for each in given if (each["in"], each["name"]) != ("path", "queue")]
    made["responses"] = _responses(path, method, made, said)
    return {name: made[name] for name in _MEMBERS if name in made and (name != "parameters" or made[name])}


def _query_of(words: Json) -> list[Json]:
    """The fields of the class ``query`` as query parameters."""
    if "query" not in words:
        return []
    name = words["query"]
    found = next((getattr(place, name) for place in (schemas, publish_parameters) if hasattr(place, name)), None)
    if found is None:
        raise ValueError(f"{PLACE}: {words['operationId']} has the query {name}, which is no class of parameters.")
    _, components = msgspec.json.schema_components([found], ref_template=_REF)
    fields = components[name]["properties"].items()
    return [{"name": name, "in": "query", "required": False, "schema": schema} for name, schema in fields]


def _responses(path: str, method: str, operation: Json, said: Json) -> Json:
    """All answers of an operation, by status: its own, those of its kind, and those of each operation."""
    statuses = said["statuses"]
    if operation["kind"] not in statuses:
        raise ValueError(
            f"{PLACE}: {operation['operationId']} has the kind {operation['kind']}, which has no statuses."
        )
    kind, every = statuses[operation["kind"]], statuses["every"]
    usual = [
        *_EVERYWHERE,
        *(() if operation["kind"] == "probe" else _GUARDED),
        *(_WITH_BODY if method == "post" else ()),
    ]
    usual += _WITH_BROKER if "{queue}" in path else ()
    made: Json = {}
    for status in sorted({*map(str, usual), *operation["responses"], *kind} - {"nothing"}):
        answer = operation["responses"].get(status) or {}
        if isinstance(answer, str):
            answer = {"description": answer}
        if status < "400":
            if "example" in answer and "content" not in answer:
                raise ValueError(f"{PLACE}: {status} of {operation['operationId']} has an example and no content.")
            made[status] = _success(answer, said)
            continue
        text = answer.get("description") or kind.get(status) or every.get(status)
        if text is None:
            raise ValueError(f"{PLACE}: say what {status} of {operation['operationId']} means to its caller.")
        # OpenAPI 3.1: the description beside a reference replaces that of the component.
        meaning = " ".join(text.format(nothing=kind.get("nothing", "")).split())
        made[status] = {"$ref": f"#/components/responses/Problem{status}", "description": meaning}
    return made


def _success(answer: Json, said: Json) -> Json:
    """A success: with the header of every answer, and with its example in each of its media types."""
    made = answer | {"headers": answer.get("headers", {}) | said["headers"]["every"]}
    if "example" in made:
        example = made.pop("example")
        made["content"] = {kind: {"example": example, **content} for kind, content in made["content"].items()}
    return made


def _parameter(parameter: Json) -> Json:
    """Describe the parameter itself, with its default and its example, and not its schema. The page at ``/docs`` fills
    in an ``example``: a required parameter has one, any other none, so that the request works as it stands."""
    kept = {name: value for name, value in parameter["schema"].items() if name not in _OF_PARAMETER}
    text = parameter.get("description", parameter["schema"].get("description", ""))
    if (default := parameter["schema"].get("default")) is not None:
        text += f" Default: {json.dumps(default)}."
    made = parameter | {"description": text, "schema": kept}
    example = parameter.get("example", next(iter(parameter["schema"].get("examples", ())), None))
    if example is None:
        return made
    if parameter.get("required"):
        return made | {"example": example}
    made.pop("example", None)
    return made | {"description": f"{text} For example `{example}`."}


def _named(generated: Json) -> Json:
    """Names without the suffix ``View``, which only distinguishes them from classes of the gateway; descriptions of one
    line."""
    named = {_name(name): dict(schema) for name, schema in generated.items()}
    for schema in named.values():
        if "description" in schema:
            schema["description"] = " ".join(schema["description"].split())
    return named


def _name(text: str) -> str:
    """The name of a schema, or the reference to it, of the class that ``text`` ends with."""
    head, slash, last = text.rpartition("/")
    return head + slash + last.removesuffix(_VIEW)


def _explicit(node: Any) -> Any:
    """Return ``node`` with explicit types where client generators guess wrong, and with the names of :func:`_named`.

    - An integer is ``int64``, another number is ``double``. Go's generator uses 32 bits for a number without a format.
    - An object that is not closed is declared open. Generated Go and Java otherwise refuse unknown members.
    - A default becomes part of the description. Generated clients would send or require a ``default``.
    """
    if isinstance(node, list):
        return [_explicit(item) for item in node]
    if not isinstance(node, dict):
        return node
    made = {name: _explicit(value) for name, value in node.items() if name != "default"}
    for name in ("$ref", "title"):
        if isinstance(text := made.get(name), str):
            made[name] = _name(text)
    if isinstance(default := node.get("default"), int | float):
        made["description"] = f"{node.get('description', '')} Default: {json.dumps(default)}.".lstrip()
    # In the properties of a schema, `type` and `properties` are names.
    kind = made["type"] if isinstance(made.get("type"), str | list) else ()
    if "integer" in kind:
        made["format"] = "int64"
    elif "number" in kind:
        made["format"] = "double"
    if "object" in kind and "properties" in made:
        made.setdefault("additionalProperties", True)
    return made


def _problems(examples: dict[str, tuple[int, Json]], headers: Json) -> Iterator[tuple[str, Json]]:
    """The answer with a problem for each status."""
    for status in sorted({meaning.status for meaning in MEANINGS.values()} - {405}):
        titles = sorted({meaning.title for meaning in MEANINGS.values() if meaning.status == status})
        shown = {name: {"$ref": f"#/components/examples/{name}"} for name, (of, _) in examples.items() if of == status}
        content = {"schema": {"$ref": _REF.format(name="Problem")}, "examples": shown}
        yield (
            f"Problem{status}",
            {
                "description": " · ".join(titles),
                "headers": headers["every"] | headers.get(str(status), {}),
                "content": {"application/problem+json": content},
            },
        )


def _move_examples(whole: Json) -> None:
    """Move the examples of request bodies into their schemas: openapi-generator warns of each at a body of a class."""
    named = whole["components"]["schemas"]
    for item in whole["paths"].values():
        for operation in (each for method, each in item.items() if method != "parameters"):
            for content in operation.get("requestBody", {}).get("content", {}).values():
                examples = [each["value"] for each in content.pop("examples", {}).values()]
                examples += [content.pop("example")] if "example" in content else []
                schema = content["schema"]
                if examples:
                    (named[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema)["examples"] = examples
