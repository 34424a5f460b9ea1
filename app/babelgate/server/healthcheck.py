"""The health check: requests ``/livez`` of the gateway with the same configuration on this machine."""

from __future__ import annotations

import http.client
import socket
import ssl

from babelgate.config.settings import Settings
from babelgate.errors import ConfigError

TIMEOUT_SECONDS = 3.0

_LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class Unhealthy(Exception):
    """No gateway answers 200; the text gives the reason."""


def reachable(address: str) -> str:
    """An address at which this machine reaches a socket bound to ``address``."""
    return _LOOPBACK_OF.get(address, address)


def ask(settings: Settings, timeout_seconds: float = TIMEOUT_SECONDS) -> str:
    """GET ``/livez`` at the address of ``settings``; return one line with the URL that is alive.

    The certificate is not verified, because it is for the names that clients use, and only this machine is contacted.
    Where clients must have a certificate, which this one has not, only the server's part of the handshake is checked.
    Raises Unhealthy for an answer other than 200, and without an answer within ``timeout_seconds``; ConfigError for
    port 0, because the health check cannot find the port that the gateway selected.
    """
    if settings.port == 0:
        raise ConfigError(key="port", reason="with port 0 the health check cannot find the port: set one")
    path = f"{settings.prefix}/livez"
    where = f"{settings.url(settings.host, settings.port)}/livez"
    try:
        # The same look-up as that of the server, because the host may be a name.
        *_, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        host = reachable(str(address[0]))
        if settings.tls_cert is None:
            connection = http.client.HTTPConnection(host, settings.port, timeout=timeout_seconds)
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            connection = http.client.HTTPSConnection(host, settings.port, timeout=timeout_seconds, context=context)
        try:
            if settings.tls_client_auth == "required":
                # The server refuses this client after its own part of the handshake, which shows that it serves.
                connection.connect()
                return f"{where} asks for a client certificate, so it is alive"
            # Without credentials, only names of this service are accepted.
            connection.request("GET", path, headers={"Host": f"localhost:{settings.port}"})
            status = connection.getresponse().status
        finally:
            connection.close()
    except (OSError, http.client.HTTPException) as error:
        raise Unhealthy(f"no answer from {where}: {error or type(error).__name__}") from None
    if status != http.client.OK:
        raise Unhealthy(f"{where} answered {status}")
    return f"{where} is alive"
