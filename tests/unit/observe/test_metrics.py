"""What is counted, in what, and how much of it at most."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from babelgate.errors import BrokerUnavailable
from babelgate.observe.events import Call, Event, Facts
from babelgate.observe.metrics import catalogue
from babelgate.observe.metrics.instruments import Distribution, Histogram, Snapshot, decode, encode, merged
from babelgate.observe.metrics.labels import MAX_QUEUES
from babelgate.observe.metrics.recorder import CLIENT_GONE, Metrics

NOW = 1_700_000_000_000


def metrics() -> Metrics:
    return Metrics(lambda: NOW, {"b": "redis"})


def values(made: Metrics | Snapshot, metric: catalogue.Metric) -> dict[tuple[str, ...], float]:
    """The numbers of a counter that are not 0."""
    snapshot = made.snapshot() if isinstance(made, Metrics) else made
    found = snapshot[metric.otel].items()
    return {labels: value for labels, value in found if not isinstance(value, Distribution) and value}


def distributions(made: Metrics, metric: catalogue.Metric) -> dict[tuple[str, ...], Distribution]:
    found = made.snapshot()[metric.otel].items()
    return {labels: value for labels, value in found if isinstance(value, Distribution)}


class TestEvents:
    @pytest.mark.parametrize(
        ("event", "metric", "labels"),
        [
            (Event("accepted", "q", "b", 3), catalogue.PUBLISHED, ("q", "b")),
            (Event("delivered", "q", "b", 3), catalogue.DELIVERED, ("q", "b")),
            (Event("acked", "q", "b", 3), catalogue.SETTLED, ("q", "b", "acked")),
            (Event("nacked", "q", "b", 3), catalogue.SETTLED, ("q", "b", "nacked")),
            (Event("rejected", "q", "b", 3), catalogue.SETTLED, ("q", "b", "rejected")),
            (Event("lease_lost", "q", "b", 3), catalogue.SETTLED, ("q", "b", "lease_lost")),
            (Event("extended", "q", "b", 3), catalogue.EXTENDED, ("q", "b")),
            (Event("lease_expired", "q", "b", 3), catalogue.LEASE_EXPIRED, ("q", "b")),
            (Event("dropped", "q", "b", 3, "expired"), catalogue.DROPPED, ("q", "b")),
            (Event("redriven", "q", "b", 3), catalogue.REDRIVEN, ("q", "b")),
            (Event("settled_here", "q", "b", 3), catalogue.LOCAL_SETTLES, ("q", "b")),
            (Event("forwarded", "q", "b", 3, "unknown"), catalogue.FORWARDED_SETTLES, ("q", "b", "unknown")),
            (Event("dead_lettered", "q", "b", 3, "failed"), catalogue.DEAD_LETTERED, ("q", "b", "failed")),
            (Event("poison", "q", "b", 3, "missing_urn"), catalogue.POISON, ("q", "b")),
            (Event("poison", "q", "b", 3, "missing_urn"), catalogue.DEAD_LETTERED, ("q", "b", "poison")),
        ],
    )
    def test_each_has_its_counter(self, event: Event, metric: catalogue.Metric, labels: tuple[str, ...]) -> None:
        made = metrics()
        made.observe(event)
        made.observe(event)
        assert values(made, metric) == {labels: 6}

    def test_a_reason_that_nobody_declared_is_one_that_was(self) -> None:
        made = metrics()
        made.observe(Event("dead_lettered", "q", "b", reason="because"))
        made.observe(Event("forwarded", "q", "b", reason="because"))
        assert values(made, catalogue.DEAD_LETTERED) == {("q", "b", "failed"): 1}
        assert values(made, catalogue.FORWARDED_SETTLES) == {("q", "b", "failed"): 1}

    def test_the_counters_of_a_queue_are_there_before_they_count(self) -> None:
        """Prometheus cannot tell the increase of a series that begins with what it counted."""
        made = metrics()
        made.observe(Event("accepted", "q", "b"))
        snapshot = made.snapshot()
        assert snapshot[catalogue.DEAD_LETTERED.otel] == {("q", "b", reason): 0.0 for reason in catalogue.REASONS}
        assert snapshot[catalogue.SETTLED.otel] == {("q", "b", outcome): 0.0 for outcome in catalogue.OUTCOMES}

    def test_an_ack_ends_the_way_of_each_message(self) -> None:
        made = metrics()
        facts = [Facts(created_at=NOW - 200), Facts(created_at=NOW - 4_000), Facts(), Facts(created_at=NOW + 9_000)]
        made.observe(Event("acked", "q", "b", 4, messages=facts))
        made.observe(Event("nacked", "q", "b", 1, messages=facts[:1]))
        (found,) = distributions(made, catalogue.END_TO_END).values()
        assert (sum(found.counts), found.sum) == (3, 4.2), "a clock that is ahead counts as no time"


class TestCalls:
    def test_they_are_timed_and_their_messages_counted(self) -> None:
        made = metrics()
        made.observe(Call("send", "q", "b", 5, 0.02, coalesced=True))
        made.observe(Call("send", "q", "b", 2, 0.02))
        made.observe(Call("receive", "q", "b", 3, 1.0))
        made.observe(Call("ack", "q", "b", 3, 0.02, coalesced=True))
        made.observe(Call("send", "q", "b", 1, 0.02, BrokerUnavailable.code))
        send, receive = ("send", "redis", "q", ""), ("receive", "redis", "q", "")
        failed = ("send", "redis", "q", "broker_unavailable")
        assert values(made, catalogue.SENT_MESSAGES) == {send: 7, failed: 1}
        assert values(made, catalogue.CONSUMED_MESSAGES) == {receive: 3}
        durations = distributions(made, catalogue.OPERATION_DURATION)
        assert {labels: sum(found.counts) for labels, found in durations.items()} == {
            send: 2,
            receive: 1,
            ("ack", "redis", "q", ""): 1,
            failed: 1,
        }
        assert distributions(made, catalogue.BATCH_SIZE)["q", "b"].sum == 5

    def test_a_broker_that_nobody_named_has_a_system_too(self) -> None:
        made = metrics()
        made.observe(Call("send", "q", "another", 1, 0.1))
        assert list(values(made, catalogue.SENT_MESSAGES)) == [("send", "_OTHER", "q", "")]


class TestRequests:
    def test_the_labels_of_the_conventions(self) -> None:
        made = metrics()
        made.request("POST", "/queues/{queue}/messages", 503, "http", "broker_unavailable", 0.3)
        made.request("BREW", "", 0, "https", CLIENT_GONE, 0.3)
        assert set(distributions(made, catalogue.HTTP_DURATION)) == {
            ("POST", "/queues/{queue}/messages", "503", "http", "broker_unavailable"),
            ("_OTHER", "", "", "https", "client_gone"),
        }

    def test_the_newest_trace_of_a_bucket_is_its_example(self) -> None:
        made = metrics()
        for span in ("a" * 16, "b" * 16):
            made.request("GET", "", 200, "http", None, 0.3, ("c" * 32, span))
        made.request("GET", "", 200, "http", None, 0.003)
        (found,) = distributions(made, catalogue.HTTP_DURATION).values()
        (exemplar,) = found.exemplars.values()
        assert (exemplar.trace_id, exemplar.span_id, exemplar.value) == ("c" * 32, "b" * 16, 0.3)


def test_a_value_on_a_bound_belongs_to_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 9.0):
        histogram.observe(value)
    assert histogram.read().counts == [2, 2, 1]


class TestBounds:
    @settings(max_examples=20, deadline=None)
    @given(
        st.lists(st.text(min_size=1, max_size=20), unique=True, min_size=5, max_size=30),
        st.lists(st.text(min_size=1), min_size=5),
    )
    def test_no_name_whatsoever_makes_more_series(self, queues: list[str], words: list[str]) -> None:
        made = metrics()
        for number in range(MAX_QUEUES - 2):
            made.register(f"known-{number}", "b")

        def series() -> int:
            return sum(map(len, made.snapshot().values()))

        def bombard(names: list[str]) -> None:
            for queue in names:
                for word in words:
                    for kind in ("accepted", "acked", "dead_lettered", "forwarded", "poison"):
                        made.observe(Event(kind, queue, "b", reason=word, messages=[Facts(created_at=1)]))
                    for operation in ("send", "receive", "ack"):
                        made.observe(Call(operation, queue, "b", 1, 0.1, word, True))
                    made.request(word, "/queues/{queue}", 500, "http", word, 0.1)

        bombard(queues[:4])
        before, held = series(), held_by(made)
        bombard([f"{queue}-{number}" for queue in queues for number in range(3)])
        assert (series(), held_by(made)) == (before, held)
        assert sum(not queue.startswith("known-") for queue in made.queues) == 2
        assert {made.label(queue) for queue in queues[4:]} <= {"_other"}

    def test_what_does_not_fit_is_counted_together(self) -> None:
        made = metrics()
        for number in range(MAX_QUEUES + 5):
            made.observe(Event("accepted", f"q{number}", "b"))
        counted = values(made, catalogue.PUBLISHED)
        assert len(counted) == MAX_QUEUES + 1
        assert counted["_other", "b"] == 5

    def test_a_configured_queue_keeps_its_label(self) -> None:
        made = metrics()
        made.register("orders", "b")
        for number in range(MAX_QUEUES):
            made.observe(Event("accepted", f"q{number}", "b"))
        made.observe(Event("accepted", "orders", "b"))
        assert values(made, catalogue.PUBLISHED)["orders", "b"] == 1


def held_by(made: Metrics) -> int:
    """How much is remembered to be quick."""
    return sum(len(held) for name, held in vars(made).items() if name.startswith("_by_") or name == "_end_to_end")


def filled(times: int) -> Metrics:
    made = metrics()
    for _ in range(times):
        made.observe(Event("acked", "q", "b", messages=[Facts(created_at=NOW - 1000)]))
        made.request("GET", "", 200, "http", None, 0.3, ("c" * 32, f"{times:016x}"))
    return made


class TestSnapshots:
    def test_the_sum_of_several(self) -> None:
        one, other = filled(2), filled(3)
        other.observe(Event("accepted", "elsewhere", "b"))
        total = merged([one.snapshot(), other.snapshot()])
        assert values(total, catalogue.SETTLED) == {("q", "b", "acked"): 5}
        assert values(total, catalogue.PUBLISHED) == {("elsewhere", "b"): 1}
        (found,) = total[catalogue.HTTP_DURATION.otel].values()
        assert isinstance(found, Distribution)
        assert (sum(found.counts), round(found.sum, 6)) == (5, 1.5)
        assert [exemplar.span_id for exemplar in found.exemplars.values()] == [f"{3:016x}"], "not the newest"

    def test_to_sum_changes_nothing_that_was_summed(self) -> None:
        one, other = filled(1).snapshot(), filled(1).snapshot()
        before = encode(one), encode(other)
        merged([one, other])
        assert (encode(one), encode(other)) == before

    def test_a_snapshot_survives_its_text(self) -> None:
        snapshot = filled(3).snapshot()
        assert decode(encode(snapshot)) == snapshot

    @pytest.mark.parametrize(
        "text",
        [
            b"",
            b"[[",
            b'[["babelgate.published", [[["q"], 1.0]]]]',
            b'[["babelgate.published", [[["q", "b"], [[1], 1.0, {}]]]]]',
            b'[["babelgate.end_to_end", [[["q", "b"], [[1], 1.0, {}]]]]]',
            b'[["babelgate.unheard_of", []]]',
        ],
    )
    def test_what_is_no_snapshot_is_refused(self, text: bytes) -> None:
        with pytest.raises(msgspec.MsgspecError):
            decode(text)


class TestCatalogue:
    def test_names_are_unique_and_follow_the_rules(self) -> None:
        names = [metric.name for metric in catalogue.CATALOGUE]
        assert len(set(names)) == len(names)
        for metric in catalogue.CATALOGUE:
            assert metric.name.endswith("_total") == (metric.kind == "counter")
            assert bool(metric.bounds) == (metric.kind == "histogram")
            assert metric.bounds == tuple(sorted(metric.bounds))
            assert metric.help.endswith(".")
            # Of a gauge in 1 a collector would make one whose name ends with _ratio.
            assert metric.unit != "1"

    def test_the_last_queue_label_is_no_queue(self) -> None:
        """It may be one, and then it is counted with the rest of them: nothing breaks."""
        made = metrics()
        made.observe(Event("accepted", catalogue.OTHER, "b"))
        assert values(made, catalogue.PUBLISHED) == {("_other", "b"): 1}
