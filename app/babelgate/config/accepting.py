"""The sections about bodies of other senders: what a route accepts, and how a sender signs."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo, field_validator, model_validator

from babelgate.config.pages import HeaderName
from babelgate.config.section import Section
from babelgate.envelope.contract import is_text
from babelgate.jsontext import is_encodable
from babelgate.push.signing import PREFIX as WEBHOOK_PREFIX

_JSON = re.compile(r"application/json|.*\+json")
MIN_KEY_BYTES = 16
_PLACE = re.compile(r"\{[^{}]*\}|[{}]")


def _header(value: str) -> str:
    return value.lower()


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        return b""


LowerName = Annotated[HeaderName, AfterValidator(_header)]


class SignatureSettings(Section):
    """How a sender signs its bodies; see docs/webhooks.md."""

    header: LowerName = Field(description="The header with the signature.")
    secrets: tuple[Annotated[SecretStr, Field(min_length=16)], ...] = Field(
        min_length=1, max_length=8, description="Secrets of at least 16 characters; a signature by any of them counts."
    )
    secret_encoding: Literal["text", "base64"] = Field(
        default="text", description="`text`: a secret is used as it is; `base64`: decoded, without a prefix `whsec_`."
    )
    algorithm: Literal["sha256", "sha512", "sha1"] = Field(default="sha256", description="The hash of the HMAC.")
    encoding: Literal["hex", "base64"] = Field(default="hex", description="The form of the signature.")
    prefix: str = Field("", max_length=20, description="What stands before a signature, such as `sha256=`.")
    separator: Literal["", ",", " "] = Field(default="", description="What divides several parts of the header.")
    payload: str = Field(
        "{body}",
        max_length=200,
        description="What is signed: text with `{body}`, and `{timestamp}` and `{id}` if used.",
    )
    timestamp_header: LowerName | None = Field(
        default=None, description="The header with the time of the request in Unix seconds, which must be signed."
    )
    timestamp_prefix: str = Field(
        "", max_length=20, description="What stands before the time, where it is a part of that header, such as `t=`."
    )
    id_header: LowerName | None = Field(default=None, description="The header with the id of the request, if signed.")
    tolerance_seconds: float = Field(
        default=300, gt=0, le=86_400, allow_inf_nan=False, description="Most seconds between that time and now."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        places = _PLACE.findall(self.payload)
        wanted = ["{body}"]
        wanted += ["{timestamp}"] if self.timestamp_header is not None else []
        wanted += ["{id}"] if self.id_header is not None else []
        if sorted(places) != sorted(wanted):
            raise ValueError(f"payload must have {' and '.join(wanted)}, each once: what is not signed can be forged")
        if self.timestamp_prefix and self.timestamp_header is None:
            raise ValueError("timestamp_prefix needs timestamp_header")
        if any(len(key) < MIN_KEY_BYTES for key in self.keys):
            raise ValueError(f"a secret is not base64 of at least {MIN_KEY_BYTES} bytes")
        return self

    @property
    def keys(self) -> list[bytes]:
        """The bytes of the secrets; none of a secret that cannot be decoded."""
        texts = [secret.get_secret_value() for secret in self.secrets]
        if self.secret_encoding == "text":
            return [text.encode() for text in texts]
        return [_decoded(text.removeprefix(WEBHOOK_PREFIX)) for text in texts]


class AcceptSettings(Section):
    """One media type of bodies that are no envelopes; see docs/webhooks.md."""

    content_type: str = Field(
        pattern=r"^[A-Za-z0-9!#$&^_.+-]{1,100}/[A-Za-z0-9!#$&^_.+-]{1,100}$",
        description="The media type, without parameters.",
    )
    job: str = Field(max_length=1_000, description="The `job` of the messages.")
    into: Literal["body", "data"] = Field(
        default="body",
        description="`body`: `data` is `{content_type, body}`, or `body_base64` for what is no text; `data`: a JSON "
        "object becomes `data`.",
    )
    signature: SignatureSettings | None = Field(default=None, description="How the sender signs. None: not at all.")
    auth: Literal["token", "signature"] = Field(
        default="token",
        description="`token`: the sender needs a bearer token as well; `signature`: the signature stands for one.",
    )
    sender: str | None = Field(
        default=None, min_length=1, max_length=120, description="The sender's name in logs, without a token."
    )
    idempotency_header: LowerName | None = Field(
        default=None, description="The header whose value is the [idempotency key](idempotency.md); required then."
    )
    headers: tuple[LowerName, ...] = Field(
        default=(), max_length=20, description="Headers that a message keeps, in `meta.ext.http`."
    )

    @field_validator("content_type")
    @classmethod
    def _lower(cls, value: str) -> str:
        return value.lower()

    @field_validator("job")
    @classmethod
    def _is_job(cls, value: str) -> str:
        if not is_text(value) or not is_encodable(value):
            raise ValueError("must be a string that is not blank, such as urn:babel:shop:paid")
        return value

    @field_validator("into")
    @classmethod
    def _is_json(cls, into: str, info: ValidationInfo) -> str:
        if into == "data" and not _JSON.fullmatch(info.data.get("content_type", "application/json")):
            raise ValueError("only JSON can become data: use into: body")
        return into

    @field_validator("auth")
    @classmethod
    def _is_signed(cls, auth: str, info: ValidationInfo) -> str:
        if auth == "signature" and info.data.get("signature", True) is None:
            raise ValueError("without a signature anyone could publish: configure signature, or use auth: token")
        return auth


def several(value: object) -> object:
    """``value`` in a list if it is one mapping; any other value unchanged."""
    return [value] if isinstance(value, Mapping) else value


def distinct(rules: tuple[AcceptSettings, ...]) -> tuple[AcceptSettings, ...]:
    """Validate that each media type occurs once."""
    if len({rule.content_type for rule in rules}) < len(rules):
        raise ValueError("two entries have the same content_type")
    return rules
