"""What a process takes on at a time."""

from __future__ import annotations

import pytest

from babelgate.errors import Overloaded
from babelgate.gateway.admission import SMALL_BYTES, Admission, Bounds, Pool

NARROW = Bounds(
    max_publishes_in_flight=4,
    max_publish_bytes_in_flight=1000,
    max_other_bytes_in_flight=100_000,
    max_receives_in_flight=2,
    max_unread_bytes_in_flight=1000,
    max_held_leases=10,
    max_held_bytes=1000,
)


def test_a_pool_gives_up_to_its_limit_and_takes_back() -> None:
    pool = Pool("things", 10)
    pool.add("a", 10)
    with pytest.raises(Overloaded, match="10 things"):
        pool.check("a", 1)
    pool.add("a", -1)
    pool.check("a", 1)
    with pytest.raises(Overloaded):
        pool.check("a", 2)


def test_one_of_several_brokers_gets_half() -> None:
    pool = Pool("things", 10, brokers=2)
    pool.add("slow", 5)
    with pytest.raises(Overloaded):
        pool.check("slow", 1)
    pool.add("quick", 4)
    pool.check("quick", 1)


def test_the_limit_holds_for_all_brokers_together() -> None:
    pool = Pool("things", 10, brokers=3)
    for broker in ("a", "b"):
        pool.add(broker, 5)
    pool.check("c", 1)
    pool.add("c", 1)
    with pytest.raises(Overloaded):
        pool.check("c", 1)


def test_where_nothing_is_taken_the_largest_request_is_served() -> None:
    admission = Admission(NARROW)
    with admission.publish("a", 5000):
        with pytest.raises(Overloaded):
            admission.publish("a", 1)
        with admission.publish("b", 5000):
            pass


def test_publishes_are_counted_until_they_end() -> None:
    admission = Admission(NARROW)
    for _ in range(3):
        tickets = [admission.publish("a", 1) for _ in range(4)]
        with pytest.raises(Overloaded, match="publishes"):
            admission.publish("a", 1)
        for ticket in tickets:
            with ticket:
                pass


def test_a_refused_publish_leaves_nothing_behind() -> None:
    admission = Admission(NARROW)
    with admission.publish("a", 900):
        for _ in range(10):
            with pytest.raises(Overloaded, match="bytes"):
                admission.publish("a", 200)
        with admission.publish("a", 100):
            pass


def test_a_body_of_unknown_length_takes_room_as_it_grows() -> None:
    admission = Admission(NARROW)
    with admission.publish("a", 400), admission.publish("a", 0) as growing:
        growing.grow(300)
        growing.grow(600)
        with pytest.raises(Overloaded):
            growing.grow(601)
    with admission.publish("a", 1000):
        pass


def test_receives_are_bounded_by_number_and_by_what_their_clients_have_yet_to_read() -> None:
    admission = Admission(NARROW)
    with admission.receive("a") as first, admission.receive("a"):
        with pytest.raises(Overloaded, match="receives"):
            admission.receive("a")
        first.hold(5000)
    with admission.receive("a") as unread:
        unread.hold(1000)
        with pytest.raises(Overloaded, match="not read"):
            admission.check_handing_out("a", 0, 0)
        admission.check_handing_out("b", 0, 0)
    admission.check_handing_out("a", 0, 0)


def test_no_publish_keeps_another_call_out() -> None:
    admission = Admission(NARROW)
    with admission.publish("a", 1000), admission.other("a", 100_000), pytest.raises(Overloaded):
        admission.other("a", SMALL_BYTES + 1)


def test_a_small_call_is_taken_on_whatever_there_is() -> None:
    admission = Admission(NARROW)
    with admission.other("a", 100_000):
        with admission.other("a", SMALL_BYTES), admission.other("a", 0) as growing:
            growing.grow(SMALL_BYTES)
            with pytest.raises(Overloaded):
                growing.grow(SMALL_BYTES + 1)
        with admission.other("a", 1):
            pass
    with admission.other("a", 100_000):
        pass


@pytest.mark.parametrize(("brokers", "count", "size"), [(1, 10, 0), (1, 1, 1000), (2, 5, 0), (3, 1, 500)])
def test_leases_that_are_held_keep_receives_out(brokers: int, count: int, size: int) -> None:
    admission = Admission(NARROW, brokers)
    admission.check_handing_out("a", max(count - 1, 0), max(size - 1, 0))
    with pytest.raises(Overloaded, match="held"):
        admission.check_handing_out("a", count, size)
