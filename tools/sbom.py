"""The software bill of materials of what lock files install.

``python -m tools.sbom LOCK...`` prints that of the environment it runs in. The images are built with it, so it
needs nothing beyond Python.
"""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from typing import Any

from babelgate import __version__
from tools.licences import licence, pinned


def sbom(lock: str) -> dict[str, Any]:
    """The distributions of a lock file as CycloneDX 1.6: https://cyclonedx.org/docs/1.6/json/. Equal locks give equal
    documents."""
    pins = pinned(lock)
    components = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}@{version}",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name}@{version}",
            "licenses": [{"expression": licence(name)}],
        }
        for name, version in sorted(pins.items())
    ]
    own = f"pkg:pypi/babelgate@{__version__}"
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, own + json.dumps(components))}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "babelgate",
                "version": __version__,
                "purl": own,
                "licenses": [{"expression": "Apache-2.0"}],
            }
        },
        "components": components,
        "dependencies": [{"ref": own, "dependsOn": [component["bom-ref"] for component in components]}],
    }


if __name__ == "__main__":
    print(json.dumps(sbom("".join(Path(name).read_text() for name in sys.argv[1:])), indent=2))
