"""The results of a batch when there is no space for them."""

from __future__ import annotations

import json
import os
import resource
from contextlib import contextmanager

import httpx
import pytest

from babelgate.errors import EnvelopeError, Problem
from babelgate.gateway.model import Receipt
from babelgate.http.exchange import Exchange
from babelgate.http.results import BatchResults
from babelgate.http.spool import MAX_BYTES, MEMORY_BYTES, Spool
from babelgate.http.upload import MAX_FAILED_ENTRIES
from tests.harness.asgi import Call
from tests.harness.gateway import gateway
from tests.harness.problems import problem

GOOD = b'{"job":"urn:babel:test:made","data":{"n":1}}'
EXPLAINED = b'{"job":"a","data":{},%b}' % b",".join(b'"%d%b":0' % (n, b"k" * 450) for n in range(10))
ENTRIES = [GOOD] * 3 + [EXPLAINED] * 100 + [b"{}"] * (MAX_FAILED_ENTRIES - 105) + [GOOD] * 2
"""Few are accepted, so that the file of the broker stays small. Their results take more than MEMORY_BYTES."""
SENT = {
    "array": (b"[%b]" % b",".join(ENTRIES), "application/json"),
    "lines": (b"\n".join(ENTRIES), "application/x-ndjson"),
}
FILE_BYTES = MEMORY_BYTES * 3 // 4


@contextmanager
def small_files(pid):
    """Let writes of the process beyond FILE_BYTES of a file fail, as on a full file system: with EFBIG."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (FILE_BYTES, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


@pytest.fixture(params=["server", "asgi"])
async def way(request, tmp_path, serve, connect):
    """A client of the gateway's own server, or of the application, and the process that serves."""
    if request.param == "asgi":
        yield await connect(await serve()), os.getpid()
        return
    with gateway(tmp_path) as process:
        async with httpx.AsyncClient(base_url=process.url, timeout=120) as client:
            yield client, process.pid


@pytest.mark.parametrize(("body", "kind"), SENT.values(), ids=SENT)
async def test_results_that_cannot_be_written_are_counted(way, queue, body, kind):
    client, pid = way
    path, headers = f"/queues/{queue}/messages:batch", {"content-type": kind}
    whole = (await client.post(path, content=body, headers=headers)).json()
    assert len(json.dumps(whole["results"])) > MEMORY_BYTES
    with small_files(pid):
        answer = await client.post(path, content=body, headers=headers)
    told = problem(answer, 507, "results_incomplete")
    assert (told["accepted"], told["failed"], told["retryable"]) == (5, MAX_FAILED_ENTRIES - 5, False)
    kept = len(told["results"])
    assert 100 < kept < len(ENTRIES)
    assert told["omitted"] == {"missing_urn": len(ENTRIES) - kept - 2, "accepted": 2}
    assert f"the results of {len(ENTRIES) - kept} are missing" in told["detail"]
    assert [(each["index"], each["status"]) for each in told["results"]] == [
        (each["index"], each["status"]) for each in whole["results"][:kept]
    ]
    assert (await client.get(f"/queues/{queue}")).json()["stats"]["depth"] == 10
    assert (await client.post(path, content=body, headers=headers)).json().keys() == whole.keys()


async def test_beyond_the_space_of_a_process_results_are_counted():
    call = Call("POST", "/queues/q/messages:batch")
    exchange = Exchange(call.scope, call._receive, call._send, "/queues/q/messages:batch")
    good = Receipt(id="i" * 36, trace_id="t" * 36, queue="q", broker="b", attempts=0, created_at=0)
    bad = EnvelopeError([Problem("/job", "missing_urn", "It is missing.")])
    before = Spool.kept
    with Spool(most=before + 1_000) as spool:
        results = BatchResults(spool)
        await results.add([good, bad])
        await results.add([good] * 10)
        await results.add([bad, good])
        await results.answer(exchange)
        assert Spool.kept == before + spool.size <= before + 1_000
    assert Spool.kept == before
    told = call.json()
    assert call.status == 207
    assert (told["accepted"], told["failed"]) == (12, 2)
    assert [result["status"] for result in told["results"]] == [201, 422]
    assert told["omitted"] == {"accepted": 11, "missing_urn": 1}


def test_all_spools_of_a_process_share_its_space():
    most = Spool.kept + 100
    with Spool(most) as first, Spool(most) as second:
        assert first.append(b"x" * 60)
        assert not second.append(b"x" * 60)
        assert second.is_full and not second.append(b"x")
    with Spool(most) as third:
        assert third.append(b"x" * 100)
    assert MAX_BYTES > MEMORY_BYTES


def test_what_is_kept_is_read_from_memory_and_from_the_file():
    texts = [b"%d," % number * 1_000 for number in range(1_000)]
    assert sum(map(len, texts)) > 2 * MEMORY_BYTES
    with Spool() as spool:
        for number, text in enumerate(texts):
            assert spool.append(text)
            if number in (1, 999):
                assert b"".join(spool.parts()) == b"".join(texts[: number + 1])
