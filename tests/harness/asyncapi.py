"""A configuration that shows all that the AsyncAPI document can have."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import yaml

ORDER, MONEY, ODD = "urn:babel:shop:order.placed", "urn:babel:shop:money", "any text/~ä%"
SCHEMAS: list[dict[str, Any]] = [
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": ORDER,
        "type": "object",
        "required": ["total"],
        "properties": {
            "total": {"$ref": MONEY, "description": "With its taxes."},
            "lines": {"type": "array", "items": {"$ref": "#line"}},
            "pair": {"prefixItems": [{"$ref": "#/$defs/a~1b%25"}], "items": False},
        },
        "dependentRequired": {"lines": ["pair"]},
        "additionalProperties": False,
        "$defs": {"line": {"$anchor": "line", "type": "string"}, "a/b%": {"type": "integer"}},
    },
    {"$id": MONEY, "type": "integer", "minimum": 0},
    {"$id": ODD},
    {"$id": "Envelope", "examples": [{"$ref": "nowhere"}], "discriminator": 1},
]
SECRET = "planted-secret"


def configured(state: Path) -> Path:
    """The file of the configuration, with its schemas beside it. Tokens: ``all``, ``shop``, ``none``. A broker
    is down."""
    (state / "schemas").mkdir()
    for index, schema in enumerate(SCHEMAS):
        (state / "schemas" / f"{index}.json").write_text(json.dumps(schema))
    rights = {
        "all": {"*": ["send", "listen", "manage"]},
        "shop": {"orders.eu": ["send"], "checked": ["listen"]},
        "none": {"orders": []},
    }
    tokens = [
        {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), "rights": given}
        for name, given in rights.items()
    ]
    config = {
        "state_dir": str(state),
        "auth": {"tokens": tokens},
        "brokers": {
            "local": {"url": f"sqlite:///{state}/babelgate.db", "timeout_seconds": 30},
            "cache": f"redis://user:{SECRET}@127.0.0.1:1/0",
        },
        "schemas": {"directory": str(state / "schemas")},
        "queues": {
            "checked": {"broker": "cache", "schema": "enforce"},
            "orders.*.in-*": {"broker": "cache", "native_name": "shop.{queue}", "schema": "warn"},
            "orders.*": {"broker": "local"},
        },
        "default": {"broker": "local"},
    }
    path = state / "babelgate.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path
