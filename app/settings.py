"""One frozen settings tree: what a configuration may say, its defaults and its bounds."""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import quote

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    SecretStr,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)

from app import sources
from app.admission import Bounds
from app.errors import ConfigError
from app.masking import mask_url
from app.rights import Right

MAX_LEASE_SECONDS = 43_200
"""12 hours: the longest lease of any supported broker (Amazon SQS's visibility time-out)."""
_TAGS = ("auth: none", "auth: tokens")
_HOST = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?|\[[0-9a-f:.]+\]")
_UNREAL = re.compile(r"[^*A-Za-z0-9._-]")

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Delay = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _commas(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _queue_pattern(value: str) -> str:
    if not value or _UNREAL.search(value) or len(value) > 120:
        raise ValueError("a queue name or pattern has 1 to 120 of the characters A-Z a-z 0-9 . _ - and *")
    if value.endswith(".dlq"):
        raise ValueError("a dead-letter queue follows its parent's route and has none of its own")
    return value


def _address(value: str) -> str:
    host, _, port = value.rpartition(":")
    if not _HOST.fullmatch(host.lower()) or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError("must be host:port; an IPv6 address stands in brackets")
    return value.lower()


def _host_name(value: str) -> str:
    if not _HOST.fullmatch(value.lower()):
        raise ValueError("a host is a name or address without scheme and port; an IPv6 address stands in brackets")
    return value.lower()


QueuePattern = Annotated[str, AfterValidator(_queue_pattern)]


class _Model(BaseModel):
    # The input of a failed check may be a secret: pydantic must not quote it.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, coerce_numbers_to_str=True)


class _Open(_Model):
    """A mapping whose other keys are the binding's own; a near miss of a key of ours is refused."""

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="after")
    def _no_near_miss(self) -> Self:
        for key in self.options:
            near = difflib.get_close_matches(key, type(self).model_fields, n=1, cutoff=0.85)
            if near:
                raise ValueError(f"unknown key {key}; did you mean {near[0]}?")
        return self

    @property
    def options(self) -> Mapping[str, Any]:
        """The binding's own keys, as configured."""
        return self.model_extra or {}


class BrokerSettings(_Open):
    """One broker. In YAML either this mapping or just its URL; other keys are options of its binding."""

    url: str = Field(repr=False, min_length=1, description="Where the broker is; the scheme chooses the binding.")
    required: bool = Field(default=False, description="Whether /readyz is 503 while this broker is down.")

    @property
    def masked_url(self) -> str:
        """The URL without its secrets."""
        return mask_url(self.url)

    def __repr_args__(self) -> Any:
        # Options may be secrets: only their names are shown.
        return [("url", self.masked_url), ("required", self.required), ("options", sorted(self.options))]


class QueueSettings(_Open):
    """The route of a queue name or pattern; other keys are per-queue options of the broker's binding."""

    broker: str = Field(description="The name of a configured broker.")
    native_name: str = Field("{queue}", min_length=1, description="The broker's name; {queue}: the logical one.")
    lease_seconds: Seconds = Field(
        default=60, le=MAX_LEASE_SECONDS, description="The lease when a receive asks for none."
    )
    max_attempts: int = Field(default=10, ge=1, le=1_000_000, description="The n-th failed delivery dead-letters.")
    backoff_seconds: tuple[Delay, ...] = Field(
        default=(), description="Delay after the 1st, 2nd, … failed attempt; the last repeats; none: at once."
    )
    ttl_seconds: Seconds | None = Field(
        default=None,
        description="Age, since `created_at`, at which an undelivered message dead-letters; a redriven one too.",
    )
    dead_letter_retention_seconds: Seconds | None = Field(default=None, description="How long dead letters are kept.")


class LimitSettings(_Model):
    """Bounds on what a client may send, and on what one process takes on at a time."""

    max_message_bytes: int = Field(default=1_048_576, ge=1_024, le=536_870_912, description="One envelope.")
    max_depth: int = Field(default=128, ge=8, le=500, description="Nesting of an envelope's JSON.")
    max_request_bytes: int = Field(default=16_777_216, ge=1_024, le=1_073_741_824, description="A JSON request.")
    max_stream_bytes: int = Field(default=1_073_741_824, ge=1_024, description="An NDJSON upload.")
    max_publishes_in_flight: int = Field(
        default=Bounds.max_publishes_in_flight,
        ge=1,
        description="Publishes that one process serves at a time, 429 beyond; this and all `…_in_flight`: at most half "
        "for one of several brokers.",
    )
    max_publish_bytes_in_flight: int = Field(
        default=Bounds.max_publish_bytes_in_flight, ge=1_024, description="The bodies of these."
    )
    max_other_bytes_in_flight: int = Field(
        default=Bounds.max_other_bytes_in_flight, ge=1_024, description="The bodies of all other calls."
    )
    max_receives_in_flight: int = Field(
        default=Bounds.max_receives_in_flight, ge=1, description="Receives, those that wait included."
    )
    max_unread_bytes_in_flight: int = Field(
        default=Bounds.max_unread_bytes_in_flight, ge=1_024, description="Answers that consumers have yet to read."
    )
    max_held_leases: int = Field(
        default=Bounds.max_held_leases,
        ge=1,
        description="Leases kept by the gateway, on brokers where it does; at most half for one of several brokers.",
    )
    max_held_bytes: int = Field(default=Bounds.max_held_bytes, ge=1_024, description="The messages of these.")


class TokenSettings(_Model):
    """A bearer token, stored as the SHA-256 of its text, and its rights per queue pattern."""

    name: str = Field(min_length=1, max_length=120, description="Who holds it, for logs.")
    sha256: str = Field(pattern="^[0-9a-fA-F]{64}$", repr=False, description="SHA-256 of the token in hexadecimal.")
    rights: dict[QueuePattern, tuple[Right, ...]] = Field(description="Queue pattern: send, listen, manage.")


class AuthSettings(_Model):
    """Who may call."""

    tokens: tuple[TokenSettings, ...] = Field(min_length=1)

    @field_validator("tokens")
    @classmethod
    def _distinct(cls, tokens: tuple[TokenSettings, ...]) -> tuple[TokenSettings, ...]:
        if len({token.name for token in tokens}) < len(tokens):
            raise ValueError("two tokens have the same name")
        if len({token.sha256.lower() for token in tokens}) < len(tokens):
            raise ValueError("two entries are for one token")
        return tokens


class TokenKeySettings(_Model):
    """A key that signs ack tokens."""

    id: str = Field(pattern="^[A-Za-z0-9._-]{1,32}$", description="Names the key inside tokens.")
    secret: SecretStr = Field(min_length=32, description="At least 32 characters; used as UTF-8 bytes.")


class PeerSettings(_Model):
    """How the gateways that share a broker reach each other, to settle what another handed out."""

    directory: Path | None = Field(
        default=None, description="Where those on this host meet, on a disk of its own; none: `peers` in `state_dir`."
    )
    listen: Annotated[str, AfterValidator(_address)] | None = Field(
        default=None, description="`host:port` for those on other hosts; all need the same `token_keys`."
    )
    addresses: Annotated[tuple[Annotated[str, AfterValidator(_address)], ...], BeforeValidator(_commas)] = Field(
        default=(), description="`host:port` where others listen."
    )
    dns: Annotated[str, AfterValidator(_address)] | None = Field(
        default=None, description="`name:port`; others listen at all its addresses, as of a headless service."
    )


class Settings(_Model):
    """The whole configuration of one gateway."""

    brokers: dict[Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,64}$")], BrokerSettings]
    queues: dict[QueuePattern, QueueSettings] = Field(
        default_factory=dict, description="Exact names first, then patterns; the first match wins."
    )
    default: QueueSettings | None = Field(
        default=None, description="The route of every other queue; without it they are 404."
    )
    limits: LimitSettings = LimitSettings()
    state_dir: Path = Field(default=Path("."), description="Holds the token key and the default SQLite file.")
    token_keys: tuple[TokenKeySettings, ...] = Field(default=(), description="The first signs, all verify.")
    peers: PeerSettings = PeerSettings()
    auth: (
        Annotated[
            Annotated[Literal["none"], Tag(_TAGS[0])] | Annotated[AuthSettings, Tag(_TAGS[1])],
            Discriminator(lambda value: _TAGS[isinstance(value, Mapping | AuthSettings)]),
        ]
        | None
    ) = Field(default=None, description="`none`: anyone may call. Left out: anyone on this machine.")
    hosts: Annotated[tuple[Annotated[str, AfterValidator(_host_name)], ...], BeforeValidator(_commas)] = Field(
        default=(),
        description="Names it is reached by, besides `host` and loopback; without credentials all others are 403.",
    )
    host: str = Field(default="127.0.0.1", min_length=1, description="The address to listen on.")
    port: int = Field(default=8080, ge=0, le=65_535, description="The port to listen on; 0 takes a free one.")
    workers: int = Field(default=1, ge=1, le=256, description="Processes that share the port.")
    prefix: str = Field("", pattern="^(/[A-Za-z0-9._~-]+)*$", description="The path a proxy puts in front.")
    tls_cert: Path | None = Field(default=None, description="Certificate chain, PEM.")
    tls_key: Path | None = Field(default=None, description="Its private key, PEM.")
    keep_alive_seconds: int = Field(default=75, ge=1, le=3_600, description="How long a silent connection stays open.")
    drain_seconds: Delay = Field(0, le=3_600, description="How long to serve on, not ready, after a stop signal.")
    shutdown_seconds: Seconds = Field(20, le=3_600, description="How long requests in flight may then take.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="What to log.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        routes = {f"queues.{name}": queue for name, queue in self.queues.items()}
        if self.default is not None:
            routes["default"] = self.default
        for key, route in routes.items():
            if route.broker not in self.brokers:
                names = ", ".join(self.brokers)
                raise ConfigError(
                    key=f"{key}.broker", reason=f"no broker {route.broker!r} is configured; there are {names}"
                )
        if len({key.id for key in self.token_keys}) < len(self.token_keys):
            raise ConfigError(key="token_keys", reason="two keys have the same id")
        self._check_peers()
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError(key="tls_cert", reason="tls_cert and tls_key go together")
        if self.auth is None and not self.is_loopback:
            raise ConfigError(
                key="host",
                reason=f"{self.host} can be reached from other machines, and no credentials are configured: "
                "set auth.tokens, or auth: none to let anyone in",
            )
        return self

    def _check_peers(self) -> None:
        peers = self.peers
        for key, given in (("listen", peers.listen), ("addresses", peers.addresses), ("dns", peers.dns)):
            if given and not self.token_keys:
                raise ConfigError(key="token_keys", reason=f"peers.{key} needs keys that all the peers share")
            if given and peers.listen is None:
                raise ConfigError(key="peers.listen", reason=f"with peers.{key} the peers need a way back")
        if peers.listen is not None and self.workers > 1:
            reason = "workers cannot share it, because each is a peer of its own: run replicas of one worker instead"
            raise ConfigError(key="peers.listen", reason=reason)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect to ``host``."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


_PLACES: Mapping[tuple[str, ...], type[BaseModel]] = {
    (): Settings,
    ("limits",): LimitSettings,
    ("auth",): AuthSettings,
    ("auth", "tokens"): TokenSettings,
    ("token_keys",): TokenKeySettings,
    ("peers",): PeerSettings,
}


def load(path: Path | None, environ: Mapping[str, str], overrides: Mapping[str, Any] | None = None) -> Settings:
    """The settings of the YAML file ``path`` (none: the defaults), overlaid with ``BABELGATE_…`` variables of
    ``environ``, then with ``overrides`` (top-level keys, the command line's).

    Raises ConfigError naming the first bad key; its ``problems`` are all of them as (key, reason).
    """
    tree = sources.read_file(path, environ) if path else {}
    origins = sources.overlay(tree, environ)
    tree |= overrides or {}
    _complete(tree)
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        problems = [_problem(dict(item), origins) for item in error.errors(include_url=False, include_input=False)]
    key, reason = problems[0]
    raise ConfigError(key=key, reason=reason, problems=problems)


def _complete(tree: dict[str, Any]) -> None:
    """Fill in what a minimal configuration leaves out: one broker, and the route to the only broker."""
    if not tree.get("brokers"):
        file = Path(str(tree.get("state_dir", "."))) / "babelgate.db"
        tree["brokers"] = {"local": {"url": f"sqlite:///{quote(str(file))}"}}
    brokers = tree["brokers"]
    if "default" in tree or tree.get("queues") or not isinstance(brokers, dict):
        return
    if len(brokers) > 1:
        raise ConfigError(key="default", reason="with several brokers and no queues, default.broker must name one")
    tree["default"] = {"broker": next(iter(brokers))}


def _problem(error: dict[str, Any], origins: Mapping[tuple[str, ...], str]) -> tuple[str, str]:
    """A pydantic error as the dotted key and a sentence; neither holds a configured value."""
    place = tuple(part for part in error["loc"] if part not in _TAGS and part != "[key]")
    cause = error.get("ctx", {}).get("error")
    reason = str(cause or error["msg"])
    if place == ("auth",):
        reason = "must be the word none, or a mapping with tokens"
    if error["type"] == "extra_forbidden":
        names = tuple(part for part in place if isinstance(part, str))
        model = _PLACES.get(names[:-1])
        near = difflib.get_close_matches(names[-1], model.model_fields if model else (), n=1)
        reason = "unknown key" + (f"; did you mean {near[0]}?" if near else "")
    origin = next((name for path, name in origins.items() if place[: len(path)] == path), None)
    key = ".".join(str(part) for part in place)
    return key, f"{reason} (set by {origin})" if origin else reason
