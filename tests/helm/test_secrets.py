"""The chart lets no secret of the configuration into a ConfigMap or a pod."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import pytest
from pydantic import BaseModel, SecretStr

from babelgate.brokers import registry
from babelgate.brokers.options import SecretOption
from babelgate.clock import now_ms
from babelgate.config.settings import Settings
from babelgate.errors import ConfigError
from tools.helm import CHART, documents, only, template

REFERENCES = ("${file:/run/secrets/shop/key}", "${env:KEY}", "${env:A}${file:/b}")
SECRET = "hunter2"

URLS = {
    "sqlite": "sqlite:///x.db",
    "redis": "redis://h",
    "rabbitmq": "amqp://h",
    "sqs": "sqs://eu-west-1",
    "servicebus": "servicebus://h",
    "kafka": "kafka://h",
    "pulsar": "pulsar://h",
    "artemis": "artemis://h",
}
"""A URL of each driver."""

NOT_SECRET = {"token_path", "oauth_token_url", "ssl_keyfile"}
"""Options whose names sound secret: their values are paths and addresses."""


def models(model: type[BaseModel] = Settings, seen: set[type[BaseModel]] | None = None) -> set[type[BaseModel]]:
    """The classes of the configuration."""
    seen = set() if seen is None else seen
    if model not in seen:
        seen.add(model)
        for field in model.model_fields.values():
            for inner in parts(field.annotation):
                if isinstance(inner, type) and issubclass(inner, BaseModel):
                    models(inner, seen)
    return seen


def parts(annotation: object) -> Iterator[object]:
    yield annotation
    for inner in get_args(annotation):
        yield from parts(inner)


def test_the_chart_knows_every_secret_key_of_the_configuration() -> None:
    fields = {
        name
        for model in models()
        for name, field in model.model_fields.items()
        if any(part is SecretStr for part in parts(field.annotation))
    }
    assert fields == {"headers", "secret", "secrets"}
    text = (CHART / "templates" / "_secrets.tpl").read_text("utf-8")
    (known,) = re.findall(r'define "babelgate\.secretKeys" -}}\n\[(.*)]\n', text)
    assert known == ", ".join(f'"{key}"' for key in sorted({*get_args(SecretOption), *fields - {"headers"}}))


@pytest.mark.parametrize("kind", sorted({driver.kind for driver in registry.SCHEMES.values()}))
def test_an_option_that_sounds_secret_is_read_as_one(kind: str) -> None:
    with pytest.raises(ConfigError) as refused:
        registry.connect("x", URLS[kind], {"no_option": 1}, now_ms)
    known = str(refused.value.reason).partition("known are ")[2].split(", ")
    assert len(known) >= 2
    sounds = {key for key in known if re.search("pass|secret|token|key|credential|connection_string", key)}
    assert sounds - NOT_SECRET <= {*get_args(SecretOption)}


def config(**members: Any) -> dict[str, Any]:
    return {"config": {"brokers": {"b": {"url": "redis://h", **members}}}}


def queue(**members: Any) -> dict[str, Any]:
    return {"config": {"queues": {"a": members}, "cors": {"headers": "x-a,x-b"}}}


PLACES: Mapping[str, Any] = {
    **{f"config.brokers.b.{key}": lambda value, key=key: config(**{key: value}) for key in get_args(SecretOption)},
    "config.brokers.b": lambda value: {"config": {"brokers": {"b": f"amqp://shop:{value}@h/"}}},
    "config.brokers.b.url": lambda value: config(url=f"pulsar://h?a=1&token={value}"),
    "config.brokers.b.management": lambda value: config(management=f"http://u:{value}@h:15672"),
    "config.brokers.token": lambda value: {"config": {"brokers": {"token": f"kafka://:{value}@a:9092,b:9092"}}},
    "config.journal.landing": lambda value: {"config": {"journal": {"landing": f"s3://id:{value}@bucket/x"}}},
    "config.auth.tokens.0.sha256": lambda value: {"config": {"auth": {"tokens": [{"name": "a", "sha256": value}]}}},
    "config.auth.tokens.0.token": lambda value: {"config": {"auth": {"tokens": [{"name": "a", "token": value}]}}},
    "config.other.0.secret": lambda value: {"config": {"other": [{"secret": value}]}},
    "config.queues.a.push.secrets.0": lambda value: queue(push={"secrets": [value]}),
    "config.queues.a.push.headers.authorization": lambda value: queue(push={"headers": {"authorization": value}}),
    "config.queues.a.accept.0.signature.secrets.1": lambda value: queue(
        accept=[{"signature": {"secrets": ["${env:A}", value]}, "headers": ["x-topic"]}]
    ),
}
"""Values of the chart with a secret, by the path that the refusal names."""


@pytest.mark.parametrize("place", PLACES)
def test_a_secret_is_refused_and_a_reference_is_not(place: str) -> None:
    for secret in (SECRET, f"{SECRET}${{env:KEY}}", "$${file:/run/secrets/shop/key}"):
        with pytest.raises(AssertionError) as refused:
            template(PLACES[place](secret))
        words = f"{place}: everyone who may read a ConfigMap or a pod could read this secret; put it in a Secret"
        assert words in str(refused.value)
        assert "${file:/run/secrets/NAME/KEY}" in str(refused.value)
        assert SECRET not in str(refused.value)
    for reference in REFERENCES:
        text = template(PLACES[place](reference))
        assert reference in only(documents(text), "ConfigMap", "shop-babelgate")["data"]["babelgate.yaml"]


def test_a_password_of_the_topic_of_the_journal_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"pipeline\.landing: everyone who may read .* pipeline\.landingSecret"):
        template({"pipeline": {"landing": f"kafka://joe:{SECRET}@kafka/journal"}})


@pytest.mark.parametrize(
    "broker",
    [
        {"url": "redis://h", "password": 12345},
        "redis://:pa@ss/word@h",
        "redis://u:$pa$$ss@h",
        "amqp://${env:USER}:hunter2@h",
        {"url": "servicebus://", "connection_string": "Endpoint=sb://h/;SharedAccessKeyName=a;SharedAccessKey=hunter2"},
        {"url": "servicebus://", "connection_string": "Endpoint=sb://h/;SharedAccessSignature=hunter2"},
        "servicebus://?connection_string=Endpoint%3Dsb",
    ],
    ids=str,
)
def test_other_forms_of_a_secret_are_refused(broker: object) -> None:
    with pytest.raises(AssertionError, match=r"config\.brokers\.b(\.[a-z_]+)?: everyone who may read"):
        template({"config": {"brokers": {"b": broker}}})


@pytest.mark.parametrize(
    "values",
    [
        config(password=""),
        config(url="kafka://a:9092,b:9092?username=a@b.example", token_path="/run/secrets/x/token"),
        config(url="${env:URL}"),
        {"pipeline": {"landing": "kafka+ssl://joe@kafka/journal?sasl_mechanism=PLAIN", "landingSecret": "kafka"}},
        config(url="redis://shop@cache:6379/0"),
        config(
            url="servicebus://",
            connection_string="Endpoint=sb://h/;SharedAccessKeyName=a;SharedAccessKey=${file:/run/secrets/bus/key}",
        ),
        {"config": {**config()["config"], "queues": {"token": {"broker": "b"}, "password": {"broker": "b"}}}},
        {"config": {"auth": {"tokens": [{"name": "token", "sha256": "0" * 64, "rights": {"token": ["send"]}}]}}},
        {"env": [{"name": "AWS_SECRET_ACCESS_KEY", "valueFrom": {"secretKeyRef": {"name": "aws", "key": "k"}}}]},
        {"env": [{"name": "AWS_WEB_IDENTITY_TOKEN_FILE", "value": "/var/run/token"}]},
        {"env": [{"name": "BABELGATE_BROKERS__R", "value": "amqp://u:$(PASSWORD)@h"}]},
        {"env": [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector:4318"}]},
    ],
    ids=str,
)
def test_what_is_no_secret_is_rendered(values: dict[str, Any]) -> None:
    assert template(values)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=hunter2"),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "authorization=Bearer%20hunter2"),
        ("AWS_SECRET_ACCESS_KEY", "hunter2"),
        ("AWS_SESSION_TOKEN", "hunter2"),
        ("AZURE_CLIENT_SECRET", "hunter2"),
        ("AZURE_STORAGE_ACCOUNT_KEY", "hunter2"),
        ("BABELGATE_BROKERS__B__PASSWORD", "hunter2"),
        ("BABELGATE_BROKERS__B", "amqp://u:hunter2@h"),
        ("BABELGATE_BROKERS__B", '{"url": "amqp://h", "management_password": "hunter2"}'),
        ("BABELGATE_TOKEN_KEYS", '[{"id": "1", "secret": "hunter2"}]'),
        ("BUS", "Endpoint=sb://h/;SharedAccessKey=hunter2"),
    ],
)
def test_a_secret_in_a_variable_is_refused(name: str, value: str) -> None:
    with pytest.raises(AssertionError) as refused:
        template({"env": [{"name": name, "value": value}]})
    assert f"env.{name}" in str(refused.value)
    assert "valueFrom.secretKeyRef" in str(refused.value)
    assert SECRET not in str(refused.value)
