"""The real API over SQLite, in this process."""

from __future__ import annotations

import contextlib
import hashlib
import ssl

import httpx
import pytest
import yaml

from babelgate.config import settings
from babelgate.server.server import uvicorn_config
from babelgate.server.wiring import build_app
from tests.harness.local import authorities, certify
from tests.harness.sockets import Connection, Secured, serving
from tests.harness.ways import Served


@pytest.fixture
async def serve(tmp_path):
    """A function of configuration keys that starts an application; all of them are closed with the test."""
    # What is there without configuration, but for the time that a busy machine may take.
    file = {"url": f"sqlite:///{tmp_path}/babelgate.db", "timeout_seconds": 30}
    async with contextlib.AsyncExitStack() as stack:

        async def start(*, started=True, **config):
            path = tmp_path / "babelgate.yaml"
            path.write_text(yaml.safe_dump({"state_dir": str(tmp_path), "brokers": {"local": file}, **config}))
            app = build_app(settings.load(path, {}))
            if started:
                await app.gateway.start()
            stack.push_async_callback(app.gateway.close)
            return app

        yield start


@pytest.fixture(scope="module")
def configured(tmp_path_factory):
    """Settings with tokens: ``all`` may do everything, ``read`` may not publish."""
    state = tmp_path_factory.mktemp("state")
    rights = {"all": ["send", "listen", "manage"], "read": ["listen"]}
    tokens = [
        {
            "name": name,
            "sha256": hashlib.sha256(name.encode()).hexdigest(),
            "rights": {"*" if name == "all" else "direct-*": given},
        }
        for name, given in rights.items()
    ]
    file = {"url": f"sqlite:///{state}/babelgate.db", "timeout_seconds": 30}
    path = state / "babelgate.yaml"
    config = {"state_dir": str(state), "auth": {"tokens": tokens}, "brokers": {"local": file}}
    path.write_text(yaml.safe_dump(config | {"default": {"broker": "local"}, "prefix": "/mq"}))
    return settings.load(path, {})


@pytest.fixture(scope="module")
def direct(configured):
    served = Served(configured)
    with serving(uvicorn_config(served.build, configured)) as served.address:
        yield served


@pytest.fixture(scope="module")
def application(configured):
    """A server of the same settings that serves nothing directly."""
    served = Served(configured, direct=False)
    with serving(uvicorn_config(served.build, configured)) as served.address:
        yield served


@pytest.fixture(scope="module", params=["direct", "application"])
def caller(request):
    """A client of a server of each way."""
    host, port = request.getfixturevalue(request.param).address
    headers = {"authorization": "Bearer all", "content-type": "application/json"}
    with httpx.Client(base_url=f"http://{host}:{port}/mq", headers=headers, timeout=60, verify=authorities()) as client:
        yield client


@pytest.fixture(scope="module", params=["plain", "tls"])
def secured(request, tmp_path_factory):
    """A server with TLS, and one without."""
    state = tmp_path_factory.mktemp("state")
    environ = {
        "BABELGATE_STATE_DIR": str(state),
        "BABELGATE_BROKERS__LOCAL__URL": f"sqlite:///{state}/babelgate.db",
        "BABELGATE_BROKERS__LOCAL__TIMEOUT_SECONDS": "30",
    }
    if request.param == "plain":
        return Secured(environ, None)
    certify(state)
    environ |= {"BABELGATE_TLS_CERT": f"{state}/server.crt", "BABELGATE_TLS_KEY": f"{state}/server.key"}
    return Secured(environ, ssl.create_default_context(cafile=str(state / "ca.crt")))


@pytest.fixture
async def connect():
    """A function of an application that gives a client of it."""
    async with contextlib.AsyncExitStack() as stack:

        async def open_client(app, token=None, **options):
            headers = {"authorization": f"Bearer {token}"} if token else {}
            transport = httpx.ASGITransport(app)
            client = httpx.AsyncClient(
                transport=transport,
                base_url="http://localhost",
                headers=headers | options.pop("headers", {}),
                **options,
            )
            return await stack.enter_async_context(client)

        yield open_client


@pytest.fixture
async def app(serve):
    """An application without configuration: SQLite, anyone may call."""
    return await serve()


@pytest.fixture
async def client(app, connect):
    """A client of it."""
    return await connect(app)


@pytest.fixture
def connection(address):
    """A socket to the module's own ``address``, a pair of host and port."""
    with Connection(*address) as opened:
        yield opened


@pytest.fixture
def token_config():
    """A function of rights per token that gives the ``auth`` key."""

    def make(**rights):
        return {
            "tokens": [
                {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), "rights": given}
                for name, given in rights.items()
            ]
        }

    return make
