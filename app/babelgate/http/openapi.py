"""The OpenAPI document: hot operations, operations of FastAPI, and the parts that all operations share.

``python -m babelgate.http.openapi`` prints it as YAML.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import yaml
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from babelgate import __version__
from babelgate.cluster.scrape import Scraping
from babelgate.gateway.ack_tokens import TokenKey, TokenSealer
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.gauges import Gauges
from babelgate.gateway.routing import Router
from babelgate.http.envelopes import SCHEMAS
from babelgate.http.examples import ANSWERS, BODIES, problem_examples
from babelgate.http.health import READYZ
from babelgate.http.letter_examples import EXAMPLES
from babelgate.http.operations import COMPONENTS, OPERATIONS
from babelgate.http.problems import MEANINGS
from babelgate.http.rest import create_rest
from babelgate.http.statuses import meaning_for_caller
from babelgate.observe.metrics.recorder import Metrics

Json = dict[str, Any]

_DESCRIPTION = (
    "One HTTP service in front of every message broker: publish and consume BabelQueue envelopes. "
    "Each `…_at` is in Unix milliseconds UTC; each `…_seconds` may be decimal. Errors are RFC 9457 problems. "
    "Delivery is at least once."
)
_TAGS = [
    {"name": "publish", "description": "Publish messages. Requires the right `send`."},
    {"name": "consume", "description": "Receive and settle messages. Requires the right `listen`."},
    {
        "name": "dead letters",
        "description": "Messages that failed permanently. Reading requires `listen`, changing requires `manage`.",
    },
    {"name": "queues", "description": "Queues and brokers, for operators."},
    {"name": "operations", "description": "Probes and metrics."},
]
_PROBLEM: Json = {
    "description": "RFC 9457 problem details. `errors` lists the defects of the request; `trace_id` is the envelope's.",
    "type": "object",
    "required": ["type", "title", "status", "detail", "instance", "code", "retryable", "trace_id", "errors"],
    "properties": {
        "type": {
            "type": "string",
            "format": "uri",
            "description": "`urn:babelgate:problem:` and the code.",
            "examples": ["urn:babelgate:problem:lease_lost"],
        },
        "title": {
            "type": "string",
            "description": "The kind of problem in a few words; the same for each problem of a code.",
        },
        "status": {"type": "integer", "description": "The HTTP status."},
        "detail": {"type": "string", "description": "What went wrong this time, in sentences for people."},
        "instance": {"type": "string", "description": "The path of the request; empty when it could not be read."},
        "code": {"type": "string", "description": "Stable code, for programs.", "examples": ["lease_lost"]},
        "retryable": {"type": "boolean", "description": "Whether the same request may succeed later."},
        "trace_id": {"type": ["string", "null"], "description": "The `trace_id` of the message, when it is known."},
        "errors": {
            "type": "array",
            "description": "Each defect of the request; empty when the problem has no place in the request.",
            "items": {"$ref": "#/components/schemas/Defect"},
        },
        "actual": {
            "description": "With 413: the size that was sent.",
            "anyOf": [{"type": "integer"}, {"type": "string"}],
        },
        "limit": {"description": "With 413: the limit.", "type": "integer"},
        "maximum": {"description": "With 422: the maximum of the broker.", "type": "number"},
        "scanned": {
            "description": "With `dead_letter_not_reached`: the dead letters that were read.",
            "type": "integer",
        },
        "next_cursor": {
            "description": "With `dead_letter_not_reached`: the `cursor` with which the search goes on.",
            "type": "string",
        },
    },
}
_QUEUE: Json = {
    "name": "queue",
    "in": "path",
    "required": True,
    "description": "1 to 120 characters of `A-Z a-z 0-9 . _ -`. Dead-letter queues (`….dlq`) have no path.",
    "schema": {"type": "string", "pattern": r"^(?!\.{1,2}$)(?!.*\.dlq$)[A-Za-z0-9._-]{1,120}$"},
    "example": "emails",
}
# Not a reference to components/headers: the normalizer of openapi-generator (7.18 and 7.25) fails at such a header, and
# every nullable member then becomes a class of its own.
_REQUEST_ID: Json = {
    "X-Request-Id": {
        "description": "The id sent by the client when it has at most 128 visible ASCII characters, else a new one.",
        "required": True,
        "schema": {"type": "string"},
    }
}
_SECONDS = {"Retry-After": {"description": "Seconds to wait before a retry.", "schema": {"type": "integer"}}}
_STATUS_HEADERS: dict[int, Json] = {
    401: {
        "WWW-Authenticate": {
            "description": "How to authenticate: with a bearer token.",
            "required": True,
            "schema": {"type": "string", "const": 'Bearer realm="babelgate"'},
        }
    },
    409: _SECONDS,
    429: _SECONDS,
    503: _SECONDS,
}
_MEMBERS = ("operationId", "tags", "summary", "description", "parameters", "requestBody", "responses", "security")
_OF_PARAMETER = ("description", "default", "examples")
"""What is said of a parameter and not of its schema."""
_VIEW = "View"
_EVERYWHERE = (400, 408, 431, 500)
_GUARDED = (401, 403)
_WITH_BODY = (413, 415)
_EXCLUSIVE = {"redrive_dead_letters", "resume_redrive", "purge_queue", "purge_dead_letters"}
"""Operations that are refused while a redrive job of the queue runs, or soon after another purge."""
_WITH_BROKER = (404, 422, 429, 502, 503, 504)


def document(rest: FastAPI, prefix: str = "") -> Json:
    """The document of the service below ``prefix``; ``rest`` serves all endpoints but the hot ones."""
    made = get_openapi(title="babelgate", version=__version__, routes=rest.routes, description=_DESCRIPTION, tags=_TAGS)
    schemas = made["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    # 405 belongs to a path, not to one of its operations.
    problems = {name: each for name, each in sorted(problem_examples().items()) if each[0] != 405}
    # A copy, because examples are moved out of it.
    paths = deepcopy({**OPERATIONS, **made["paths"]})
    whole = {
        "openapi": made["openapi"],
        "info": made["info"]
        | {"contact": {"name": "The babelgate project"}, "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
        "servers": [{"url": prefix or "/"}],
        "security": [{"bearer": []}, {}],
        "tags": made["tags"],
        "paths": {path: _path(path, operations) for path, operations in paths.items()},
        "components": {
            "schemas": dict(sorted({**_named(schemas), **_named(COMPONENTS), **SCHEMAS, "Problem": _PROBLEM}.items())),
            "responses": dict(_problems(problems)),
            "examples": {name: {"summary": body["title"], "value": body} for name, (_, body) in problems.items()},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }
    _move_examples(whole)
    explicit: Json = _explicit(whole)
    return explicit


def _path(path: str, operations: dict[str, Json]) -> Json:
    item: Json = {method: _operation(path, method, operation) for method, operation in operations.items()}
    # Not a reference: Swagger UI shows a parameter of a path without its name then.
    return {"parameters": [_QUEUE], **item} if "{queue}" in path else item


def _operation(path: str, method: str, operation: Json) -> Json:
    """Add the parts that all operations of a kind share; order the answers by status."""
    # The document names the queue once for all operations of a path.
    parameters = [
        _parameter(each) for each in operation.get("parameters", ()) if (each["in"], each["name"]) != ("path", "queue")
    ]
    responses = {status: dict(answer) for status, answer in operation["responses"].items() if not _generated(answer)}
    examples = (ANSWERS | EXAMPLES).get(operation["operationId"], {})
    for status, answer in responses.items():
        if "$ref" not in answer:
            if answer["description"] == "Successful Response":
                answer["description"] = meaning_for_caller(operation["operationId"], method, int(status))
            answer["headers"] = answer.get("headers", {}) | _REQUEST_ID
            answer["content"] = {
                kind: {"example": examples[status], **content} if status in examples else content
                for kind, content in answer.get("content", {}).items()
            }
            if not answer["content"]:
                del answer["content"]
    probe = operation["operationId"].endswith("z")
    statuses = [*_EVERYWHERE, *(() if probe else _GUARDED)]
    statuses += _WITH_BODY if method == "post" else ()
    statuses += (409,) if operation["operationId"] in _EXCLUSIVE else ()
    statuses += _WITH_BROKER if "{queue}" in path else (503,) if probe else ()
    for status in statuses:
        responses.setdefault(str(status), {"$ref": f"#/components/responses/Problem{status}"})
    for status, answer in responses.items():
        if "$ref" in answer:
            # OpenAPI 3.1: the description beside a reference replaces that of the component.
            meaning = meaning_for_caller(operation["operationId"], method, int(status))
            responses[status] = {**answer, "description": meaning}
    made = operation | {"parameters": parameters, "responses": dict(sorted(responses.items()))}
    if probe and path != READYZ:
        made["security"] = []
    return {name: made[name] for name in _MEMBERS if name in made and (name != "parameters" or parameters)}


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


def _named(schemas: Json) -> Json:
    """Names without the suffix ``View``, which only distinguishes them from classes of the gateway; descriptions of one
    line."""
    named = {name.removesuffix(_VIEW): dict(schema) for name, schema in schemas.items()}
    for schema in named.values():
        if "description" in schema:
            schema["description"] = " ".join(schema["description"].split())
    return named


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
            made[name] = text.removesuffix(_VIEW)
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


def _generated(answer: Json) -> bool:
    """Whether ``answer`` is FastAPI's own 422, which this service never sends."""
    return str(answer.get("content", {}).get("application/json", {}).get("schema", {})).find("HTTPValidation") >= 0


def _problems(examples: dict[str, tuple[int, Json]]) -> Iterator[tuple[str, Json]]:
    for status in sorted({meaning.status for meaning in MEANINGS.values()} - {405}):
        titles = sorted({meaning.title for meaning in MEANINGS.values() if meaning.status == status})
        yield (
            f"Problem{status}",
            {
                "description": " · ".join(titles),
                "headers": _REQUEST_ID | _STATUS_HEADERS.get(status, {}),
                "content": {
                    "application/problem+json": {
                        "schema": {"$ref": "#/components/schemas/Problem"},
                        "examples": {
                            name: {"$ref": f"#/components/examples/{name}"}
                            for name, (of, _) in examples.items()
                            if of == status
                        },
                    }
                },
            },
        )


def _move_examples(whole: Json) -> None:
    """Move the examples of request bodies into their schemas: openapi-generator warns of each at a body of a class."""
    schemas = whole["components"]["schemas"]
    for item in whole["paths"].values():
        for method, operation in item.items():
            body = operation.get("requestBody", {}) if method != "parameters" else {}
            for content in body.get("content", {}).values():
                named = content.pop("examples", {}).values()
                examples = [each["value"] for each in named] or BODIES.get(operation["operationId"], [])
                examples = [content.pop("example")] if "example" in content else examples
                owner = (
                    schemas[content["schema"]["$ref"].rpartition("/")[2]]
                    if "$ref" in content["schema"]
                    else content["schema"]
                )
                if examples:
                    owner["examples"] = examples


class _Dumper(yaml.SafeDumper):
    """Writes shared parts each time, without YAML anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def main() -> None:
    """Print the document."""
    # The document depends on no configuration: a gateway without brokers has all the routes.
    gateway = Gateway({}, Router([]), TokenSealer([TokenKey("none", bytes(32))]))
    metrics = Metrics()
    made = document(create_rest(gateway, Scraping(metrics, Gauges(gateway, metrics))))
    yaml.dump(made, sys.stdout, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


if __name__ == "__main__":
    main()
