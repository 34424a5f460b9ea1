"""A real Keycloak as the issuer: discovery, roles that are mapped to rights, and the rotation of its keys."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess

import httpx
import pytest
import yaml

from babelgate.config import settings
from babelgate.server.server import uvicorn_config
from tests.harness.archives import copy_keycloak, keycloak_environment
from tests.harness.ci import missing
from tests.harness.local import free_port, wait_for
from tests.harness.problems import problem
from tests.harness.sockets import serving
from tests.harness.ways import Served

pytestmark = pytest.mark.slow

START_SECONDS = 1_200
"""Its first start makes its tables."""
CALL_SECONDS = 120
REALM = "shop"
CLIENTS = ("orders", "stranger")
DRAFT = {"job": "urn:babel:test:made", "data": {"n": 1}}


class Keycloak:
    """A running Keycloak with one realm, and its administrator."""

    def __init__(self, url):
        self.url = url
        self.issuer = f"{url}/realms/{REALM}"
        self.secret = secrets.token_hex(16)
        self.http = httpx.Client(base_url=url, timeout=CALL_SECONDS)

    def answers(self):
        try:
            return self.http.get("/realms/master").status_code == 200
        except httpx.HTTPError:
            return False

    def grant(self, realm, **form):
        answer = self.http.post(f"/realms/{realm}/protocol/openid-connect/token", data=form)
        assert answer.status_code == 200, answer.text
        return answer.json()["access_token"]

    def admin(self, method, path, json=None):
        """A call of its REST API for administrators. Their tokens end after a minute."""
        token = self.grant("master", grant_type="password", client_id="admin-cli", username="admin", password="admin")
        headers = {"authorization": f"Bearer {token}"}
        answer = self.http.request(method, f"/admin/realms{path}", json=json, headers=headers)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    def token(self, client):
        return self.grant(REALM, grant_type="client_credentials", client_id=client, client_secret=self.secret)

    def make_realm(self):
        audience = {
            "name": "audience",
            "protocol": "openid-connect",
            "protocolMapper": "oidc-audience-mapper",
            "config": {"included.custom.audience": "babelgate", "access.token.claim": "true"},
        }
        clients = [
            {
                "clientId": name,
                "secret": self.secret,
                "serviceAccountsEnabled": True,
                "standardFlowEnabled": False,
                "protocolMappers": [audience] if name != "stranger" else [],
            }
            for name in CLIENTS
        ]
        roles = {"realm": [{"name": "mq-orders"}]}
        realm = {"realm": REALM, "enabled": True, "sslRequired": "none", "clients": clients, "roles": roles}
        self.admin("POST", "", realm)
        (client,) = self.admin("GET", f"/{REALM}/clients?clientId=orders")
        user = self.admin("GET", f"/{REALM}/clients/{client['id']}/service-account-user")
        role = self.admin("GET", f"/{REALM}/roles/mq-orders")
        self.admin("POST", f"/{REALM}/users/{user['id']}/role-mappings/realm", [role])

    def providers(self):
        """The providers of keys that sign with RSA, by id."""
        found = self.admin("GET", f"/{REALM}/components?type=org.keycloak.keys.KeyProvider")
        return [each["id"] for each in found if each["providerId"] == "rsa-generated"]

    def add_key(self):
        """A key that signs from now on."""
        config = {"priority": ["1000"], "enabled": ["true"], "active": ["true"], "algorithm": ["RS256"]}
        provider = {"name": "rotated", "providerId": "rsa-generated", "providerType": "org.keycloak.keys.KeyProvider"}
        parent = self.admin("GET", f"/{REALM}")["id"]
        self.admin("POST", f"/{REALM}/components", {**provider, "parentId": parent, "config": config})


@pytest.fixture(scope="module")
def keycloak(tmp_path_factory):
    # It writes its database into its own folder.
    home = tmp_path_factory.mktemp("keycloak") / "home"
    if not copy_keycloak(home):
        missing("Keycloak", "run python3 -m tests.harness.archives keycloak")
    port = free_port()
    command = ["bin/kc.sh", "start", "--optimized", "--http-enabled=true", "--hostname-strict=false", "--cache=local"]
    command += ["--http-host=127.0.0.1", f"--http-port={port}"]
    environ = keycloak_environment() | {"KC_BOOTSTRAP_ADMIN_USERNAME": "admin", "KC_BOOTSTRAP_ADMIN_PASSWORD": "admin"}
    with (home / "output").open("wb") as output:
        process = subprocess.Popen(
            command, cwd=home, env=environ, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    made = Keycloak(f"http://127.0.0.1:{port}")
    try:
        wait_for(lambda: made.answers() or process.poll() is not None, START_SECONDS)
        assert process.poll() is None, (home / "output").read_text()[-2_000:]
        made.make_realm()
        yield made
    finally:
        made.http.close()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def call(keycloak, tmp_path):
    """A function of a queue and a token that publishes, by a gateway that trusts the realm."""
    path = tmp_path / "babelgate.yaml"
    rights = [{"claim": "realm_access.roles", "value": "mq-orders", "grant": {"orders.*": ["send"]}}]
    section = {"issuer": keycloak.issuer, "audience": "babelgate", "rights": rights, "refresh_seconds": 10}
    file = {"url": f"sqlite:///{tmp_path}/babelgate.db", "timeout_seconds": 30}
    config = {"state_dir": str(tmp_path), "brokers": {"local": file}, "auth": {"issuers": [section]}}
    path.write_text(yaml.safe_dump(config))
    found = settings.load(path, {})
    served = Served(found)
    with (
        serving(uvicorn_config(served.build, found)) as (host, port),
        httpx.Client(base_url=f"http://{host}:{port}", timeout=CALL_SECONDS) as client,
    ):

        def publish(queue, token):
            url = f"/queues/{queue}/messages"
            return client.post(url, json=DRAFT, headers={"authorization": f"Bearer {token}"})

        yield publish


def test_roles_are_rights_and_keys_rotate(keycloak, call):
    first = keycloak.token("orders")
    assert call("orders.a", first).status_code == 201
    problem(call("reports", first), 403, "forbidden")
    assert "another audience" in problem(call("orders.a", keycloak.token("stranger")), 401, "invalid_token")["detail"]

    (old,) = keycloak.providers()
    keycloak.add_key()
    second = keycloak.token("orders")
    assert second.split(".")[0] != first.split(".")[0]
    # It waits for the new key; the old one is still in the set.
    assert call("orders.a", second).status_code == 201
    assert call("orders.a", first).status_code == 201

    keycloak.admin("DELETE", f"/{REALM}/components/{old}")
    wait_for(lambda: call("orders.a", first).status_code == 401, 240)
    assert call("orders.a", keycloak.token("orders")).status_code == 201
