"""The sections of the configuration that describe pushes."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, IPvAnyNetwork, SecretStr, ValidationInfo, field_validator

from babelgate.config.section import Section
from babelgate.push import targets
from babelgate.push.addresses import AddressGuard
from babelgate.push.bodies import BATCH_TYPES, BodyFormat
from babelgate.push.signing import SAMPLE, SECRET_PATTERN, secret_of


def _webhook_secret(value: SecretStr) -> SecretStr:
    secret_of(value.get_secret_value())
    return value


WebhookSecret = Annotated[
    SecretStr,
    AfterValidator(_webhook_secret),
    Field(json_schema_extra={"pattern": SECRET_PATTERN, "examples": [SAMPLE]}),
]


class PushTargetSettings(Section):
    """Where the messages of a queue are pushed to; see docs/push.md."""

    url: Annotated[str, AfterValidator(targets.check_url)] = Field(
        repr=False,
        min_length=1,
        max_length=targets.MAX_URL,
        json_schema_extra={"pattern": targets.URL_PATTERN},
        examples=["https://shop.example/hooks/orders"],
        description="The URL of the webhook that each message is posted to: `https://…`.",
    )
    secrets: tuple[WebhookSecret, ...] = Field(
        strict=False,
        min_length=1,
        max_length=8,
        description="Secrets of [Standard Webhooks](https://www.standardwebhooks.com), `whsec_…`. Each signs every "
        "post, so that a receiver can change from one to the next.",
    )
    body: BodyFormat = Field(
        default="envelope",
        description="What is posted: the `envelope`, its `data`, a structured event (`cloudevents`), or a binary one "
        "(`cloudevents_binary`).",
    )
    max_messages: int | None = Field(
        default=None,
        ge=1,
        le=targets.MAX_MESSAGES,
        description="Most messages in one post, whose body is then a list. None: one message, without a list. Not in "
        "the binary mode.",
    )
    concurrency: int = Field(
        default=targets.CONCURRENCY,
        ge=1,
        le=targets.MAX_CONCURRENCY,
        description="Most posts at a time, of each process. 1 keeps the order of the queue.",
    )
    per_second: float | None = Field(
        default=None,
        ge=0.001,
        le=100_000,
        allow_inf_nan=False,
        description="Most posts in a second, of each process. None: no bound.",
    )
    timeout_seconds: float = Field(
        default=targets.TIMEOUT_SECONDS,
        ge=0.1,
        allow_inf_nan=False,
        le=targets.MAX_TIMEOUT_SECONDS,
        description="Seconds for a post, from connecting to the head of the answer: at most 3,600. The lease is "
        "extended meanwhile.",
    )
    reject_statuses: tuple[Annotated[int, Field(ge=300, le=599)], ...] = Field(
        strict=False,
        default=targets.REJECT_STATUSES,
        max_length=100,
        description="Statuses of answers with which a message is dead-lettered at once.",
    )
    headers: dict[str, SecretStr] = Field(
        default_factory=dict, max_length=32, description="More headers of each post, such as `authorization`."
    )

    @field_validator("max_messages")
    @classmethod
    def _has_lists(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("body", "envelope") not in BATCH_TYPES:
            raise ValueError("must be left out with body: cloudevents_binary, whose posts have one event each")
        return value

    @field_validator("headers")
    @classmethod
    def _legal_headers(cls, headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, value in headers.items():
            targets.check_header(name, value.get_secret_value())
        if len({name.lower() for name in headers}) < len(headers):
            raise ValueError("two headers have the same name")
        return headers

    @property
    def target(self) -> targets.PushTarget:
        """The target itself."""
        return targets.PushTarget(
            url=self.url,
            secrets=tuple(secret_of(each.get_secret_value()) for each in self.secrets),
            body=self.body,
            concurrency=self.concurrency,
            per_second=self.per_second,
            timeout_seconds=self.timeout_seconds,
            reject_statuses=self.reject_statuses,
            max_messages=self.max_messages,
            headers=tuple((name.lower(), value.get_secret_value()) for name, value in self.headers.items()),
        )


class PushSettings(Section):
    """What pushes may connect to; see docs/push.md."""

    allow_http: bool = Field(default=False, description="Whether URLs of pushes may begin with `http://`.")
    allow_private: bool = Field(
        default=False, description="Whether pushes may connect to private and loopback addresses."
    )
    networks: tuple[IPvAnyNetwork, ...] = Field(
        default=(),
        description="Networks that pushes may connect to although they are not public, such as `10.1.0.0/16`.",
    )

    @property
    def guard(self) -> AddressGuard:
        """The guard of all pushes."""
        return AddressGuard(self.allow_http, self.allow_private, self.networks)
