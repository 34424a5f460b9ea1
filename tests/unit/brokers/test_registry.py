"""URL schemes to bindings, and what is loaded when."""

from __future__ import annotations

import subprocess
import sys

import pytest

from babelgate.brokers.registry import SCHEMES, connect, driver
from babelgate.clock import now_ms
from babelgate.errors import ConfigError

CLIENTS = {"redis", "aio_pika", "aioboto3", "azure", "pulsar", "confluent_kafka", "proton", "pyspark"}


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_every_scheme_has_a_binding():
    for scheme in SCHEMES:
        assert driver("x", f"{scheme}://h").module.startswith("babelgate.brokers.")
        assert driver("x", f"{scheme.upper()}://h") is driver("x", f"{scheme}://h")


def test_sqlite_is_connected_without_io(tmp_path):
    binding = connect("local", f"sqlite:///{tmp_path}/a.db", {}, now_ms)
    assert binding.name == "local"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("url", ["kafkaesque://:hunter2@h", "hunter2", "", "://hunter2", "redis:/hunter2"])
def test_an_unknown_scheme_lists_the_known_ones(url):
    with pytest.raises(ConfigError) as caught:
        connect("cache", url, {}, now_ms)
    assert caught.value.key == "brokers.cache.url"
    known = ", ".join(f"{scheme}://" for scheme in SCHEMES if not scheme.startswith("redis+"))
    assert caught.value.reason.endswith(f"one of {known}")
    assert "hunter2" not in str(caught.value)


def misspelled(scheme: str) -> set[str]:
    """What a hasty hand makes of ``scheme``: two letters exchanged, one missing, one doubled."""
    swapped = {scheme[:at] + scheme[at + 1] + scheme[at] + scheme[at + 2 :] for at in range(len(scheme) - 1)}
    missing = {scheme[:at] + scheme[at + 1 :] for at in range(len(scheme))}
    doubled = {scheme[:at] + scheme[at] + scheme[at:] for at in range(len(scheme))}
    return (swapped | missing | doubled) - SCHEMES.keys()


@pytest.mark.parametrize("scheme", [scheme for scheme in SCHEMES if scheme not in ("redis+sentinel", "redis+cluster")])
def test_a_misspelled_scheme_gets_a_hint(scheme):
    for wrong in misspelled(scheme):
        with pytest.raises(ConfigError) as caught:
            driver("x", f"{wrong}://:hunter2@h")
        hint = caught.value.reason.partition("?")[0].removeprefix("did you mean ")
        assert driver("x", f"{hint}h").kind == SCHEMES[scheme].kind, (wrong, caught.value.reason)
        assert "hunter2" not in caught.value.reason


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("ampq://h", "amqp://"),
        ("AMQSP://h", "amqps://"),
        ("rabbitmq://h", "amqp://"),
        ("sb://namespace", "servicebus://"),
        ("aws_sqs://eu-west-1", "sqs://"),
        ("activemq://h", "artemis://"),
        ("redis:/h", "redis://"),
    ],
)
def test_the_hint_is_the_nearest_scheme(url, meant):
    with pytest.raises(ConfigError) as caught:
        driver("x", url)
    assert caught.value.reason.startswith(f"did you mean {meant}? ")


@pytest.mark.parametrize("url", ["redis+sentinel://h:26379/mymaster", "redis+cluster://h:6379"])
def test_sentinel_and_cluster_are_refused_in_words(url):
    with pytest.raises(ConfigError) as caught:
        connect("cache", url, {}, now_ms)
    assert caught.value.key.startswith("brokers.cache")
    assert url.partition("+")[2].partition(":")[0] in caught.value.reason.lower()


def test_an_unknown_option_names_its_place():
    with pytest.raises(ConfigError) as caught:
        connect("local", "sqlite:///a.db", {"nonsense": 1}, now_ms)
    assert caught.value.key == "brokers.local.nonsense"


def test_a_missing_client_names_the_extra():
    # A None in sys.modules is how Python itself marks a module that cannot be imported.
    print_error = """
import sys
sys.modules["redis"] = sys.modules["redis.asyncio"] = None
from babelgate.brokers.registry import connect
from babelgate.clock import now_ms
from babelgate.errors import ConfigError
try:
    connect("cache", "redis://h", {}, now_ms)
except ConfigError as error:
    print(error)
"""
    assert run(print_error).strip() == (
        "brokers.cache: the client is not installed: "
        "install the extra redis with pip install '.[redis]' in the folder of babelgate's source"
    )


@pytest.mark.parametrize(
    "statement",
    [
        "import babelgate",
        "import babelgate.brokers.registry",
        "import babelgate.config.settings",
        "from babelgate.cli.main import cli; cli(['--help'], standalone_mode=False)",
        "from babelgate.cli.main import cli; cli(['serve', '--help'], standalone_mode=False)",
    ],
)
def test_no_client_is_loaded_before_a_broker_is_configured(statement):
    loaded = run(f"{statement}\nimport sys\nprint('LOADED', *sys.modules)").rpartition("LOADED")[2].split()
    assert "babelgate" in loaded
    assert not CLIENTS & {name.partition(".")[0] for name in loaded}


def test_help_loads_neither_the_web_framework_nor_the_settings():
    code = "from babelgate.cli.main import cli; cli(['--help'], standalone_mode=False)\nimport sys"
    code += "\nprint('LOADED', *sys.modules)"
    loaded = set(run(code).rpartition("LOADED")[2].split())
    assert not {"fastapi", "starlette", "uvicorn", "pydantic", "httpx", "rich", "yaml"} & loaded


@pytest.mark.parametrize(
    ("url", "system"), [("sqs://eu-west-1", "aws_sqs"), ("amqps://h", "rabbitmq"), ("artemis://h", "activemq")]
)
def test_the_name_of_a_system_is_that_of_the_conventions(url, system):
    assert driver("main", url).system == system
