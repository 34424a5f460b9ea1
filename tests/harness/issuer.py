"""A small issuer of signed tokens over real HTTP. It signs by ``cryptography`` alone."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from base64 import urlsafe_b64encode
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

AUDIENCE = "babelgate"


def b64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int) -> str:
    return b64(value.to_bytes((value.bit_length() + 7) // 8))


def make_key(algorithm: str, bits: int = 2_048) -> Any:
    if algorithm.startswith("ES"):
        curves = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
        return ec.generate_private_key(curves[algorithm])
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(65_537, bits)


def public_jwk(key: Any) -> dict[str, Any]:
    public = key.public_key()
    if isinstance(key, rsa.RSAPrivateKey):
        numbers = public.public_numbers()
        return {"kty": "RSA", "n": number(numbers.n), "e": number(numbers.e)}
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return {"kty": "OKP", "crv": "Ed25519", "x": b64(public.public_bytes_raw())}
    numbers, size = public.public_numbers(), (key.curve.key_size + 7) // 8
    name = {256: "P-256", 384: "P-384", 521: "P-521"}[key.curve.key_size]
    x, y = (b64(each.to_bytes(size)) for each in (numbers.x, numbers.y))
    return {"kty": "EC", "crv": name, "x": x, "y": y}


def signature(key: Any, algorithm: str, data: bytes) -> bytes:
    if algorithm == "EdDSA":
        return key.sign(data)
    sizes: dict[str, hashes.HashAlgorithm] = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
    digest = sizes[algorithm[2:]]
    if algorithm.startswith("ES"):
        size = (key.curve.key_size + 7) // 8
        return b"".join(each.to_bytes(size) for each in decode_dss_signature(key.sign(data, ec.ECDSA(digest))))
    if algorithm.startswith("PS"):
        return key.sign(data, padding.PSS(padding.MGF1(digest), digest.digest_size), digest)
    return key.sign(data, padding.PKCS1v15(), digest)


class Issuer:
    """``requests``: the paths that were asked for. ``status``: of all answers. ``replaced``: bodies by path. ``gate``:
    answers wait until it is set."""

    url: str

    def __init__(self) -> None:
        self.keys: dict[str, tuple[Any, str]] = {}
        self.requests: list[str] = []
        self.status = 200
        self.replaced: dict[str, bytes] = {}
        self.headers: dict[str, str] = {}
        self.seen: list[dict[str, str]] = []
        self.gate = threading.Event()
        self.gate.set()

    def add_key(self, kid: str, algorithm: str = "ES256", bits: int = 2_048) -> Any:
        self.keys[kid] = (make_key(algorithm, bits), algorithm)
        return self.keys[kid][0]

    def jwks(self) -> dict[str, Any]:
        return {
            "keys": [
                {**public_jwk(key), "kid": kid, "use": "sig", "alg": algorithm}
                for kid, (key, algorithm) in list(self.keys.items())
            ]
        }

    def claims(self, **changed: Any) -> dict[str, Any]:
        now = int(time.time())
        found = {"iss": self.url, "aud": AUDIENCE, "sub": "ada", "iat": now, "exp": now + 3_600, **changed}
        return {name: value for name, value in found.items() if value is not None}

    def token(self, kid: str = "", header: dict[str, Any] | None = None, /, **changed: Any) -> str:
        """A token with the claims ``changed``; None leaves one out."""
        kid = kid or next(iter(self.keys))
        key, algorithm = self.keys[kid]
        head = {"alg": algorithm, "typ": "JWT", "kid": kid, **(header or {})}
        head = {name: value for name, value in head.items() if value is not None}
        return sign(head, json.dumps(self.claims(**changed)).encode(), key, algorithm)

    def answer(self, path: str) -> bytes | None:
        documents = {
            "/.well-known/openid-configuration": {"issuer": self.url, "jwks_uri": f"{self.url}/keys"},
            "/keys": self.jwks(),
        }
        found = documents.get(path)
        return self.replaced.get(path) or (None if found is None else json.dumps(found).encode())


def sign(head: dict[str, Any] | bytes, body: bytes, key: Any, algorithm: str) -> str:
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    data = f"{b64(text)}.{b64(body)}".encode()
    return f"{data.decode()}.{b64(signature(key, algorithm, data))}"


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


@contextmanager
def running(port: int = 0):
    """An issuer with one key, ``first``."""
    issuer = Issuer()
    issuer.add_key("first")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.requests.append(self.path)
            issuer.seen.append({name.lower(): value for name, value in self.headers.items()})
            issuer.gate.wait(60)
            body = issuer.answer(self.path)
            self.send_response(404 if body is None else issuer.status)
            for name, value in issuer.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    issuer.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield issuer
    finally:
        issuer.gate.set()
        server.shutdown()
        thread.join()
        server.server_close()
