"""Pages of the documentation site that are made of the OpenAPI document, when the site is built.

``docs/operations.md`` has the words of each operation, so that the search of the site finds them.
``docs/reference/api.html`` shows the whole document in Swagger UI, whose files are those that the gateway serves at
``/docs``. It has the document as a script, because a page in a folder cannot fetch a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

ROOT = Path(__file__).resolve().parents[1]
OPERATIONS = "docs/operations.md"
REFERENCE = "docs/reference/api.html"
_METHODS = ("get", "put", "post", "delete")
_ASSETS = ("swagger-ui.css", "swagger-ui-bundle.js")
_HEAD = """# Operations

**For** developers who call the API. **In the end** you know which operation does it, and what it
takes. The [reference](reference/api.html) has all bodies, answers and examples.

"""
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>API reference - babelgate</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="swagger-ui.css">
<link rel="stylesheet" href="page.css">
</head>
<body>
<nav>
<a href="../../index.html">babelgate</a>
<a href="../operations.html">Operations</a>
<a href="../api.html">The API</a>
</nav>
<h1>API reference</h1>
<main id="swagger-ui"></main>
<script src="openapi.js"></script>
<script src="swagger-ui-bundle.js"></script>
<script src="start.js"></script>
</body>
</html>
"""
_STYLE = """body {margin: 0; font: 16px/1.5 system-ui, sans-serif; color: #3b4151}
nav {padding: 12px 20px; border-bottom: 1px solid #8886}
nav a {color: #3557d4; margin-right: 16px}
h1 {max-width: 1460px; margin: 0 auto; padding: 20px 20px 0; box-sizing: border-box}
.swagger-ui .info {margin: 12px 0}
.swagger-ui .info .title, .swagger-ui .info .main > .link, .swagger-ui .scheme-container {display: none}
.swagger-ui .opblock-body {overflow-x: auto}
html.dark-mode body {background: #1c2022; color: #e4e6e6}
html.dark-mode nav a {color: #9db4ff}
"""
# The site keeps the scheme that its reader chose below a key that ends with __palette.
_START = """const key = Object.keys(localStorage).find((name) => name.endsWith(".__palette"));
const chosen = key && JSON.parse(localStorage.getItem(key)).color?.scheme;
const dark = chosen ? chosen === "slate" : matchMedia("(prefers-color-scheme: dark)").matches;
document.documentElement.classList.toggle("dark-mode", dark);
// The document is here already. References within it are resolved against its address, which has to be one of HTTP.
window.fetch = async () => new Response(JSON.stringify(openapi), {headers: {"content-type": "application/json"}});
SwaggerUIBundle({
  url: location.protocol === "file:" ? "http://localhost/openapi.json" : "openapi.json",
  dom_id: "#swagger-ui", deepLinking: true, filter: true, supportedSubmitMethods: [], defaultModelsExpandDepth: 0,
});
"""


def write(pages: Path) -> None:
    """Write the pages below ``pages``."""
    document = yaml.load((ROOT / "openapi" / "openapi.yaml").read_bytes(), yaml.CSafeLoader)
    (pages / OPERATIONS).write_text(_HEAD + "\n".join(_operations(document)), "utf-8")
    folder = (pages / REFERENCE).parent
    folder.mkdir()
    for name in _ASSETS:
        (folder / name).write_bytes((files("fastapi_swagger") / "resources" / name).read_bytes())
    (folder / "openapi.js").write_text(f"const openapi = {json.dumps(document, default=str)};\n", "utf-8")
    for name, text in (("page.css", _STYLE), ("start.js", _START), ("api.html", _PAGE)):
        (folder / name).write_text(text, "utf-8")


def _operations(document: dict[str, Any]) -> Iterator[str]:
    """The lines of the operations, by their tags."""
    found = [
        (method.upper(), path, operation, [*methods.get("parameters", ()), *operation.get("parameters", ())])
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if method in _METHODS
    ]
    for tag in document["tags"]:
        yield from (f"## {tag['name'].capitalize()}", "", tag["description"], "")
        for method, path, operation, given in found:
            if operation["tags"] == [tag["name"]]:
                address = f"reference/api.html#/{quote(tag['name'])}/{operation['operationId']}"
                yield from (f"### {operation['summary']}", "", f"[`{method} {path}`]({address})", "")
                yield from (operation.get("description", ""), "")
                parameters = [_resolved(document, each) for each in given]
                yield from (
                    f"- `{each['name']}` ({each['in']}): {' '.join(each['description'].split())}" for each in parameters
                )
                yield ""


def _resolved(document: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    """What a reference stands for; anything else stands for itself."""
    found: Any = document
    for name in entry["$ref"].split("/")[1:] if "$ref" in entry else ():
        found = found[name]
    return entry if found is document else found
