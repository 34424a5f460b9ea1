"""URLs of network brokers: every part is decoded, every refusal names its key, and no secret is quoted."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from babelgate.brokers.options import TEXT, whole
from babelgate.brokers.url import BrokerUrl, Tls, read_tls, read_url
from babelgate.errors import ConfigError

FORM = "mq[s]://[user[:password]@]host[:port][/place]"


def read(url: str, options: Mapping[str, Any] | None = None) -> BrokerUrl:
    return read_url(url, options or {}, form=FORM, instead=": name a proxy")


def test_all_parts() -> None:
    found = read("MQ://sh%40op:p%3Ass@mq.example:99/a%2Fb?size=3")
    assert (found.scheme, found.secure, found.host, found.port, found.path) == ("mq", False, "mq.example", 99, "a%2Fb")
    assert found.options.read("username", TEXT, "") == "sh@op"
    assert found.options.read("password", TEXT, "") == "p:ss"
    assert found.options.read("size", whole(0), 0) == 3


def test_several_hosts_and_a_scheme_of_two_words() -> None:
    form = "mq[+ssl]://[user[:password]@]host[:port][,host[:port]...]"
    found = read_url("mq+ssl://shop@a:1,[::1],b:3", {}, form=form)
    assert found.hosts == (("a", 1), ("::1", None), ("b", 3))
    assert (found.secure, found.host, found.port) == (True, "a", 1)
    found = read_url("mq://shop:a,b@[::1]:7,[::2]/place?size=3", {}, form=form)
    assert (found.hosts, found.path) == ((("::1", 7), ("::2", None)), "place")
    assert (found.options.read("password", TEXT, ""), found.options.read("size", TEXT, "")) == ("a,b", "3")
    assert read_url("mq://a", {}, form=form).secure_scheme == "mq+ssl"
    for wrong in ("mqs://a", "mq://a,", "mq://,a"):
        with pytest.raises(ConfigError):
            read_url(wrong, {}, form=form)


def test_only_a_host() -> None:
    found = read("mqs://[::1]")
    assert (found.secure, found.host, found.port, found.path) == (True, "::1", None, "")
    assert "username" not in found.options


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("mq://a:99999", "the port is not a number from 0 to 65535"),
        ("mq://a:port", "the port is not a number from 0 to 65535"),
        ("mq://a:1,b:2", "one host is expected: name a proxy"),
        ("mq:///x", f"{FORM} is expected"),
        ("mqx://a", f"{FORM} is expected"),
        ("mq://[::1", f"{FORM} is expected"),
        ("mq://a#x", f"{FORM} is expected"),
    ],
)
def test_what_is_refused(url: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(url.replace("://", "://shop:hunter2@"))
    assert (refused.value.key, refused.value.reason) == ("url", reason)


@pytest.mark.parametrize(
    ("url", "key"),
    [("mq://a?size=1", "size"), ("mq://a?x=1&x=2", "x"), ("mq://u:p@a", "password"), ("mq://a?username=u", "username")],
)
def test_an_option_is_given_once(url: str, key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(url, {"size": 2, "password": "hunter2", "username": "shop"})
    # The userinfo comes first, so that its name stands in the error before its password.
    assert refused.value.key in (key, "username") and "hunter" not in str(refused.value)


def test_tls_options() -> None:
    files = {"ssl_ca_certs": "ca.crt", "ssl_certfile": "me.crt", "ssl_keyfile": "me.key"}
    assert read_tls(read("mqs://a?ssl_cert_reqs=none&ssl_check_hostname=false", files)) == Tls(
        "ca.crt", "me.crt", "me.key", verify=False, check_hostname=False
    )
    assert read_tls(read("mqs://a")) == Tls()
    assert read_tls(read("mq://a")) is None


@pytest.mark.parametrize(
    ("url", "options", "key", "word"),
    [
        ("mq://a", {"ssl_ca_certs": "x"}, "ssl_ca_certs", "mqs://"),
        ("mqs://a", {"ssl_keyfile": "x"}, "ssl_keyfile", "ssl_certfile"),
        ("mqs://a", {"ssl_cert_reqs": "maybe"}, "ssl_cert_reqs", "required or none"),
        ("mqs://a", {"ssl_check_hostname": "maybe"}, "ssl_check_hostname", "true or false"),
        ("mqs://a", {"ssl_certfile": ""}, "ssl_certfile", "text"),
    ],
)
def test_tls_options_that_are_refused(url: str, options: dict[str, Any], key: str, word: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_tls(read(url, options))
    assert refused.value.key == key and word in refused.value.reason


def test_tls_verifies_unless_it_is_switched_off() -> None:
    verifying, trusting = Tls().context(), Tls(verify=False).context()
    assert verifying.verify_mode == ssl.CERT_REQUIRED and verifying.check_hostname
    assert trusting.verify_mode == ssl.CERT_NONE and not trusting.check_hostname


@pytest.mark.parametrize(
    ("tls", "key"),
    [(Tls(ca_certs="missing"), "ssl_ca_certs"), (Tls(certfile="missing", keyfile="missing"), "ssl_certfile")],
)
def test_an_unreadable_file_names_its_option(tls: Tls, key: str) -> None:
    with pytest.raises(OSError, match=f"{key}.*No such file"):
        tls.context()


def test_a_file_without_a_certificate_names_its_option(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(OSError, match="ssl_certfile"):
        Tls(certfile=str(tmp_path / "empty")).context()
