"""The settings of one gateway, and their loading from YAML, environment and command line."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import quote

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)

from babelgate.config import sources
from babelgate.config.audit import AuditSettings
from babelgate.config.certificates import check_names
from babelgate.config.console import ConsoleSettings
from babelgate.config.issuers import RESERVED, check_issuers
from babelgate.config.pages import CorsSettings
from babelgate.config.privacy import BodyKeySettings
from babelgate.config.push import PushSettings
from babelgate.config.rate_limits import RateLimitSettings
from babelgate.config.reload import ReloadSettings
from babelgate.config.schemas import SchemaSettings
from babelgate.config.section import Delay, QueuePattern, Seconds, Section, commas
from babelgate.config.sections import (
    AuthSettings,
    BrokerSettings,
    IdempotencySettings,
    JournalSettings,
    LimitSettings,
    PeerSettings,
    QueueSettings,
    TokenKeySettings,
    host_name,
)
from babelgate.errors import ConfigError
from babelgate.push.targets import refusal
from babelgate.schematext import closest, explain, fault_of, names_of, valid_names

_TAGS = ("auth: none", "auth: tokens")


class Settings(Section):
    """The complete configuration of one gateway."""

    brokers: dict[Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,64}$")], BrokerSettings]
    queues: dict[QueuePattern, QueueSettings] = Field(
        default_factory=dict,
        description="Routes by queue name or pattern: exact names first, then patterns in order; the first match wins.",
    )
    default: QueueSettings | None = Field(
        default=None, description="The route of all other queues; without it they are 404."
    )
    limits: LimitSettings = LimitSettings()
    rate_limits: RateLimitSettings = RateLimitSettings()
    state_dir: Path = Field(
        default=Path("."),
        description="Directory of the token key, the records of redrive jobs and the default SQLite file.",
    )
    token_keys: tuple[TokenKeySettings, ...] = Field(
        default=(), description="Keys of ack tokens: the first signs, all verify. None: a key file in `state_dir`."
    )
    body_keys: tuple[BodyKeySettings, ...] = Field(
        default=(),
        description="Keys of bodies that routes with `encrypt` keep on a disk: the first encrypts, all decrypt.",
    )
    peers: PeerSettings = PeerSettings()
    idempotency: IdempotencySettings = IdempotencySettings()
    journal: JournalSettings = JournalSettings()
    audit: AuditSettings = AuditSettings()
    console: ConsoleSettings = ConsoleSettings()
    push: PushSettings = PushSettings()
    schemas: SchemaSettings = SchemaSettings()
    reload: ReloadSettings = ReloadSettings()
    cors: CorsSettings | None = Field(
        default=None, description="The web pages of other origins that may call the API. None: none."
    )
    auth: (
        Annotated[
            Annotated[Literal["none"], Tag(_TAGS[0])] | Annotated[AuthSettings, Tag(_TAGS[1])],
            Discriminator(lambda value: _TAGS[isinstance(value, Mapping | AuthSettings)]),
        ]
        | None
    ) = Field(default=None, description="`none`: anyone may call. Without it: anyone on this machine.")
    hosts: Annotated[tuple[Annotated[str, AfterValidator(host_name)], ...], BeforeValidator(commas)] = Field(
        default=(),
        description="Names of this service, besides `host` and loopback. Without credentials, other names are 403.",
    )
    host: str = Field(default="127.0.0.1", min_length=1, description="The address to listen on.")
    port: int = Field(default=8080, ge=0, le=65_535, description="The port to listen on; 0 takes a free one.")
    workers: int = Field(default=1, ge=1, le=256, description="Processes that share the port.")
    prefix: str = Field("", pattern="^(/[A-Za-z0-9._~-]+)*$", description="The path prefix that a proxy adds.")
    tls_cert: Path | None = Field(default=None, description="Certificate chain, PEM.")
    tls_key: Path | None = Field(default=None, description="Its private key, PEM.")
    tls_client_ca: Path | None = Field(
        default=None,
        description="Certificates, PEM, of the authorities that issue [client certificates](identities.md"
        "#client-certificates). None: clients are not asked for one.",
    )
    tls_client_auth: Literal["optional", "required"] = Field(
        default="optional", description="Whether a client must have such a certificate, also for probes."
    )
    tls_client_crl: Path | None = Field(
        default=None, description="Revocation lists, PEM, one of each authority. None: no certificate is revoked."
    )
    keep_alive_seconds: int = Field(
        default=75, ge=1, le=3_600, description="Time after which a silent connection is closed."
    )
    head_seconds: Seconds = Field(
        30, le=3_600, description="Maximum time for a client to send the head of a request, and for a TLS handshake."
    )
    body_seconds: Seconds = Field(
        30, le=86_400, description="Maximum time for a client to send a body, while the gateway reads it."
    )
    body_bytes_per_second: int = Field(
        1_024, ge=1, description="Number of body bytes that extend `body_seconds` by one second."
    )
    drain_seconds: Delay = Field(
        0, le=3_600, description="Time to continue serving, while not ready, after a stop signal."
    )
    shutdown_seconds: Seconds = Field(20, le=3_600, description="Time that requests in flight may then take.")
    open_readyz: bool = Field(
        default=False, description="Whether `/readyz` names brokers to callers without the right `manage` or `observe`."
    )
    metrics: bool = Field(default=True, description="Whether metrics are recorded, for `/metrics` and OTLP.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Lowest level that is logged.")
    log_format: Literal["auto", "json", "console"] = Field(
        "auto",
        description="`json`: JSON lines; `console`: readable lines; `auto`: `console` on a terminal, else `json`.",
    )
    access_log: bool = Field(default=False, description="Whether each request is logged.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        routes = self.routes
        for key, route in routes.items():
            if route.broker not in self.brokers:
                names = ", ".join(self.brokers)
                raise ConfigError(
                    key=f"{key}.broker",
                    reason=f"no broker {route.broker!r} is configured; the configured brokers are {names}",
                )
            if route.parking is not None and route.parking not in self.brokers:
                reason = (
                    f"no broker {route.parking!r} is configured; the configured brokers are {', '.join(self.brokers)}"
                )
                raise ConfigError(key=f"{key}.parking", reason=reason)
            if route.parking == route.broker:
                reason = "is the broker of the route, which cannot delay so long"
                raise ConfigError(key=f"{key}.parking", reason=reason)
            self._check_push(key, route)
            if route.encrypt and not self.body_keys:
                raise ConfigError(key=f"{key}.encrypt", reason="needs body_keys, the keys that encrypt")
            if route.schema_mode != "off" and not self.schemas.is_configured:
                reason = "needs schemas.directory or schemas.url, where the schemas of jobs are"
                raise ConfigError(key=f"{key}.schema", reason=reason)
        if isinstance(self.auth, AuthSettings):
            try:
                check_issuers(self.auth.issuers, self._senders)
                check_names(self._senders)
            except ValueError as error:
                raise ConfigError(key="auth", reason=str(error)) from None
        self._check_pages({"": self.cors, **{f"{key}.": route.cors for key, route in routes.items()}})
        if self.idempotency.store not in ("own", "none", *self.brokers):
            names = ", ".join(self.brokers)
            reason = f"no broker {self.idempotency.store!r} is configured; must be own, none, or one of {names}"
            raise ConfigError(key="idempotency.store", reason=reason)
        if len({key.id for key in self.token_keys}) < len(self.token_keys):
            raise ConfigError(key="token_keys", reason="two keys have the same id")
        if len({key.id for key in self.body_keys}) < len(self.body_keys):
            raise ConfigError(key="body_keys", reason="two keys have the same id")
        self._check_peers()
        self._check_tls()
        if self.auth is None and not self.is_loopback:
            raise ConfigError(
                key="host",
                reason=f"{self.host} can be reached from other machines, and no credentials are configured: "
                "set auth.tokens, auth.issuers or auth.certificates, or auth: none to allow anyone",
            )
        return self

    def _check_push(self, key: str, route: QueueSettings) -> None:
        if route.push is None:
            return
        if key == "default" or "*" in key:
            reason = "needs the exact name of a queue: a gateway does not know all the queues that a pattern matches"
            raise ConfigError(key=f"{key}.push", reason=reason)
        if (refused := refusal(route.push.url, self.push.guard)) is not None:
            raise ConfigError(key=f"{key}.push.url", reason=refused)

    def _check_pages(self, policies: Mapping[str, CorsSettings | None]) -> None:
        """``policies``: by the key of their section."""
        allowed: set[str] = set()
        for key, policy in policies.items():
            origins = () if policy is None else policy.origins
            if "*" in origins and not isinstance(self.auth, AuthSettings):
                reason = "without credentials, * would let every web page publish and receive: name the origins, or "
                raise ConfigError(key=f"{key}cors.origins", reason=f"{reason}configure auth.tokens")
            allowed.update(origins)
        tokens = self.auth.tokens if isinstance(self.auth, AuthSettings) else ()
        for index, token in enumerate(tokens):
            origins = () if token.page is None else token.page.origins
            missing = next((origin for origin in origins if not allowed & {origin, "*"}), None)
            if missing is not None:
                reason = f"no cors.origins has {missing}, so browsers would not let its pages use the token"
                raise ConfigError(key=f"auth.tokens.{index}.page.origins", reason=reason)

    def _check_tls(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError(key="tls_cert", reason="tls_cert and tls_key must be set together")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ConfigError(
                key="tls_client_ca", reason="needs tls_cert and tls_key: only TLS has client certificates"
            )
        if self.tls_client_ca is None:
            if self.tls_client_auth == "required":
                raise ConfigError(key="tls_client_auth", reason="needs tls_client_ca, which verifies the certificates")
            if self.tls_client_crl is not None:
                raise ConfigError(key="tls_client_crl", reason="needs tls_client_ca, whose certificates it revokes")
            if isinstance(self.auth, AuthSettings) and self.auth.certificates:
                raise ConfigError(key="auth.certificates", reason="needs tls_client_ca, which verifies them")

    def _check_peers(self) -> None:
        peers = self.peers
        for key, given in (("listen", peers.listen), ("addresses", peers.addresses), ("dns", peers.dns)):
            if given and not self.token_keys:
                raise ConfigError(key="token_keys", reason=f"peers.{key} needs keys that all peers share")
            if given and peers.listen is None:
                raise ConfigError(
                    key="peers.listen", reason=f"is required with peers.{key}, so that the peers can reach this gateway"
                )
        if peers.listen is not None and self.workers > 1:
            reason = "several workers cannot share one address: run replicas with one worker each"
            raise ConfigError(key="peers.listen", reason=reason)

    @property
    def routes(self) -> dict[str, QueueSettings]:
        """All routes, by their key in the configuration: ``queues.NAME``, or ``default``."""
        routes = {f"queues.{name}": queue for name, queue in self.queues.items()}
        if self.default is not None:
            routes["default"] = self.default
        return routes

    @property
    def _senders(self) -> list[str]:
        return [rule.sender for route in self.routes.values() for rule in route.accept if rule.sender is not None]

    @property
    def caller_names(self) -> frozenset[str]:
        """The names of callers that no token of a call may have: of the configuration, and of the gateway itself."""
        names = self.auth.names if isinstance(self.auth, AuthSettings) else ()
        return frozenset((*RESERVED, *self._senders, *names))

    @property
    def has_console(self) -> bool:
        """Whether the console is served."""
        if self.console.enabled is not None:
            return self.console.enabled
        return self.is_loopback or isinstance(self.auth, AuthSettings)

    def url(self, host: str, port: int) -> str:
        """The URL of the gateway at the name or IP address ``host``."""
        return f"http{'s' if self.tls_cert else ''}://{f'[{host}]' if ':' in host else host}:{port}{self.prefix}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect to ``host``."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def load(path: Path | None, environ: Mapping[str, str], overrides: Mapping[str, Any] | None = None) -> Settings:
    """Load the settings of the YAML file ``path`` (None: the defaults), overlaid with ``BABELGATE_…`` variables of
    ``environ``, then with ``overrides`` (top-level keys, the command line's).

    Raises ConfigError as :func:`validated`.
    """
    return validated(read_tree(path, environ, overrides))


def read_tree(
    path: Path | None, environ: Mapping[str, str], overrides: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What :func:`load` validates: mappings, lists, texts, numbers and booleans. Raises ConfigError."""
    tree = sources.read_file(path, environ) if path else {}
    sources.overlay(tree, environ)
    tree |= overrides or {}
    _complete(tree)
    return tree


def validated(tree: Mapping[str, Any]) -> Settings:
    """The settings of ``tree``. Raises ConfigError naming the first bad key; its ``problems`` are all of them as (key,
    reason)."""
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        problems = [_problem(dict(item)) for item in _causes(error.errors(include_url=False, include_input=False))]
    key, reason = problems[0]
    raise ConfigError(key=key, reason=reason, problems=problems)


def _complete(tree: dict[str, Any]) -> None:
    """Add the defaults of a minimal configuration: one broker, and the default route to the only broker."""
    if not tree.get("brokers"):
        file = Path(str(tree.get("state_dir", "."))) / "babelgate.db"
        tree["brokers"] = {"local": {"url": f"sqlite:///{quote(str(file))}"}}
    brokers = tree["brokers"]
    if "default" in tree or tree.get("queues") or not isinstance(brokers, dict):
        return
    if len(brokers) > 1:
        raise ConfigError(
            key="default", reason="default.broker must name one of the brokers, because there are several and no queues"
        )
    tree["default"] = {"broker": next(iter(brokers))}


@cache
def _schema() -> dict[str, Any]:
    return Settings.model_json_schema()


def _causes(errors: Sequence[Any]) -> list[Any]:
    """``errors`` without the lists that pydantic calls too short because it has left out their invalid items."""
    places = [item["loc"] for item in errors]

    def has_invalid_items(place: tuple[Any, ...]) -> bool:
        return any(other[: len(place)] == place and len(other) > len(place) for other in places)

    return [item for item in errors if item["type"] != "too_short" or not has_invalid_items(item["loc"])]


def _problem(error: dict[str, Any]) -> tuple[str, str]:
    """Convert a pydantic error to the dotted key and a sentence; neither contains a configured value."""
    place = tuple(part for part in error["loc"] if part not in _TAGS and part != "[key]")
    schema = _schema()
    context = error.get("ctx", {})
    if cause := context.get("error"):
        reason = str(cause)
    elif error["loc"][-1] == "[key]":
        reason = f"the name must match {context['pattern']}"
    else:
        reason = explain(schema, place, fault_of(error["type"]))
    if place == ("auth",) and not cause:
        reason = "must be the word none, or a mapping with tokens, issuers, certificates, or several of them"
    elif fault_of(error["type"]) == "unknown":
        near = closest(str(place[-1]), names_of(schema, place[:-1]))
        reason = f"unknown key; did you mean {near}?" if near else f"unknown key; {valid_names(schema, place[:-1])}"
    return ".".join(str(part) for part in place), reason
