"""Settings: their sources, their defaults, and refused values."""

from __future__ import annotations

import pickle

import pytest

from babelgate.config import settings
from babelgate.config.sections import BrokerSettings
from babelgate.errors import ConfigError

SECRET = "hunter2-correct-horse"
SHARED_KEY = f"token_keys: [{{id: a, secret: {SECRET * 2}}}]"


def token(name: str) -> str:
    return f"{{name: {name}, sha256: {'ab' * 32}, rights: {{}}}}"


@pytest.fixture
def load(tmp_path):
    def load(yaml: str = "", **environ: str):
        path = tmp_path / "babelgate.yaml"
        path.write_text(yaml)
        return settings.load(path, {f"BABELGATE_{name}": value for name, value in environ.items()})

    return load


@pytest.fixture
def refused(load):
    def refused(yaml: str = "", **environ: str) -> ConfigError:
        with pytest.raises(ConfigError) as caught:
            load(yaml, **environ)
        assert SECRET not in str(caught.value)
        assert SECRET not in repr(caught.value.facts)
        return caught.value

    return refused


def test_no_configuration_is_one_sqlite_file_for_every_queue():
    found = settings.load(None, {})
    assert found.brokers["local"].url == "sqlite:///babelgate.db"
    assert found.default is not None
    assert (found.default.broker, found.auth, found.host, found.workers) == ("local", None, "127.0.0.1", 1)


def test_the_default_file_lies_in_state_dir():
    assert settings.load(None, {"BABELGATE_STATE_DIR": "/var/lib/x"}).brokers["local"].url == (
        "sqlite:////var/lib/x/babelgate.db"
    )
    assert settings.load(None, {"BABELGATE_STATE_DIR": "/a b?c%"}).brokers["local"].url == (
        "sqlite:////a%20b%3Fc%25/babelgate.db"
    )


def test_the_documented_file(load):
    found = load(
        """
        brokers:
          local: sqlite:///babelgate.db
          cache: redis://127.0.0.1:6379/0
          rabbit: {url: "amqp://h/", required: true, heartbeat: 5}
        queues:
          emails: {broker: cache, lease_seconds: 30, max_attempts: 5, backoff_seconds: [1, 10, 60], layout: laravel}
          "orders.*": {broker: rabbit, native_name: "shop.{queue}"}
        default: {broker: local}
        limits: {max_message_bytes: 2048}
        auth: {tokens: [{name: shop, sha256: "%s", rights: {"orders.*": [send, listen]}}]}
        """
        % ("aB" * 32)
    )
    assert list(found.queues) == ["emails", "orders.*"]
    emails = found.queues["emails"]
    assert (emails.lease_seconds, emails.backoff_seconds, emails.options) == (30, (1, 10, 60), {"layout": "laravel"})
    assert (found.brokers["rabbit"].required, found.brokers["rabbit"].options) == (True, {"heartbeat": 5})
    assert (found.limits.max_message_bytes, found.limits.max_depth) == (2048, 128)
    assert found.auth.tokens[0].rights == {"orders.*": ("send", "listen")}


def test_the_only_broker_is_the_default_where_no_queue_is_configured(load):
    assert load("brokers: {cache: 'redis://h'}").default.broker == "cache"
    assert load(BROKERS__CACHE="redis://h").default.broker == "cache"
    assert load("brokers: {cache: 'redis://h'}\nqueues: {a: {broker: cache}}").default is None
    assert load("brokers: {cache: 'redis://h'}\ndefault: null").default is None


def test_settings_are_frozen_and_travel_to_other_processes(load):
    found = load("auth: none", TOKEN_KEYS='[{"id": "a", "secret": "%s"}]' % (SECRET * 3))
    with pytest.raises(ValueError, match="frozen"):
        found.port = 1
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize("word", ["on", "no", "yes", "2024", "1e3", "null", "2024-01-01", "12:30"])
def test_a_queue_may_have_any_legal_name(load, word):
    if ":" in word:
        word = f'"{word.replace(":", ".")}"'
    assert [*load(f"queues: {{{word}: {{broker: local}}}}").queues] == [word.strip('"')]


class TestEnvironment:
    def test_overrides_the_file(self, load):
        found = load("port: 1\nlimits: {max_depth: 9}", PORT="2", LIMITS__MAX_MESSAGE_BYTES="4096", AUTH="none")
        assert (found.port, found.limits.max_depth, found.limits.max_message_bytes) == (2, 9, 4096)
        assert found.auth == "none"

    def test_a_url_replaces_only_the_url(self, load):
        found = load("brokers: {Cache: {url: 'redis://a', required: true}}", BROKERS__CACHE="redis://b")
        assert list(found.brokers) == ["Cache"]
        assert (found.brokers["Cache"].url, found.brokers["Cache"].required) == ("redis://b", True)

    def test_reaches_into_a_broker_given_as_a_url(self, load):
        found = load("brokers: {cache: 'redis://a'}", BROKERS__CACHE__REQUIRED="true")
        assert (found.brokers["cache"].url, found.brokers["cache"].required) == ("redis://a", True)

    def test_json_and_comma_lists(self, load):
        found = load(
            QUEUES='{"orders.*": {"broker": "local", "backoff_seconds": [1, 2]}}', HOSTS="a.example, B.example,[::1]"
        )
        assert found.queues["orders.*"].backoff_seconds == (1, 2)
        assert found.hosts == ("a.example", "b.example", "[::1]")

    def test_file_variants(self, load, tmp_path):
        secret = tmp_path / "secret"
        secret.write_text("redis://:pw@h\n")
        assert load(BROKERS__CACHE_FILE=str(secret)).brokers["cache"].url == "redis://:pw@h"

    def test_a_value_and_its_file_variant_conflict(self, refused, tmp_path):
        secret = tmp_path / "secret"
        secret.write_text(f"redis://:{SECRET}@h")
        error = refused(BROKERS__CACHE_FILE=str(secret), BROKERS__CACHE=f"redis://:{SECRET}@h")
        assert "BABELGATE_BROKERS__CACHE" in str(error)

    def test_a_missing_file_names_the_variable(self, refused):
        assert "BABELGATE_AUTH_FILE: the file /nowhere/x cannot be read" in str(refused(AUTH_FILE="/nowhere/x"))

    def test_unknown_variables_are_errors(self, refused):
        error = refused(LIMITS__MAX_DEPHT="1")
        assert error.key == "limits.max_depht"
        assert "did you mean max_depth?" in error.reason
        assert refused(NONSENSE="1").key == "nonsense"
        assert "BABELGATE_PORT__X" in str(refused("port: 1", PORT__X="1"))

    def test_variables_of_the_command_line_are_not_settings(self, load):
        assert load(URL="http://h", TOKEN=SECRET, CONFIG="/x", TOKEN_FILE="/y") == settings.load(None, {})

    def test_what_kubernetes_injects_for_a_service_of_that_name_is_ignored(self, load):
        found = load(
            SERVICE_HOST="10.0.0.1",
            SERVICE_PORT="8080",
            SERVICE_PORT_HTTP="8080",
            PORT="tcp://10.0.0.1:8080",
            PORT_8080_TCP="tcp://10.0.0.1:8080",
            PORT_8080_TCP_PROTO="tcp",
            PORT_8080_TCP_PORT="8080",
            PORT_8080_TCP_ADDR="10.0.0.1",
            REDIS_SERVICE_HOST="10.0.0.2",
            REDIS_PORT="tcp://10.0.0.2:6379",
        )
        assert found == settings.load(None, {})


class TestReferences:
    def test_environment_and_file(self, tmp_path):
        secret, config = tmp_path / "secret", tmp_path / "b.yaml"
        secret.write_text(f"  {SECRET}\n")
        url = f"redis://${{env:REDIS_USER}}:${{file:{secret}}}@h"
        config.write_text(f"brokers: {{a: '{url}'}}\nport: ${{env:REDIS_PORT}}")
        found = settings.load(config, {"REDIS_USER": "u", "REDIS_PORT": "81"})
        assert (found.brokers["a"].url, found.port) == (f"redis://u:{SECRET}@h", 81)

    def test_escape(self, load):
        assert load("queues: {a: {broker: local, native_name: '$${queue}$x'}}").queues["a"].native_name == "${queue}$x"

    @pytest.mark.parametrize(
        ("reference", "reason"),
        [
            ("${env:BABELGATE_NOT_THERE}", "the environment variable BABELGATE_NOT_THERE is not set"),
            ("${file:/nowhere/secret}", "the file /nowhere/secret cannot be read: No such file or directory"),
            ("${vault:x}", "a reference must be"),
            ("${HOME}", "a reference must be"),
        ],
    )
    def test_a_reference_to_nothing_names_the_key(self, refused, reference, reason):
        error = refused(f"brokers: {{a: 'redis://{SECRET}:{reference}@h'}}")
        assert (error.key, error.reason[: len(reason)]) == ("brokers.a", reason)

    def test_values_are_no_yaml(self, tmp_path):
        config = tmp_path / "b.yaml"
        config.write_text("prefix: ${env:X}")
        with pytest.raises(ConfigError, match="prefix"):
            settings.load(config, {"X": "/a\nauth: none"})


def test_peers_on_other_hosts(load):
    found = load(
        f"{SHARED_KEY}\npeers: {{listen: '[::]:7000', dns: Babelgate-Headless:7000}}", PEERS__ADDRESSES="a:1, b:2"
    )
    assert found.peers.listen == "[::]:7000"
    assert (found.peers.dns, found.peers.addresses) == ("babelgate-headless:7000", ("a:1", "b:2"))


class TestRefused:
    @pytest.mark.parametrize(
        ("yaml", "key", "reason"),
        [
            ("lmits: {}", "lmits", "did you mean limits?"),
            ("queues: {a: {broker: local, lease_second: 1}}", "queues.a", "did you mean lease_seconds?"),
            ("brokers: {a: {url: 'redis://h', requird: 1}}", "brokers.a", "did you mean required?"),
            ("auth: {tokens: [{name: a, sha25: x, rights: {}}]}", "auth.tokens.0.sha256", "is required"),
            ("auth: {token: []}", "auth.token", "did you mean tokens?"),
            ("auth: {tokens: []}", "auth.tokens", "must be a list that is not empty"),
            (
                "auth: {tokens: [{name: a, sha256: %s, rights: {a: [sned]}}]}" % ("ab" * 32),
                "auth.tokens.0.rights.a.0",
                "must be send, listen, manage or observe",
            ),
            ("x: 1", "x", "unknown key; the valid names are brokers, queues, default"),
            ("brokers: {'a b': 'redis://h'}", "brokers.a b", "the name must match"),
            ("brokers: 5", "brokers", "must be an object"),
            ("queues: {a: {broker: local, ordering_key: drop}}", "queues.a.ordering_key", "must be refuse or ignore"),
            (
                "queues: {a: {broker: local, backoff_seconds: [x]}}",
                "queues.a.backoff_seconds.0",
                "must be a number of at least 0",
            ),
            ("state_dir: 5", "state_dir", "must be a path"),
            ("metrics: maybe", "metrics", "must be true or false"),
            ("log_level: loud", "log_level", "must be debug, info, warning or error"),
            ("auth: maybe", "auth", "must be the word none"),
            (
                "auth: {tokens: [{name: a, sha256: short, rights: {}}]}",
                "auth.tokens.0.sha256",
                "matches [0-9a-fA-F]{64}",
            ),
            ("queues: {a: {broker: nowhere}}", "queues.a.broker", "no broker 'nowhere'"),
            ("queues: {a: {broker: local, parking: nowhere}}", "queues.a.parking", "no broker 'nowhere'"),
            ("queues: {a: {broker: local, parking: local}}", "queues.a.parking", "is the broker of the route"),
            ("queues: {'a b': {broker: local}}", "queues.a b", "a queue name or pattern"),
            ("queues: {a.dlq: {broker: local}}", "queues.a.dlq", "dead-letter queue"),
            (
                "queues: {a: {broker: local, lease_seconds: 0}}",
                "queues.a.lease_seconds",
                "a number above 0 and at most 43200",
            ),
            ("queues: {a: {broker: local, lease_seconds: .inf}}", "queues.a.lease_seconds", "a number above 0"),
            ("hosts: [a.example:80]", "hosts.0", "without scheme and port"),
            ("hosts: ['http://a.example']", "hosts.0", "without scheme and port"),
            (f"auth: {{tokens: [{token('a')}, {token('a')}]}}", "auth.tokens", "the same name"),
            (f"auth: {{tokens: [{token('a')}, {token('b')}]}}", "auth.tokens", "the same sha256"),
            ("port: 70000", "port", "from 0 to 65535"),
            ("workers: 0", "workers", "from 1 to 256"),
            ("prefix: a/", "prefix", "must be a text that matches"),
            ("tls_cert: x", "tls_cert", "set together"),
            ("token_keys: [{id: a, secret: short}]", "token_keys.0.secret", "at least 32"),
            ("brokers: {a: 'redis://h', b: 'redis://h'}", "default", "must name one"),
            ("brokers: {a: {}}", "brokers.a.url", "is required"),
            ("peers: {listen: '127.0.0.1:7000'}", "token_keys", "peers.listen needs keys"),
            ("peers: {addresses: ['a:7000']}", "token_keys", "peers.addresses needs keys"),
            ("peers: {dns: 'a:7000'}", "token_keys", "peers.dns needs keys"),
            (f"{SHARED_KEY}\npeers: {{dns: 'a:7000'}}", "peers.listen", "so that the peers can reach"),
            (f"{SHARED_KEY}\npeers: {{listen: 'a:7000'}}\nworkers: 2", "peers.listen", "replicas with one worker"),
            ("peers: {listen: a}", "peers.listen", "must be host:port"),
            ("peers: {listen: '::1:7000'}", "peers.listen", "must be host:port"),
            ("peers: {addresses: ['http://a:7000']}", "peers.addresses.0", "must be host:port"),
            ("peers: {dns: 'a:0'}", "peers.dns", "must be host:port"),
            ("peers: {dns: 'a..b:7000'}", "peers.dns", "must be host:port"),
            (f"peers: {{dns: '{'a' * 64}:7000'}}", "peers.dns", "must be host:port"),
            ("peers: {adresses: []}", "peers.adresses", "did you mean addresses?"),
        ],
    )
    def test_names_the_key(self, refused, yaml, key, reason):
        error = refused(yaml)
        assert error.key == key
        assert reason in error.reason

    @pytest.mark.parametrize(
        ("yaml", "reason"),
        [
            ("a: b: c", "in line 1, column 5: a colon stands where no key can be; put the text in quotes"),
            ("a:\n\t- b", "in line 2, column 1: a tab is used where only spaces are allowed"),
            ("a: 'x", "in line 1, column 6: a quote is not closed"),
            ("a: [b, c", "in line 1, column 9: a comma or the closing bracket is missing"),
            ("a: [", "in line 1, column 5: a value is missing"),
            ("a:\n  b: 1\n c: 2", "in line 3, column 2: the indentation does not fit the lines before"),
            ("? [a]\n: b", "in line 1, column 3: a key must be text"),
            ("a: *b", "in line 1, column 4"),
        ],
    )
    def test_yaml_that_is_none_is_told_in_our_own_words(self, refused, yaml, reason):
        assert refused(yaml).reason == f"not valid YAML {reason}"

    def test_every_problem_is_told(self, refused):
        error = refused("port: x\nworkers: 0\nlmits: {}")
        assert [key for key, _ in error.problems] == ["port", "workers", "lmits"]

    @pytest.mark.parametrize("entry", ["sha256: zz, rights: {}", "sha256: 12, rights: {}", "rights: {}"])
    def test_a_list_with_one_invalid_entry_is_not_called_empty(self, refused, entry):
        error = refused(f"auth: {{tokens: [{{name: shop, {entry}}}]}}")
        assert [key for key, _ in error.problems] == ["auth.tokens.0.sha256"]

    def test_an_empty_list_is_called_empty(self, refused):
        error = refused("auth: {tokens: []}")
        assert error.problems == [("auth.tokens", "must be a list that is not empty")]

    def test_duplicate_keys(self, refused):
        error = refused("port: 1\nhost: 127.0.0.1\nport: 2")
        assert (error.key, "line 3" in error.reason) == ("port", True)
        assert refused("brokers:\n  a: redis://h\n  a: redis://h").key == "a"

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "gateway.example"])
    def test_foreign_addresses_need_credentials(self, load, refused, host):
        error = refused(f'host: "{host}"')
        assert (error.key, "auth: none" in error.reason) == ("host", True)
        assert load(f'host: "{host}"\nauth: none').host == host

    @pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.3.2.1"])
    def test_loopback_needs_none(self, load, host):
        assert load(f'host: "{host}"').is_loopback


class TestSecrets:
    URL = f"redis://user:{SECRET}@h:6379/0?password={SECRET}"

    @pytest.mark.parametrize(
        "yaml",
        [
            f"brokers: {{a: {{url: '{URL}', required: perhaps}}}}",
            f"brokers: [{URL}]",
            f"brokers: {URL}",
            f"port: {SECRET}",
            f"auth: {SECRET}",
            f"auth: {{tokens: [{{name: x, sha256: {SECRET}, rights: {{}}}}]}}",
            f"token_keys: [{{id: a, secret: {SECRET}}}]",
            f"token_keys: {SECRET}",
            f"a: *{SECRET}",
            f"a: !{SECRET} b",
            f"a: '{SECRET}\n\nb",
            f"a: {SECRET}: b",
            f"- {SECRET}",
            f"limits: {SECRET}",
            f"queues: {{a: {SECRET}}}",
        ],
    )
    def test_errors_do_not_quote_values(self, refused, yaml):
        assert refused(yaml).reason

    def test_reprs_do_not_show_them(self, load):
        found = load(
            f"brokers: {{a: {{url: '{self.URL}', password: {SECRET}}}}}\n"
            f"token_keys: [{{id: k, secret: {SECRET * 2}}}]\nauth: none"
        )
        assert SECRET in found.brokers["a"].url
        assert SECRET not in repr(found) + str(found)
        assert found.brokers["a"].masked_url == "redis://user:***@h:6379/0?password=***"

    @pytest.mark.parametrize(
        ("url", "shown"),
        [
            ("sqlite:///a.db", "sqlite:///a.db"),
            ("redis://h:6379/0?db=1", "redis://h:6379/0?db=1"),
            (f"redis://:{SECRET}@h", "redis://:***@h"),
            (f"redis://:{SECRET}/?#@{SECRET}@h", "redis://:***@h"),
            (f"https://{SECRET}@h/q", "https://***@h/q"),
            (f"Endpoint=sb://h/;SharedAccessKey={SECRET}", "***"),
        ],
    )
    def test_masked_urls(self, url, shown):
        assert BrokerSettings(url=url).masked_url == shown


def test_unreadable_files_are_told(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        settings.load(tmp_path / "none.yaml", {})
    (tmp_path / "bad.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="UTF-8"):
        settings.load(tmp_path / "bad.yaml", {})


@pytest.mark.parametrize(
    "value",
    ["!!timestamp 2024-01-01", "!!binary aGk=", "!!set {a}", "!!omap [a: 1]", "!mine a", "!!int one", "!!bool maybe"],
)
def test_a_tag_makes_no_value_that_json_does_not_have(refused, value):
    """Workers get the configuration as JSON."""
    reason = refused(f"brokers: {{a: {{url: 'redis://h', option: {value}}}}}").reason
    assert reason.startswith("not valid YAML")
    assert ("a tag" in reason) is not value.startswith(("!!int", "!!bool"))


@pytest.mark.parametrize(
    "names", ["['']", "[a..b]", "[.a]", "['a b']", "[a=b]", "[é]", f"[{'a' * 121}]", "[a,b,c,d,e,f,g,h,i]"]
)
def test_members_of_meta_that_no_journal_keeps(refused, names):
    assert refused(f"journal: {{landing: x, meta: {names}}}").facts["key"].startswith("journal.meta")


def test_members_of_meta_in_a_variable(load):
    assert load(JOURNAL__LANDING="x", JOURNAL__META="tenant, ext.shop.order").journal.meta == (
        "tenant",
        "ext.shop.order",
    )
