"""``erase``: bodies of messages leave the lake, and nothing else changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from msgspec import Raw
from pyarrow import parquet

from babelgate.pipeline.cli.main import pipeline
from babelgate.pipeline.erase.rows import ERASED
from babelgate.pipeline.journal.commits import Commit, CommitContent
from babelgate.pipeline.journal.reader import commit
from babelgate.pipeline.storage.datasets import DatasetReader
from babelgate.pipeline.storage.schemas import DATASETS, arrow_schema
from babelgate.pipeline.tables.moment import open_tables
from tests.pipeline.histories import DAY, SCHEMA, START, land, row
from tests.pipeline.ingested import Run
from tests.pipeline.test_tables import check

GONE, TRACED, KEPT = "message-gone-1", "message-traced", "message-kept-1"
SECRET = "very secret"


def invoke(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(pipeline, arguments, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def erase(root: str, *arguments: str) -> Any:
    return json.loads(invoke("erase", "--lake", root, "--format", "json", *arguments).stdout)


def body(message_id: str) -> str:
    meta = {"id": message_id, "queue": "orders", "lang": "go", "schema_version": 1, "created_at": START}
    data = {"of": "kept" if message_id == KEPT else SECRET}
    return json.dumps(
        {"job": "urn:babel:a:b", "trace_id": f"t-{message_id}", "data": data, "meta": meta, "attempts": 0}
    )


def records(message_id: str, at: int) -> list[dict[str, Any]]:
    facts: dict[str, Any] = {
        "message_id": message_id,
        "trace_id": f"t-{message_id}",
        "job": "urn:babel:a:b",
        "created_at": at,
        "bytes": 9,
    }
    text = body(message_id)
    with_body = {
        "envelope": Raw(text.encode()),
        "meta": {"tenant": text},
        "headers": {"to": text},
        "ordering_key": text,
    }
    return [
        row("accepted", at, 0, **facts, **with_body),
        row("delivered", at + DAY, 0, **facts, **with_body),
        row("acked", at + DAY + 5, 0, **facts),
    ]


def holding(folder: Path, text: str) -> set[str]:
    """The datasets below ``folder`` of which a Parquet file has ``text`` anywhere in a row."""
    found = set()
    for path in folder.rglob("*.parquet"):
        if "_delta_log" not in path.parts and text in str(parquet.ParquetFile(path).read().to_pylist()):
            found.add(path.relative_to(folder).parts[0])
    return found


def in_tables(root: str, text: str) -> set[str]:
    return {name for name, table in open_tables(root).items() if text in str(table.to_pyarrow_table().to_pylist())}


def figures(root: str, path: Path) -> Any:
    invoke("report", "--lake", root, "--output", str(path))
    found = json.loads(path.read_text())
    return {name: value for name, value in found.items() if name not in ("made_at", "generated_at")}


def files(root: str) -> dict[Path, int]:
    return {
        path: path.stat().st_mtime_ns
        for path in Path(root).rglob("*")
        if path.is_file() and "_erasures" not in path.parts and not path.name.endswith(".lock")
    }


@pytest.fixture
def run(spark: Any, tmp_path: Path) -> Run:
    return Run(spark, tmp_path)


def test_bodies_are_gone_and_nothing_else(run: Run, tmp_path: Path) -> None:
    # One compacted batch, and one after it, with a line that is no record and a body without a readable id.
    for number, at in enumerate((START, START + 9)):
        land(run.landing, [each for name in (GONE, TRACED, KEPT) for each in records(name, at)], f"n{number}")
        if number:
            poison = row("poison", at, 0, envelope=Raw(body(GONE).encode()))
            land(run.landing, [poison], "poison")
            (run.landing / "torn.ndjson").write_text(f'{{"v":1,"envelope":{body(GONE)}\n')
        run()
        if not number:
            run(command="compact")
    bodies = tmp_path / "bodies.ndjson"
    unreadable = body(GONE)[:-1], body(GONE).replace("urn:babel:a:b", "")
    bodies.write_text("\n".join([body(GONE), body(TRACED), body(KEPT), *unreadable]))
    invoke("validate", str(bodies), "--lake", run.root)
    run(command="metrics")
    before = figures(run.root, tmp_path / "before.json")
    rows = {name: table.to_pyarrow_table().num_rows for name, table in open_tables(run.root).items()}
    with_bodies = {"journal", "journal_corrupt", "accepted", "quarantined"}
    assert holding(Path(run.root), SECRET) == with_bodies

    unchanged = files(run.root)
    planned = erase(run.root, GONE, "--trace", f"t-{TRACED}", "--dry-run")
    assert files(run.root) == unchanged
    made = erase(run.root, GONE, "--trace", f"t-{TRACED}")
    assert made["rows"] == planned["rows"] == {"journal": 9, "journal_corrupt": 1, "accepted": 2, "quarantined": 2}
    assert made["messages"] == [GONE, TRACED]
    assert {Path(each.removeprefix("file:")).name for each in made["sources"]} == {
        path.name for path in (*run.landing.rglob("*.gz"), run.landing / "torn.ndjson", bodies)
    }
    (audit,) = Path(run.root, "_erasures").iterdir()
    assert json.loads(audit.read_text())["rows"] == made["rows"]

    assert in_tables(run.root, SECRET) == set()
    assert in_tables(run.root, "kept") >= {"journal", "accepted"}
    assert {name: table.to_pyarrow_table().num_rows for name, table in open_tables(run.root).items()} == rows
    check(run, ("journal", "accepted", "quarantined", "lifecycle", "throughput"))
    assert figures(run.root, tmp_path / "after.json") == before

    # Jobs find nothing new, and no job brings the bodies back.
    assert run()["batches"] == 0
    assert run(command="metrics")["unchanged"]
    assert run(command="compact")["unchanged"]
    nothing_new = invoke("validate", str(bodies), "--lake", run.root)
    assert "Nothing has changed" in nothing_new.stderr
    reader = DatasetReader.without_spark(run.root)
    for name in ("accepted", "quarantined"):
        assert f"{name}: {reader.folder(name, reader.current(name))}\n" in nothing_new.stdout
    again = erase(run.root, GONE, "--trace", f"t-{TRACED}")
    assert set(again["rows"].values()) == {0}
    assert set(again["sources"]) < set(made["sources"]), "rows without an id are not known any more"
    assert holding(Path(run.root), SECRET) == with_bodies, "former versions are readable"
    invoke("maintain", "--lake", run.root, "--retain-days", "0")
    assert holding(Path(run.root), SECRET) == set()
    assert holding(Path(run.root), KEPT) >= {"journal", "accepted"}
    check(run, ("journal", "accepted", "quarantined", "lifecycle", "throughput"))
    run("--force", command="compact")
    assert figures(run.root, tmp_path / "last.json") == before


def test_a_former_run_with_such_a_body_is_never_current_again(spark: Any, tmp_path: Path) -> None:
    root = str(tmp_path / "lake")
    inputs = [tmp_path / f"{number}.ndjson" for number in range(2)]
    for path in inputs:
        path.write_text(f"{body(GONE)}\n{body(KEPT)}\n")
        invoke("validate", str(path), "--lake", root)
    erase(root, GONE)
    inputs[0].write_text(f"{body(KEPT)}\n")
    reader = DatasetReader.without_spark(root)
    former = [
        run for run in reader.files.folders(reader.folder("accepted"), "run=") if run != reader.current("accepted")
    ]
    assert len(former) == 2
    assert reader.runs("accepted") == [reader.current("accepted")]
    invoke("validate", str(inputs[0]), "--lake", root)
    assert in_tables(root, SECRET) == set()
    assert open_tables(root)["accepted"].to_pyarrow_table().num_rows == 1


def test_an_erasure_that_was_killed_between_the_two_datasets_goes_on(spark: Any, tmp_path: Path) -> None:
    root, path = str(tmp_path / "lake"), tmp_path / "bodies.ndjson"
    path.write_text(f"{body(GONE)}\n{body(GONE)[:-1]}\n")
    invoke("validate", str(path), "--lake", root)
    reader = DatasetReader.without_spark(root)
    former = reader.current("quarantined")
    manifest = Path(reader.folder("quarantined", former), "_manifest.json")
    kept = manifest.read_bytes()
    erase(root, GONE)
    Path(reader.folder("quarantined"), "CURRENT").write_text(f"{former}\n")
    manifest.write_bytes(kept)
    erase(root, GONE)
    assert reader.current("quarantined") == reader.current("accepted") != former
    assert in_tables(root, SECRET) == set()


def commit_batch(reader: Any, number: int, *message_ids: str) -> None:
    """What a batch of ``ingest`` leaves: accepted messages of one day, with bodies."""
    name = f"batch=b{number}.0"
    folder = Path(reader.folder("journal"), name)
    folder.mkdir(parents=True)
    facts = [{"message_id": each, "envelope": body(each).encode(), "src_file": "file:/x"} for each in message_ids]
    made = [row("accepted", START, number, **each) for each in facts]
    parquet.write_table(pa.Table.from_pylist(made, SCHEMA), folder / "part-0.parquet")
    dates = {"2026-01-01": len(made)}
    batch = Commit(
        batch=f"b{number}", committed_at=1, folder=name, corrupt_folder=None, dates=dates, content=CommitContent()
    )
    commit(reader, batch)


def test_batches_after_an_erasure_are_kept_by_the_next_ones(tmp_path: Path) -> None:
    root = str(tmp_path)
    reader = DatasetReader.without_spark(root)
    everything = set()
    for number in range(3):
        added = {f"message-gone-{number}", f"message-kept-{number}"}
        everything |= added
        commit_batch(reader, number, *added)
        assert erase(root, f"message-gone-{number}")["rows"]["journal"] == 1
        rows = open_tables(root)["journal"].to_pyarrow_table().to_pylist()
        assert sorted(each["message_id"] for each in rows) == sorted(everything)
        bodies = {each["message_id"] for each in rows if each["envelope"] is not None}
        assert bodies == {each for each in everything if "kept" in each}


@pytest.mark.parametrize("arguments", [[], [" "], ["--trace", ""]])
def test_no_id_is_wrong_usage(tmp_path: Path, arguments: list[str]) -> None:
    assert "give the id of a message, or --trace" in invoke("erase", "--lake", str(tmp_path), *arguments, code=2).output
    assert "has no dataset" in invoke("erase", "--lake", str(tmp_path), GONE, code=1).output
    assert not list(tmp_path.iterdir())


def test_no_column_with_bodies_is_forgotten() -> None:
    with_bytes = {
        name: {each for each, kind in of.columns.items() if kind == "binary"} for name, of in DATASETS.items()
    }
    assert {name for name, columns in with_bytes.items() if columns} == ERASED.keys()
    for name, erased in ERASED.items():
        assert with_bytes[name] <= {*erased.columns}
        assert {*erased.columns, erased.source} <= DATASETS[name].columns.keys()


def test_what_schemas_say_of_a_body_is_erased(tmp_path: Path) -> None:
    reader = DatasetReader.without_spark(str(tmp_path))
    violation = {"pointer": "/data/very secret", "code": "additional_property", "detail": SECRET}
    told: dict[str, dict[str, Any]] = {
        "accepted": {"dropped": ["/data/very secret"]},
        "quarantined": {"reason_pointer": "/data/very secret", "violations": [violation]},
    }
    for name, facts in told.items():
        columns = arrow_schema(DATASETS[name].columns)
        made = [{"message_id": each, "body": b"{}", **facts} for each in (GONE, KEPT)]
        Path(reader.folder(name, "one")).mkdir(parents=True)
        parquet.write_table(pa.Table.from_pylist(made, columns), Path(reader.folder(name, "one"), "part-0.parquet"))
    reader.publish([*told], "one", {"job": "validate", "counts": {}})
    assert erase(str(tmp_path), GONE)["rows"] == {"journal": 0, "journal_corrupt": 0, "accepted": 1, "quarantined": 1}
    for name, facts in told.items():
        rows = {each["message_id"]: each for each in open_tables(str(tmp_path))[name].to_pyarrow_table().to_pylist()}
        assert SECRET not in str(rows[GONE])
        assert {column: rows[KEPT][column] for column in facts} == facts
    assert erase(str(tmp_path), GONE)["rows"]["accepted"] == 0


def test_large_bodies_are_read_and_written_a_few_at_a_time(tmp_path: Path) -> None:
    reader = DatasetReader.without_spark(str(tmp_path))
    columns = arrow_schema(DATASETS["quarantined"].columns)
    large = bytes(4 * 2**20)
    made = [{"message_id": GONE if number == 7 else f"other-{number}", "body": large} for number in range(40)]
    for name in ("accepted", "quarantined"):
        Path(reader.folder(name, "one")).mkdir(parents=True)
    place = Path(reader.folder("quarantined", "one"), "part-0.parquet")
    with parquet.ParquetWriter(place, columns, use_dictionary=["run_id"], data_page_size=1, write_batch_size=1) as file:
        file.write_table(pa.Table.from_pylist(made, columns))
    reader.publish(["accepted", "quarantined"], "one", {"job": "validate", "counts": {}})
    pool, usual = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        assert erase(str(tmp_path), GONE)["rows"]["quarantined"] == 1
    finally:
        pa.set_memory_pool(usual)
    # The bodies have 160 MiB.
    assert pool.max_memory() < 120 * 2**20
    rows = open_tables(str(tmp_path))["quarantined"].to_pyarrow_table(columns=["message_id", "body"]).to_pylist()
    assert {each["message_id"] for each in rows} == {each["message_id"] for each in made}
    assert [each["message_id"] for each in rows if each["body"] != large] == [GONE]
