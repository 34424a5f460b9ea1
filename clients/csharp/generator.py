"""Makes the generated part of the client with NSwag: generator.py DOCUMENT NSWAG FOLDER.

NSwag reads OpenAPI 3.0, so the document is brought into its terms first. Its code is for .NET 5 and keeps the names of
the API, so it is changed to compile for .NET Core 3.1 and to have the names of C#.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

OPTIONS = {
    "namespace": "Babelgate.Client.Generated",
    "classname": "Api",
    "operationGenerationMode": "SingleClientFromOperationId",
    "jsonLibrary": "SystemTextJson",
    "generateNullableReferenceTypes": True,
    # What is left out of a request is not sent, and false is.
    "generateOptionalPropertiesAsNullable": True,
    "generateOptionalParameters": True,
    "generateDataAnnotations": False,
    "useBaseUrl": False,
    "arrayType": "System.Collections.Generic.IReadOnlyList",
    "arrayInstanceType": "System.Collections.Generic.List",
    "responseArrayType": "System.Collections.Generic.IReadOnlyList",
    "newLineBehavior": "LF",
}


def simpler(node: Any) -> Any:
    """The schema, or any other part of the document, without what OpenAPI 3.0 does not know."""
    if isinstance(node, list):
        return [simpler(each) for each in node]
    if not isinstance(node, dict):
        return node
    node = {name: simpler(value) for name, value in node.items()}
    kinds = node.get("type")
    if isinstance(kinds, list):
        (node["type"],) = (kind for kind in kinds if kind != "null")
        node["nullable"] = True
    choices = node.get("anyOf")
    if isinstance(choices, list):
        del node["anyOf"]
        others = [choice for choice in choices if choice.get("type") != "null"]
        if len(others) == 1:
            # A reference has no siblings.
            (other,) = others
            node |= {"allOf": [other]} if "$ref" in other else {name: other[name] for name in other if name not in node}
        if len(others) < len(choices):
            node["nullable"] = True
    if isinstance(node.get("enum"), list):
        # A later gateway may send another value.
        del node["enum"]
        node["type"] = "string"
    if isinstance(node.get("type"), str):
        # A URI adds nothing to a text.
        if node.get("format") == "uri":
            del node["format"]
        if node["type"] == "object" and node.get("additionalProperties") is True and "properties" not in node:
            # Any object of the caller, and a JsonElement in an answer.
            for name in ("type", "additionalProperties"):
                del node[name]
    return node


def pascal(name: str) -> str:
    """``created_at`` as ``createdAt``, ``Created_at`` as ``CreatedAt``, and what NSwag made of a class's own name."""
    if name in ("Broker1", "Queue1"):
        return "Name"
    return re.sub(r"_([A-Za-z])", lambda found: found[1].upper(), name)


def renamed(line: str) -> str:
    """A line of code with the names of C#. Texts are left alone, such as the names of members in JSON."""
    if line.lstrip().startswith("///"):
        return re.sub(r'(?<=<param name=")\w+', lambda found: pascal(found[0]), line)
    return re.sub(
        r'"(?:[^"\\]|\\.)*"|\b[A-Za-z]\w*_[A-Za-z]\w*|\b(?:Broker|Queue)1\b',
        lambda found: found[0] if found[0].startswith('"') else pascal(found[0]),
        line,
    )


def main(document: Path, nswag: Path, folder: Path) -> None:
    """Write the generated part into ``folder``. Raises CalledProcessError."""
    folder.mkdir(exist_ok=True)
    code = folder / "Api.cs"
    options = [f"/{name}:{value}" for name, value in OPTIONS.items()]
    program = nswag / "bin" / "binaries" / "NetCore31" / "dotnet-nswag.dll"
    with tempfile.TemporaryDirectory() as made:
        read = Path(made) / "openapi.json"
        read.write_text(json.dumps(simpler(yaml.safe_load(document.read_text("utf-8")))), "utf-8")
        command = ["./dotnet", str(program), "openapi2csclient", f"/input:{read}", f"/output:{code}", *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    lines = code.read_text("utf-8-sig").splitlines()
    kept = [renamed(line) for line in lines if "JsonIgnoreCondition" not in line]
    # The answer of `GET /metrics` is a text, which may be null by its type.
    kept.insert(kept.index("#nullable enable") + 1, "#pragma warning disable 8600")
    code.write_text("\n".join(kept) + "\n", "utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
