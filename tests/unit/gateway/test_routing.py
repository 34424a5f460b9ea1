"""Queue names to routes, and what a route lets through."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

import pytest

from babelgate.brokers.batcher import BATCH_BYTES
from babelgate.brokers.batching import batches
from babelgate.brokers.binding import NativeQueue
from babelgate.brokers.kafka.binding import connect as connect_kafka
from babelgate.brokers.sqs.binding import connect
from babelgate.clock import now_ms
from babelgate.errors import ConfigError, InvalidParameter, QueueNotFound, UnsupportedByBroker
from babelgate.gateway.page_sizes import PAGE_BYTES, affordable
from babelgate.gateway.redacting import described
from babelgate.gateway.routing import Policy, Route, Router, Rule
from babelgate.privacy.ciphers import BodyCipher
from babelgate.privacy.protection import Protection
from babelgate.privacy.redaction import Redaction
from tests.harness.memory import MemoryBinding, lacking

FIRST, SECOND = MemoryBinding("first"), MemoryBinding("second")


def route(**abilities: object) -> Route:
    binding = MemoryBinding("memory", lacking(**abilities))
    return Rule("*", binding, Policy(lease_seconds=45)).route("orders")


def test_an_exact_name_wins_over_patterns_and_patterns_go_in_order() -> None:
    router = Router(
        [Rule("orders.*", FIRST), Rule("*.new", SECOND), Rule("orders.new", SECOND, native_name="exact")],
        default=Rule("default", SECOND, native_name="fallback"),
    )
    assert router.route("orders.new").native.name == "exact"
    assert router.route("orders.old").broker == "first"
    assert router.route("mails.new").native.name == "mails.new"
    assert router.route("mails.new").broker == "second"
    assert router.route("mails.old").native.name == "fallback"
    assert router.route("default").native.name == "fallback"


@pytest.mark.parametrize("private", [Policy(redaction=Redaction(["/data/card"])), Policy(encrypt=True)])
def test_no_other_name_leads_to_what_is_redacted_or_encrypted(private: Policy) -> None:
    rules = [
        Rule("payments", FIRST, private, native_name="pay"),
        Rule("orders.*", FIRST, private, native_name="shop.{queue}"),
        Rule("plain", FIRST, native_name="open"),
        Rule("other.*", SECOND),
    ]
    router = Router(rules, Rule("*", FIRST))
    for queue in ("pay", "shop.orders.eu"):
        with pytest.raises(UnsupportedByBroker) as refusal:
            router.route(queue)
        assert refusal.value.code == "queue_name_unsupported"
    assert router.route("payments").native.name == "pay"
    assert router.route("orders.eu").native.name == "shop.orders.eu"
    for queue in ("open", "shop.mails", "pay2", "other.pay"):
        assert router.route(queue).native.name == queue
    switched = Router([])
    switched.switch(router, [])
    with pytest.raises(UnsupportedByBroker):
        switched.route("pay")


def test_nor_does_one_to_its_dead_letters_and_delayed_messages() -> None:
    kafka = connect_kafka("kafka", "kafka://127.0.0.1:9092", {}, now_ms)
    private = Policy(redaction=Redaction(["/data/card"]))
    router = Router([Rule("payments", kafka, private), Rule("a*", kafka, private)], Rule("*", kafka))
    for queue in ("payments.retry.1", "payments.retry.3"):
        with pytest.raises(UnsupportedByBroker):
            router.route(queue)
    assert router.route("payments.retry.x").native.name == "payments.retry.x"
    assert router.route("alpha.retry.1").policy is private, "those of one pattern have its policy"


def test_without_a_default_an_unmatched_queue_does_not_exist() -> None:
    router = Router([Rule("orders.*", FIRST)])
    with pytest.raises(QueueNotFound) as refusal:
        router.route("mails")
    assert refusal.value.queue == "mails"


def test_a_named_route_does_not_inherit_the_policy_of_the_default() -> None:
    router = Router([Rule("orders", FIRST)], Rule("*", FIRST, Policy(max_attempts=2)))
    assert router.route("orders").policy == Policy()
    assert router.route("mails").policy.max_attempts == 2


def test_the_native_name_is_built_from_the_queue() -> None:
    rule = Rule("orders.*", FIRST, native_name="shop.{queue}.v1")
    assert rule.route("orders.new").native.name == "shop.orders.new.v1"


def test_an_unknown_option_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError) as refusal:
        Rule("*", FIRST, options={"colour": "red"}).route("orders")
    assert refusal.value.key == "colour"


@pytest.mark.parametrize("name", ["a", "A.b-c_9", "x" * 120, "-", "dlq", "my.dlqs"])
def test_a_legal_name(name: str) -> None:
    assert Router([], Rule("*", FIRST)).route(name).queue == name


@pytest.mark.parametrize("name", ["", "x" * 121, "a b", "a/b", "a\n", "é", "a*", "a:b", "my.dlq"])
def test_an_illegal_name_is_refused_even_when_a_rule_would_match(name: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        Router([], Rule("*", FIRST)).route(name)
    assert refusal.value.name == "queue"


def test_a_name_that_the_broker_cannot_have_is_no_malformed_one() -> None:
    aws = connect("aws", "sqs://eu-west-1", {}, now_ms)
    router = Router([], Rule("*", aws))
    with pytest.raises(UnsupportedByBroker, match=r"The broker 'aws' cannot have .* no dot") as no:
        router.route("orders.created")
    assert no.value.problem_code == "queue_name_unsupported"
    assert router.queue_of(aws, "orders.created") is None
    assert router.route("orders").native.name == "orders"


def test_a_route_is_found_again_after_very_many_others() -> None:
    router = Router([Rule("orders", FIRST)], Rule("*", SECOND))
    before = router.route("orders")
    for n in range(10_001):
        router.route(f"q.{n}")
    assert router.route("orders") == before


def test_configured_names_are_the_exact_ones_in_order() -> None:
    router = Router([Rule("b", FIRST), Rule("a.*", FIRST), Rule("a", FIRST)], Rule("*", FIRST))
    assert router.configured() == ["b", "a"]


@pytest.mark.parametrize(
    ("attempts", "delay"), [(0, 1), (1, 1), (2, 10), (3, 60), (4, 60), (1000, 60)], ids=lambda value: str(value)
)
def test_the_last_backoff_repeats(attempts: int, delay: float) -> None:
    assert Policy(backoff_seconds=(1, 10, 60)).backoff(attempts) == delay


def test_no_backoff_is_at_once() -> None:
    assert Policy().backoff(3) == 0


@pytest.mark.parametrize("delay", [-1, -0.001, math.inf, -math.inf, math.nan])
def test_a_delay_that_is_none_is_refused(delay: float) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        route().check_delay(delay)
    assert refusal.value.name == "delay_seconds"


def test_a_delay_up_to_the_maximum_of_the_broker() -> None:
    route(max_delay_seconds=None).check_delay(1e9)
    route(max_delay_seconds=900).check_delay(900)
    with pytest.raises(UnsupportedByBroker) as refusal:
        route(max_delay_seconds=900).check_delay(900.5)
    assert (refusal.value.problem_code, refusal.value.maximum) == ("delay_too_long", 900)
    assert "900.5" in refusal.value.detail


def test_a_broker_without_delay_refuses_any() -> None:
    route(max_delay_seconds=0).check_delay(0)
    with pytest.raises(UnsupportedByBroker):
        route(max_delay_seconds=0).check_delay(0.1)


@pytest.mark.parametrize("lease", [0, -1, math.inf, math.nan])
def test_a_lease_that_is_none_is_refused(lease: float) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        route().lease_seconds(lease)
    assert refusal.value.name == "lease_seconds"


def test_a_lease_up_to_the_maximum_of_the_broker() -> None:
    leasing = route(max_lease_seconds=300)
    assert leasing.lease_seconds(None) == 45
    assert leasing.lease_seconds(300) == 300
    with pytest.raises(UnsupportedByBroker) as refusal:
        leasing.lease_seconds(301)
    assert (refusal.value.problem_code, refusal.value.maximum) == ("lease_too_long", 300)


def test_a_refusal_tells_long_times_apart() -> None:
    with pytest.raises(UnsupportedByBroker) as refusal:
        route(max_delay_seconds=31_536_000.0).check_delay(31_536_001)
    assert "at most 31536000 s, not 31536001 s." in refusal.value.detail
    with pytest.raises(UnsupportedByBroker) as refusal:
        route(max_lease_seconds=31_536_000.0).lease_seconds(31_536_000.5)
    assert "at most 31536000 s, not 31536000.5 s." in refusal.value.detail


@pytest.mark.parametrize(("count", "sizes"), [(0, []), (1, [1]), (3, [3]), (4, [3, 1]), (7, [3, 3, 1])])
def test_chunks_keep_all_in_order(count: int, sizes: list[int]) -> None:
    parts = list(batches(range(count), 3))
    assert [len(part) for part in parts] == sizes
    assert [item for part in parts for item in part] == list(range(count))


@pytest.mark.parametrize(("said", "count", "attempts"), [(2, 1, 3), (-5, 1, 1), (2**63 - 1, 1, 2**63 - 1)])
def test_what_a_body_and_its_broker_say_is_added_within_an_int64(said: int, count: int, attempts: int) -> None:
    """The journal and the dead-letter block hold no more."""
    assert route(delivery_count="added").attempts(said, count) == attempts


def test_a_declared_number_of_attempts_replaces_that_of_the_body() -> None:
    """Also a lower one: it is authoritative on Kafka. The broker's own count still raises it."""
    assert route(delivery_count="none").attempts(5, 0, 2) == 2
    assert route(delivery_count="none").attempts(5, 0, None) == 5
    assert route(delivery_count="zero_based").attempts(5, 3, 2) == 3


@pytest.mark.parametrize(
    ("weights", "sizes"),
    [
        ([], []),
        ([1] * 7, [3, 3, 1]),
        ([BATCH_BYTES, 1, 1], [1, 2]),
        ([1, BATCH_BYTES, 1], [1, 1, 1]),
        ([BATCH_BYTES // 2, BATCH_BYTES // 2, 1], [2, 1]),
        ([2 * BATCH_BYTES, 2 * BATCH_BYTES], [1, 1]),
    ],
)
def test_chunks_of_large_items_are_short(weights: list[int], sizes: list[int]) -> None:
    parts = list(batches(weights, 3, BATCH_BYTES, weights))
    assert [len(part) for part in parts] == sizes
    assert [weight for part in parts for weight in part] == weights


def test_as_many_are_asked_for_as_fit_a_page() -> None:
    assert affordable(0, 0) == affordable(0, 0, 1) == 8
    assert affordable(4, 4 * 1_048_576) == 16
    assert affordable(4, 4 * PAGE_BYTES) == 1
    assert affordable(2, 0) > 1_000_000


class Prefixing(MemoryBinding):
    """A broker that puts a prefix before the names of its queues, and has a name for itself."""

    def native_queue(self, name: str, options: Mapping[str, object]) -> NativeQueue:
        if name == "own":
            raise ConfigError(key="native_name", reason="reserved")
        return NativeQueue(f"queues:{name}")


def test_a_native_name_leads_back_to_its_queue() -> None:
    broker = Prefixing("broker")
    router = Router(
        [
            Rule("mails", broker, native_name="fixed"),
            Rule("orders.*", broker, native_name="shop.{queue}.v1"),
            Rule("twice.*", broker, native_name="{queue}-{queue}"),
            Rule("other.*", FIRST),
        ],
        default=Rule("default", broker),
    )
    for queue in ("mails", "orders.new", "twice.a", "anything"):
        assert router.queue_of(broker, router.route(queue).native.name) == queue
    # A second route would lead to the same native queue.
    assert router.queue_of(broker, "queues:shop.orders.new.v1") == "orders.new"
    # A name that this route's pattern does not match, or that another broker has.
    assert router.queue_of(broker, "queues:other.a") is None
    assert router.queue_of(FIRST, "other.a") == "other.a"
    assert router.queue_of(FIRST, "queues:anything") is None
    assert router.queue_of(broker, "queues:twice.a-twice.b") is None
    for foreign in ("anything", "queues:", "queues:a b", "queues:mails.dlq", "queues:own", "queues:" + "x" * 121):
        assert router.queue_of(broker, foreign) is None


def test_without_a_default_other_native_names_lead_nowhere() -> None:
    router = Router([Rule("orders.*", FIRST)])
    assert router.queue_of(FIRST, "orders.new") == "orders.new"
    assert router.queue_of(FIRST, "mails") is None


def test_what_a_broker_lists_leaves_the_routes_in_use_alone() -> None:
    """It may list more queues than there is room for routes."""
    router = Router([Rule("orders.*", FIRST)])
    used = router.route("orders.used")
    found = [router.found(FIRST, f"orders.{number}") for number in range(10_000)]
    assert all(each is not None and each[0] == each[1].name for each in found)
    assert router.route("orders.used") is used


def test_the_dead_letters_of_configured_queues_are_known() -> None:
    class Beside(MemoryBinding):
        def native_queue(self, name: str, options: Mapping[str, object]) -> NativeQueue:
            return NativeQueue(name, dead_letters=f"{name}:dead")

    broker = Beside("broker")
    router = Router([Rule("mails", broker, native_name="post"), Rule("orders.*", broker), Rule("other", FIRST)])
    assert router.dead_letters(broker) == {"post:dead"}
    assert router.dead_letters(FIRST) == frozenset()


def test_a_policy_is_described_as_plain_data() -> None:
    """As ``check-config --json`` prints it, also where bodies are redacted and encrypted."""
    redaction = Redaction(["/data/card"])
    policy = Policy(redaction=redaction, encrypt=True, protection=Protection(redaction, BodyCipher()))
    found = json.loads(json.dumps(described(policy)))
    assert found == json.loads(json.dumps(described(Policy(encrypt=True))))
    assert found["encrypt"] is True and not {"redaction", "protection"} & found.keys()
