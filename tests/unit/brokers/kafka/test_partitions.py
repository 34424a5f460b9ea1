"""The records of a partition: acks behind an unacked one, gaps, the bound of what is held, and what was deleted."""

from __future__ import annotations

import random

import pytest

from babelgate.brokers.kafka.partitions import AckedOffsets, Partition


def filled(*offsets: int, base: int | None = 0, metadata: str | None = None, max_held: int = 100) -> Partition:
    partition = Partition(1, base, metadata, max_held)
    for offset in offsets:
        partition.arrive(offset, f"record {offset}")
    return partition


def leased(partition: Partition, limit: int = 1000) -> list[int]:
    return [offset for offset, _, _ in partition.take(limit)]


def acked(partition: Partition, *offsets: int) -> tuple[int, str]:
    """Ack the leased offsets in one commit that succeeds; what it records."""
    assert all([partition.begin(offset) for offset in offsets])
    recorded = partition.commit(offsets)
    partition.end(offsets, committed=True)
    return recorded


@pytest.mark.parametrize("base", [0, 1, 7, 8, 1003])
def test_the_next_member_skips_exactly_what_is_acked(base: int) -> None:
    chosen = random.Random(base)
    offsets = range(base, base + 300)
    one = filled(*offsets, base=base, max_held=1000)
    leased(one)
    done = set(chosen.sample(list(offsets), 150))
    recorded = (base, "")
    for group in (sorted(done)[::2], sorted(done)[1::2]):
        recorded = acked(one, *group)
    offset, metadata = recorded
    assert offset == next(each for each in offsets if each not in done)
    other = filled(*range(offset, base + 300), base=offset, metadata=metadata, max_held=1000)
    assert leased(other) == [each for each in offsets if each not in done]


@pytest.mark.parametrize("metadata", [None, "", "node-1", "bg1:%%%", "bg1:", "bg2:/w==", "bg1:a"])
def test_metadata_of_another_program_says_nothing(metadata: str | None) -> None:
    assert leased(filled(*range(20), metadata=metadata)) == list(range(20))


def test_a_commit_after_all_acks_has_no_metadata() -> None:
    partition = filled(*range(5))
    leased(partition)
    assert acked(partition, 1, 2, 3, 4)[0] == 0
    assert acked(partition, 0) == (5, "")
    assert partition.commit(()) == (5, "")
    assert partition.span == 0


def test_offsets_that_are_missing_in_the_log_hold_nothing_up() -> None:
    """As of transactions and of compaction."""
    partition = filled(3, 9, 40)
    assert leased(partition) == [3, 9, 40]
    assert acked(partition, 3)[0] == 9
    assert acked(partition, 9)[0] == 40
    partition.reached(44)
    assert acked(partition, 40) == (44, "")


def test_without_a_committed_offset_the_partition_begins_with_its_first_record() -> None:
    partition = filled(500, 501, base=None)
    assert leased(partition) == [500, 501]
    assert acked(partition, 500) == (501, "")


def test_no_more_than_max_held_behind_the_first_unacked_record() -> None:
    partition = filled(*range(30), max_held=10)
    assert leased(partition) == list(range(11))
    acked(partition, *range(1, 11))
    assert leased(partition) == []
    acked(partition, 0)
    assert leased(partition) == list(range(11, 22))


def test_a_sign_of_life_changes_what_is_committed_and_not_what_it_records() -> None:
    partition = filled(*range(20))
    leased(partition)
    acked(partition, 3, 12)
    commits = []
    for _ in range(7):
        assert partition.give_sign()
        commits.append(partition.commit(()))
    assert len(set(commits)) == 7
    for offset, metadata in commits:
        assert offset == 0
        assert leased(filled(*range(20), metadata=metadata)) == [each for each in range(20) if each not in (3, 12)]
    assert acked(partition, *(each for each in range(20) if each not in (3, 12))) == (20, "")


def test_no_sign_is_given_where_nothing_is_leased_or_messages_are_ready() -> None:
    partition = filled(*range(3))
    assert not partition.give_sign()
    leased(partition, 2)
    assert not partition.give_sign()
    leased(partition)
    assert partition.give_sign()
    acked(partition, 0, 1, 2)
    assert not partition.give_sign()


def test_ten_thousand_acks_fit_in_the_metadata_of_a_commit() -> None:
    partition = filled(*range(20_001), max_held=20_000)
    leased(partition, 20_001)
    offset, metadata = acked(partition, *range(1, 20_001))
    assert offset == 0
    assert len(metadata) <= 4096
    assert AckedOffsets(0, metadata).count_from(0) == 20_000


def test_a_commit_that_failed_leaves_the_leases() -> None:
    partition = filled(*range(3))
    leased(partition)
    assert partition.begin(1)
    assert partition.commit([1])[1]
    partition.end([1], committed=False)
    assert not partition.was_acked(1)
    assert partition.give_back(1)
    assert partition.take(1) == [(1, True, "record 1")]
    assert acked(partition, 0) == (1, "")


def test_what_is_being_acked_is_not_given_back() -> None:
    partition = filled(0)
    leased(partition)
    assert partition.begin(0)
    assert not partition.give_back(0)
    partition.commit([0])
    partition.end([0], committed=True)
    assert not partition.give_back(0)
    assert not partition.begin(0)
    assert partition.was_acked(0)


def test_a_record_comes_once() -> None:
    partition = filled(0, 1)
    assert not partition.arrive(1, "again")
    assert leased(partition) == [0, 1]


def test_deleted_records_are_dropped_and_leased_ones_stay() -> None:
    partition = filled(0, 1, 2, 3)
    assert leased(partition, 1) == [0]
    assert partition.drop_ready(3) == 2
    assert leased(partition) == [3]
    assert acked(partition, 3)[0] == 0
    assert acked(partition, 0) == (4, "")


def test_records_on_their_way_when_they_were_deleted_are_dropped() -> None:
    partition = filled(0)
    partition.drop_ready(3)
    assert not partition.arrive(1, "late")
    assert partition.arrive(3, "new")
    assert leased(partition) == [3]


def test_a_log_that_lost_what_was_committed_begins_anew() -> None:
    partition = filled(5, 6, base=100, metadata=AckedOffsets(100).metadata(100))
    assert leased(partition) == [5, 6]
    assert acked(partition, 6)[0] == 5
    assert acked(partition, 5) == (7, "")


def test_a_purge_was_of_the_log_that_was_lost() -> None:
    partition = filled(*range(5))
    partition.drop_ready(5)
    assert [partition.arrive(offset, "new") for offset in range(7)] == [True] * 7
    assert leased(partition) == list(range(7))
    assert acked(partition, *range(7)) == (7, "")


def test_only_a_log_that_was_cut_has_records_before_what_is_held() -> None:
    partition = filled(100, 101, base=100)
    assert not partition.was_cut(101)
    assert not partition.was_cut(102)
    assert partition.was_cut(0)
    assert leased(partition) == [100, 101]
    acked(partition, 100, 101)
    assert not partition.was_cut(0), "nothing is held: it begins here"


def test_offsets_that_retention_has_removed_take_no_memory() -> None:
    partition = filled(300_000_000, base=1_000)
    assert leased(partition) == [300_000_000]
    assert partition.begin(300_000_000)
    assert partition.commit([300_000_000]) == (300_000_001, "")
    assert partition._acked._bits.bit_length() <= 8
    partition.end([300_000_000], committed=True)
    assert partition.commit(()) == (300_000_001, "")
