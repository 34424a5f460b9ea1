"""Groups of tests: which ones ``make test`` runs, and which ones a change can affect.

Each test belongs to one group: to that of the broker that it runs on, or to that of its path. ``.ci/green`` has the
last commit on which all of a group passed, as ``--green`` writes it. ``python -m tests.harness.groups`` prints what has
to run again, as ``--only`` takes it.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import registry
from tests.harness.broker import Variant
from tests.harness.essential import BEYOND, ESSENTIAL, NOT_ESSENTIAL
from tests.harness.repeated import has_rows

ROOT = Path(__file__).resolve().parents[2]
GREEN = ROOT / ".ci/green"
"""Lines of a group, a commit, and a digest of what the group depended on."""

BROKERS = registry.KINDS

NEWER = ("rabbitmq", "redis", "sqlite")
"""The brokers whose suites run on newer servers, or on a newer Python, too."""

TESTS: Mapping[str, str] = {
    "tests/architecture/": "units",
    "tests/brokers/": "processes",
    "tests/clients/": "clients",
    "tests/console/": "console",
    "tests/e2e/": "processes",
    "tests/e2e/test_generated_clients.py": "document",
    "tests/e2e/test_openapi_tools.py": "document",
    "tests/helm/": "chart",
    "tests/http/": "http",
    "tests/image/": "image",
    "tests/keycloak/": "keycloak",
    "tests/newer/": "newer",
    "tests/pipeline/": "pipeline",
    "tests/site/": "site",
    "tests/unit/": "units",
    **{f"tests/brokers/{kind}/": kind for kind in BROKERS},
}
"""The group of a test that takes no variant of a broker, by the longest beginning of its path."""

BY_BROKER = re.compile(r"tests/(brokers|e2e|http)/test_\w+\.py")
"""Files that may have tests of any broker, too: those that have :data:`_TAKES_VARIANTS`."""

_TAKES_VARIANTS = re.compile(rb"\bregistry\.(params|marks)\(")

GROUPS = tuple(dict.fromkeys(TESTS.values()))

_LEFT_OUT = re.compile(rf"\bmark\.({'|'.join((*NOT_ESSENTIAL, 'repeated'))})\b".encode())
"""In the text of a file of which ``make test`` leaves out some test."""

_SERVING = (*BROKERS, "clients", "console", "http", "pipeline", "processes")
"""What a change of how messages are served can affect. The document, the chart, the image and newer servers have tests
of their own, which only begin with a publish."""

AFFECTED: Mapping[str, Iterable[str]] = {
    ".ci/": (),
    ".dockerignore": ("image",),
    ".editorconfig": (),
    ".gitattributes": (),
    ".github/": (),
    ".gitignore": (),
    ".mdformat.toml": ("site",),
    ".pre-commit-config.yaml": (),
    ".vale.ini": (),
    "CHANGELOG.md": ("site",),
    "CONTRIBUTING.md": ("site",),
    "Dockerfile": ("image", "processes"),
    "LICENSE": (),
    "Makefile": (),
    "README.md": ("processes", "site"),
    "SECURITY.md": ("site",),
    "app/babelgate/brokers/kafka/errors.py": ("kafka", "pipeline"),
    "app/babelgate/brokers/kafka/topics.py": ("kafka", "pipeline", "processes"),
    "app/babelgate/brokers/kafka/url.py": ("kafka", "pipeline"),
    "app/babelgate/brokers/landing.py": ("kafka", "image", "pipeline", "processes"),
    "app/babelgate/cli/": ("processes", "image"),
    "app/babelgate/config/changes.py": ("http", "processes"),
    "app/babelgate/config/differences.py": ("processes",),
    "app/babelgate/console/": ("console", "image"),
    "app/babelgate/demo/": ("processes", "pipeline"),
    "app/babelgate/gateway/": _SERVING,
    "app/babelgate/gateway/draining.py": ("http", "processes"),
    "app/babelgate/gateway/former_queues.py": ("http", "processes"),
    "app/babelgate/gateway/loaded.py": ("http", "processes"),
    "app/babelgate/gateway/parking.py": ("kafka", "sqs", "http", "processes"),
    "app/babelgate/gateway/superseded.py": ("http", "processes"),
    "app/babelgate/gateway/switching.py": ("http", "processes"),
    "app/babelgate/http/docs.py": ("http", "image", "processes"),
    "app/babelgate/http/site.py": ("http", "site"),
    "app/babelgate/http/openapi/": ("document", "clients", "http", "image", "processes"),
    "app/babelgate/identities/": ("http", "keycloak", "processes"),
    "app/babelgate/leases/": _SERVING,
    "app/babelgate/observe/journal/": ("console", "http", "image", "kafka", "pipeline", "processes", "units"),
    "app/babelgate/pipeline/": ("pipeline", "image", "processes"),
    "app/babelgate/push/": (*BROKERS, "http", "processes"),
    "app/babelgate/privacy/": _SERVING,
    "app/babelgate/schemas/": ("http", "pipeline", "processes"),
    "app/babelgate/streams/": ("http", "processes"),
    "app/babelgate/server/healthcheck.py": ("image", "processes"),
    "app/babelgate/server/reload.py": ("http", "processes"),
    "app/babelgate/server/worker_group.py": ("http", "processes"),
    "app/babelgate/tokens/": ("http", "processes"),
    "app/babelgate/terminal.py": ("image", "pipeline", "processes"),
    "bench/": (),
    "clients/": ("clients", "document"),
    "docker-compose.yml": ("processes",),
    "docker/": ("image", "processes"),
    "docs/": ("processes", "site"),
    "docs/clients.md": ("processes", "clients", "site"),
    "docs/pipeline/quality.md": ("pipeline", "processes", "site"),
    "docs/pipeline/spark-source.md": ("pipeline", "processes", "site"),
    "docs/pipeline/sql.md": ("pipeline", "processes", "site"),
    "docs/pipeline/tables.ipynb": ("pipeline", "processes", "site"),
    "docs/pipeline/tables.md": ("pipeline", "processes", "site"),
    "docs/schemas.md": ("processes", "clients", "site"),
    "docs/tutorial/": ("clients", "console", "processes", "site"),
    "helm/": ("chart", "image", "processes"),
    "openapi/": ("clients", "document"),
    "requirements-quality.txt": ("pipeline",),
    "requirements-site.txt": ("site",),
    "tests/brokers/": (*BROKERS, "processes"),
    "tests/brokers/artemis/server.py": ("artemis", "units"),
    "tests/brokers/kafka/harness.py": ("kafka", "pipeline"),
    "tests/brokers/kafka/server.py": ("kafka", "pipeline"),
    "tests/brokers/redis/harness.py": ("redis", "newer", "units"),
    "tests/brokers/servicebus/server.py": ("servicebus", "units"),
    "tests/e2e/": (*BROKERS, "processes", "document"),
    "tests/e2e/clients/": ("processes",),
    "tests/e2e/new_broker/": ("processes",),
    "tests/harness/asgi.py": ("console", "http"),
    "tests/harness/browser.py": ("console", "pipeline", "processes", "site"),
    "tests/harness/bundles.py": ("http", "pipeline"),
    "tests/harness/caches.py": ("http", "processes"),
    "tests/harness/console.py": ("console",),
    "tests/harness/chromium.py": ("console", "pipeline", "processes", "site"),
    "tests/harness/disk.py": ("newer", "pulsar", "sqlite"),
    "tests/harness/encodings.py": ("http",),
    "tests/harness/envoy.py": ("processes",),
    "tests/harness/haproxy.py": ("chart", "http", "image"),
    "tests/harness/hostile.py": ("pipeline",),
    "tests/harness/hostile_text.py": ("processes",),
    "tests/harness/image.py": ("image",),
    "tests/harness/image_pod.py": ("image",),
    "tests/harness/journal.py": ("kafka", "pipeline", "processes"),
    "tests/harness/journal_topic.py": ("kafka", "pipeline"),
    "tests/harness/kept.py": (),
    "tests/harness/kubernetes.py": ("chart",),
    "tests/harness/letters.py": ("console",),
    "tests/harness/memory.py": ("console", "http", "units"),
    "tests/harness/monitoring.py": ("chart", "processes"),
    "tests/harness/newer.py": ("newer",),
    "tests/harness/operations.py": ("http", "processes"),
    "tests/harness/secrets.py": ("pipeline", "processes"),
    "tests/harness/pages.py": ("processes",),
    "tests/harness/parking.py": (),
    "tests/harness/pod.py": ("chart", "image"),
    "tests/harness/prometheus.py": ("http", "processes"),
    "tests/harness/proxies.py": ("processes",),
    "tests/harness/replica.py": (),
    "tests/harness/s3.py": ("pipeline", "processes"),
    "tests/harness/setting.py": ("console",),
    "tests/harness/shop.py": ("processes",),
    "tests/harness/spark_cluster.py": ("pipeline",),
    "tests/harness/spark_driver.py": ("pipeline",),
    "tests/harness/spark_jvm.py": ("pipeline", "processes"),
    "tests/harness/terminal.py": ("processes",),
    "tests/harness/traced.py": ("http",),
    "tests/harness/tutorial.py": ("clients", "console", "processes"),
    "tests/harness/without.py": ("pipeline", "processes"),
    "tests/http/": (*BROKERS, "http"),
    "tests/official/": ("artemis", "kafka", "pulsar", "rabbitmq", "servicebus"),
    "tests/suites/": BROKERS,
    "tests/suites/settle.py": (*BROKERS, "units"),
    "tools/compose": ("processes",),
    "tools/api_reference.py": ("site",),
    "tools/docs_site": ("site",),
    "tools/dotnet.py": ("clients",),
    "tools/feature_table.py": ("processes",),
    "tools/generated_docs.py": ("processes",),
    "tools/grafana.py": (),
    "tools/helm.py": ("chart", "image"),
    "tools/licences.py": ("image",),
    "tools/openapi_generator": ("clients", "document"),
    "tools/openapi_tools.py": ("document",),
    "tools/prose/": (),
    "tools/quicktype.py": ("clients",),
    "tools/release.py": (),
    "tools/sbom.py": ("image",),
    "tools/recording.py": (),
    "tools/screenshots.py": (),
    "tools/servicebus_emulator/": ("servicebus", "clients", "processes", "units"),
    "tools/up_local.py": ("processes",),
    "zensical.toml": ("site",),
    **{beginning: (group,) for beginning, group in TESTS.items() if group not in ("http", "processes", "document")},
    **{f"app/babelgate/brokers/{kind}/": (kind,) for kind in BROKERS},
    **{f"{folder}/brokers/{kind}/": (kind, "newer") for kind in NEWER for folder in ("app/babelgate", "tests")},
}
"""The groups that a changed file can affect, by the longest beginning of its path; all of them for any other file. A
file of tests that :data:`BY_BROKER` describes affects the groups of its tests. The units and the HTTP tests that
``make test`` runs are no reason to name their groups."""

SHARDS = 8
"""In so many parts, the tests that nothing affects run one after the other."""


def longest(table: Mapping[str, Any], path: str) -> str | None:
    """The longest key that ``path`` begins with."""
    return max((beginning for beginning in table if path.startswith(beginning)), key=len, default=None)


def group_of(item: pytest.Item) -> str:
    """The group of a test. A KeyError for a file without one, and for a test of a group that its file does not have."""
    path = item.nodeid.partition("::")[0]
    own = TESTS[longest(TESTS, path) or path]
    if (variant := _variant_of(item)) is None or not BY_BROKER.fullmatch(path):
        return own
    if variant.broker.kind not in groups_of(path):
        raise KeyError(f"{path} takes variants of brokers by neither registry.params nor registry.marks")
    return variant.broker.kind


@cache
def groups_of(path: str) -> frozenset[str]:
    """The groups that the tests of a file can belong to. A file without one is a KeyError."""
    own = TESTS[longest(TESTS, path) or path]
    takes_variants = BY_BROKER.fullmatch(path) and _TAKES_VARIANTS.search((ROOT / path).read_bytes())
    return frozenset({own, *(BROKERS if takes_variants else ())})


def is_essential(item: pytest.Item) -> bool:
    """Whether ``make test`` runs the test."""
    beginning = longest(dict.fromkeys(ESSENTIAL), item.nodeid)
    if beginning is None or longest(BEYOND, item.nodeid) or item.get_closest_marker("repeated"):
        return False
    if beginning.startswith("tests/brokers/"):
        return _variant_of(item) in registry.ORDINARY
    return "::" in beginning or not any(item.get_closest_marker(name) for name in NOT_ESSENTIAL)


@cache
def is_essential_file(path: str) -> bool:
    """Whether ``make test`` runs all tests of a file. Half of all tests are in such files."""
    beginning = longest(dict.fromkeys(ESSENTIAL), path)
    if beginning is None or not beginning.endswith("/"):
        return False
    if longest(BEYOND, path) or any(each.startswith(f"{path}::") for each in BEYOND):
        return False
    return not _LEFT_OUT.search((ROOT / path).read_bytes())


def _variant_of(item: pytest.Item) -> Variant | None:
    """The first variant of a broker that a test takes."""
    callspec = getattr(item, "callspec", None)
    return next((each for each in (callspec.params.values() if callspec else ()) if isinstance(each, Variant)), None)


class Selection:
    """``only`` is ``essential``, or the names of groups and shards (``3/8``) between commas: of these, what is not
    essential. An unknown name is a ValueError."""

    def __init__(self, only: str) -> None:
        names = set(only.split(","))
        self.essential = names == {"essential"}
        self.groups = names & {*GROUPS}
        self.shards = {number for number in range(1, SHARDS + 1) if f"{number}/{SHARDS}" in names}
        if len(names) != self.essential + len(self.groups) + len(self.shards):
            raise ValueError(f"{only!r} is not essential, or some of {', '.join(GROUPS)}, and 1/{SHARDS} and so on.")

    def reads(self, path: str) -> bool:
        """Whether a file may have tests of the selection."""
        if self.essential:
            # The test of the rows needs to see all tests that they are about.
            if has_rows(path):
                return True
            return path.startswith(tuple(each.partition("::")[0] for each in ESSENTIAL)) and not longest(BEYOND, path)
        if longest(TESTS, path) is None or is_essential_file(path):
            return False
        return bool(self.shards) or not self.groups.isdisjoint(groups_of(path))

    def takes(self, item: pytest.Item) -> bool:
        """Whether a test is of the selection. A KeyError for one that no selection has."""
        if is_essential(item):
            return self.essential
        if is_essential_file(item.nodeid.partition("::")[0]):
            raise KeyError(
                f"{item.nodeid} is left out of `make test` by a mark that the text of its file does not show"
            )
        if self.essential:
            return False
        shard = zlib.crc32(item.nodeid.rpartition("::")[0].encode()) % SHARDS + 1
        return group_of(item) in self.groups or shard in self.shards


@cache
def selection(only: str) -> Selection:
    """The selection of this process."""
    return Selection(only)


class Outcomes:
    """Writes to :data:`GREEN` which groups passed on the commit of the checkout."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        group = dict(report.user_properties).get("group")
        # A test whose process ended has no group: then nothing is known.
        found = {str(group)} if group else {*GROUPS}
        self.seen |= found
        if report.failed:
            self.failed |= found

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) or not is_clean():
            return
        (commit,) = git("rev-parse", "HEAD")
        known = green()
        known |= {group: (commit, digest(group)) for group in self.seen - self.failed}
        lines = [f"{group} {' '.join(known[group])}\n" for group in GROUPS if group in known]
        GREEN.write_text("".join(lines), "utf-8")


def git(*arguments: str) -> list[str]:
    """The lines that git prints in the checkout."""
    ran = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return ran.stdout.splitlines()


def is_clean() -> bool:
    """Whether the files of the checkout are those of its commit."""
    return not git("status", "--porcelain", "--", ".", ":!.ci/green")


def digest(group: str) -> str:
    """A hash of all that a group depends on, as the commit of the checkout has it: SHA-256, the first 16 digits."""
    files = [line for line in git("ls-tree", "-r", "HEAD") if group in affected(line.partition("\t")[2])]
    return hashlib.sha256("\n".join(files).encode()).hexdigest()[:16]


def green() -> dict[str, tuple[str, str]]:
    """The last commit on which all of a group passed, and what it depended on, of each group that is known."""
    lines = GREEN.read_text("utf-8").splitlines() if GREEN.exists() else []
    return {group: (commit, depended) for group, commit, depended in map(str.split, lines)}


def affected(path: str) -> set[str]:
    """The groups that a change of this file of the checkout can affect."""
    if BY_BROKER.fullmatch(path):
        return {*groups_of(path)}
    beginning = longest(AFFECTED, path)
    return {*GROUPS} if beginning is None else {*AFFECTED[beginning]}


def main() -> None:
    """Print ``--only`` of the groups that have to run, and of the next shard of the rest; to stderr, of each group why.
    All groups have to with FULL=1 in the environment."""
    known = green()
    selected = []
    for group in GROUPS:
        commit, depended = known.get(group, ("no commit that is known", ""))
        if os.environ.get("FULL") == "1" or depended != digest(group):
            selected.append(group)
        verdict = "runs" if group in selected else "does not run, because nothing that it depends on has changed"
        print(f"{group}: {verdict}; last passed on {commit}", file=sys.stderr)
    if len(selected) < len(GROUPS):
        (commits,) = git("rev-list", "--count", "HEAD")
        selected.append(f"{int(commits) % SHARDS + 1}/{SHARDS}")
        print(f"of the rest, shard {selected[-1]} runs", file=sys.stderr)
    print(",".join(selected))


if __name__ == "__main__":
    main()
