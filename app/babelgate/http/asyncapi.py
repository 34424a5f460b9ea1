"""The AsyncAPI document: the queues that a caller may use, and the jobs that have schemas.

It describes an application that uses the gateway with the rights of the caller: it sends where the caller may publish,
and receives where the caller may consume.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import msgspec
from fastapi import APIRouter, Request, Response

from babelgate import __version__
from babelgate.errors import ConfigError
from babelgate.gateway.authorization import ANYONE, Caller, Right
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.routing import Rule
from babelgate.http.dependencies import EXCHANGE, NO_PARAMETERS, CallerOf, GatewayOf
from babelgate.http.exchange import Exchange
from babelgate.http.job_schemas import tagged
from babelgate.http.openapi.reader import parts
from babelgate.schemas.draft07 import component_names, translated
from babelgate.schemas.job_schemas import JobSchemas

Json = dict[str, Any]

PATH = "/asyncapi.json"
MAX_MESSAGES = 20_000
"""Most references from channels to messages of jobs. Beyond them the channels have the message of any job only."""
_HTTP = "http"
_BINDING_VERSION = "0.3.0"
"""Of https://github.com/asyncapi/bindings/tree/master/http."""
_ENVELOPE_SCHEMAS = ("Envelope", "EnvelopeMeta")
_ANY_JOB = "AnyJob"
_GATEWAY = "gateway"
_SCHEMAS = "#/components/schemas"
_HOST = re.compile(r"[A-Za-z0-9.:\[\]_-]+")
_PROBE = "queue-probe"
"""A name that is legal on every broker. Where it stands in a native name, the address of the queue stands."""
_INFO = (
    "The queues of this gateway that the caller may use, and the jobs that have schemas. It describes an application "
    "with the rights of the caller: it sends where the caller may publish, and receives where the caller may consume."
)
_SENT = "Publish one message. A draft of it, with `job` and `data` only, is completed by the gateway."
_RECEIVED = (
    "Lease one message. With `Accept: application/vnd.babelqueue.envelope+json` the body of the answer is the message, "
    "and `Ack-Token` has the token that settles it; otherwise the message is the member `envelope`."
)


@cache
def routes() -> APIRouter:
    """The route of every application in this process."""
    router = APIRouter(dependencies=NO_PARAMETERS)

    @router.get(PATH, response_model=dict[str, object])
    async def get_asyncapi(gateway: GatewayOf, caller: CallerOf, request: Request) -> Response:
        caller.require_some()
        exchange: Exchange = request.scope[EXCHANGE]
        host = exchange.headers.get(b"host", b"").decode("latin-1")
        public = PublicAddress(
            host if _HOST.fullmatch(host) else "localhost",
            exchange.scope.get("scheme", _HTTP),
            exchange.scope["path"].removesuffix(PATH),
        )
        # Many queues and large schemas take longer than a request may hold up others.
        made = await asyncio.to_thread(lambda: msgspec.json.encode(document(gateway, caller, public)))
        return tagged(request, made)

    return router


@dataclass(frozen=True, slots=True)
class PublicAddress:
    """Where the caller has found the gateway. ``prefix``: of its paths."""

    host: str
    scheme: str
    prefix: str


def document(gateway: Gateway, caller: Caller, public: PublicAddress) -> Json:
    """The document for ``caller``. Needs no broker; for other threads than that of the event loop, too."""
    names, components = _components(gateway.schema_checks.schemas)
    brokers = _brokers(gateway, caller)
    servers = {_GATEWAY: _gateway(caller, public), **brokers}
    rules = list(_rules(gateway, caller))
    lists_jobs = len(names) * len(rules) <= MAX_MESSAGES
    channels: Json = {}
    operations: Json = {}
    for match, rule in rules:
        rights = caller.rights(match)
        messages = _messages(rule, names if lists_jobs else {})
        address, parameters = _address(match)
        common = {"messages": messages} | ({"parameters": parameters} if parameters else {})
        for right, action, verb, text in (
            (Right.SEND, "send", "", _SENT),
            (Right.LISTEN, "receive", ":receive", _RECEIVED),
        ):
            if right in rights:
                channel = match + verb
                path = f"/queues/{address}/messages{verb}"
                channels[channel] = {"address": path, "servers": [_to("servers", _GATEWAY)], **common}
                operations[f"{action}:{match}"] = _operation(action, channel, text)
        native = _native(rule, match, address) if Right.MANAGE in rights and rule.binding.name in brokers else None
        if native is not None:
            channels[f"{match}:native"] = {
                "address": native,
                "description": f"The queue on its broker, {rule.binding.name}, for programs that use it directly.",
                "servers": [_to("servers", rule.binding.name)],
                **common,
            }
            if "{" not in native:
                channels[f"{match}:native"].pop("parameters", None)
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "babelgate", "version": __version__, "description": _INFO},
        "defaultContentType": "application/json",
        "servers": servers,
        "channels": channels,
        "operations": operations,
        "components": components,
    }


def _to(*steps: str) -> Json:
    return {"$ref": "#/" + "/".join(steps)}


def _gateway(caller: Caller, public: PublicAddress) -> Json:
    made: Json = {"host": public.host, "protocol": public.scheme, "title": "The gateway"}
    if public.prefix:
        made["pathname"] = public.prefix
    return made if caller is ANYONE else made | {"security": [_to("components", "securitySchemes", "bearer")]}


def _brokers(gateway: Gateway, caller: Caller) -> Json:
    """The brokers on other machines that ``GET /brokers`` shows to the caller, without credentials."""
    made: Json = {}
    for name, url in gateway.overview.addresses(caller).items():
        split = urlsplit(url)
        host = split.netloc.rpartition("@")[2]
        # A vendor's connection string is masked as a whole.
        if name != _GATEWAY and host and "{" not in url:
            made[name] = {"host": host, "protocol": split.scheme, "title": f"The broker {name}"}
    return made


def _rules(gateway: Gateway, caller: Caller) -> Iterator[tuple[str, Rule]]:
    """The names and patterns on which the caller has a right, each with the rule that routes them: those of the
    configuration, then those of the rights."""
    router = gateway.router
    everywhere = [] if router.default is None else ["*"]
    granted = sorted({name for right in Right for name in caller.patterns(right)})
    for match in dict.fromkeys([*(rule.match for rule in router.rules), *everywhere, *granted]):
        rule = router.rule(match)
        if rule is not None and caller.rights(match):
            yield match, rule


def _address(match: str) -> tuple[str, Json]:
    """The address of the queues that ``match`` stands for, and its parameters."""
    first, *rest = match.split("*")
    if (first, rest) == ("", [""]):
        return "{queue}", {"queue": {"description": "The name of the queue.", "examples": ["emails"]}}
    address, parameters = first, {}
    for index, text in enumerate(rest):
        name = "part" if index == 0 else f"part_{index + 1}"
        address += f"{{{name}}}{text}"
        parameters[name] = {"description": f"What stands for `*` in `{match}`."}
    return address, parameters


def _native(rule: Rule, match: str, address: str) -> str | None:
    """The address at the broker; None if it has none for names of this kind."""
    name = match if "*" not in match else _PROBE
    try:
        native = rule.native(name).name
    except ConfigError:
        return None
    return native if name is match else native.replace(_PROBE, address)


def _messages(rule: Rule, names: Mapping[str, str]) -> Json:
    """What a channel carries: jobs with schemas, where the route looks at these, and any job, unless it refuses
    those without a schema."""
    mode = rule.policy.schema
    known = {} if mode == "off" else {name: _to("components", "messages", name) for name in names.values()}
    return known if mode == "enforce" and known else known | {_ANY_JOB: _to("components", "messages", _ANY_JOB)}


def _operation(action: str, channel: str, text: str) -> Json:
    binding = {"method": "POST", "bindingVersion": _BINDING_VERSION}
    return {"action": action, "channel": _to("channels", channel), "description": text, "bindings": {_HTTP: binding}}


_known: WeakKeyDictionary[JobSchemas, tuple[Mapping[str, str], Json]] = WeakKeyDictionary()
"""What :func:`_components` returned, as long as its schemas are those of a gateway."""


def _components(schemas: JobSchemas) -> tuple[Mapping[str, str], Json]:
    """The names of the jobs in the document, and its components, which are the same for all callers."""
    if (known := _known.get(schemas)) is None:
        known = _known[schemas] = _made(schemas)
    return known


def _made(schemas: JobSchemas) -> tuple[Mapping[str, str], Json]:
    files = {file.job: file for file in schemas}
    names = component_names(files, {*_ENVELOPE_SCHEMAS, _ANY_JOB})
    said = parts()
    payloads = translated(files, names, _SCHEMAS) | {name: said["schemas"][name] for name in _ENVELOPE_SCHEMAS}
    envelope = {"$ref": f"{_SCHEMAS}/Envelope"}
    messages: Json = {_ANY_JOB: {"title": "A message of any job", "payload": envelope}}
    for job, name in names.items():
        members = {"job": {"const": job}, "data": {"$ref": f"{_SCHEMAS}/{name}"}}
        payload = {"type": "object", "allOf": [envelope], "properties": members}
        messages[name] = {"name": job, "title": job, "payload": payload}
    bearer = said["securitySchemes"]["bearer"]
    return names, {"schemas": payloads, "messages": messages, "securitySchemes": {"bearer": bearer}}
