"""The public keys of an issuer, from its JWK Set: https://www.rfc-editor.org/rfc/rfc7517#section-5"""

from __future__ import annotations

import hashlib
import json
from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jwt import PyJWK
from jwt.api_jws import PyJWS
from jwt.exceptions import PyJWTError

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""The signatures that can be verified. None of them has a secret, so none can be made with a public key."""
MAX_KEYS = 100
"""Most keys of an issuer; the rest is ignored."""
_RSA_BITS = range(2_048, 8_193)
_MAX_EXPONENT_BYTES = 8
"""A long exponent makes a verification as slow as a signature."""
_CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "Ed25519": "EdDSA"}
_PUBLIC = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
"""The members of a public key by its type. Any other one, such as those of a private key, is not used."""

_jws = PyJWS(options={"enforce_minimum_key_length": True})


class SigningKey(NamedTuple):
    """A key for one algorithm. ``id``: identifies the key by what it is, not by its name."""

    id: str
    key: PyJWK

    def verify(self, token: bytes) -> bool:
        """Whether the signature of ``token`` is one of this key. Takes a tenth of a millisecond."""
        try:
            _jws.decode(token, self.key, algorithms=[self.key.algorithm_name])
        except (PyJWTError, ValueError):
            return False
        return True


class KeySet:
    """The usable keys of an issuer."""

    def __init__(self, keys: Mapping[str, Mapping[str, SigningKey]]) -> None:
        """``keys``: by name, then by algorithm."""
        self._keys = keys
        self.ids = frozenset(key.id for each in keys.values() for key in each.values())

    def has(self, kid: str | None) -> bool:
        """Whether there is a key of this name; None: whether there is any."""
        return kid in self._keys if kid is not None else bool(self._keys)

    def find(self, kid: str | None, algorithm: str) -> SigningKey | None:
        """The key of this name, for ``algorithm``; without a name, the only key for the algorithm."""
        if kid is not None:
            return self._keys.get(kid, {}).get(algorithm)
        found = [each[algorithm] for each in self._keys.values() if algorithm in each]
        return found[0] if len(found) == 1 else None


def parse_keys(body: bytes, algorithms: Sequence[str]) -> KeySet:
    """Read a JWK Set. What is no key for one of ``algorithms`` is left out. Raises ValueError."""
    try:
        given = json.loads(body)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    listed = given.get("keys") if isinstance(given, dict) else None
    if not isinstance(listed, list):
        raise ValueError("it is not an object with a list of keys")
    keys: dict[str, dict[str, SigningKey]] = {}
    for index, jwk in enumerate(listed[:MAX_KEYS]):
        if not isinstance(jwk, dict):
            continue
        kid = jwk.get("kid", f"\0{index}")
        for algorithm in _algorithms_of(jwk):
            key = _key(jwk, algorithm) if algorithm in algorithms and isinstance(kid, str) else None
            if key is not None:
                keys.setdefault(kid, {}).setdefault(algorithm, key)
    return KeySet(keys)


def _algorithms_of(jwk: Mapping[str, Any]) -> Sequence[str]:
    """The algorithms whose signatures the key can verify, by its type and by what the issuer says."""
    operations = jwk.get("key_ops", ["verify"])
    if jwk.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return ()
    kind, curve = jwk.get("kty"), jwk.get("crv")
    if kind == "RSA":
        able = [each for each in ALGORITHMS if each[:2] in ("RS", "PS")]
    else:
        only = _CURVES.get(curve) if isinstance(curve, str) else None
        able = [only] if only is not None and (only == "EdDSA") == (kind == "OKP") and kind in ("EC", "OKP") else []
    stated = jwk.get("alg")
    return able if stated is None else [each for each in able if each == stated]


def _key(jwk: Mapping[str, Any], algorithm: str) -> SigningKey | None:
    public: dict[str, Any] = {"kty": jwk["kty"], **{name: jwk.get(name) for name in _PUBLIC[jwk["kty"]]}}
    try:
        if public["kty"] == "RSA":
            size, exponent = int.from_bytes(_decoded(public["n"])).bit_length(), _decoded(public["e"])
            if size not in _RSA_BITS or len(exponent) > _MAX_EXPONENT_BYTES:
                return None
        key = PyJWK(public, algorithm)
    except (PyJWTError, ValueError, TypeError):
        return None
    return SigningKey(hashlib.sha256(json.dumps(public, sort_keys=True).encode()).hexdigest(), key)


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
