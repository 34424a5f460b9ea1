"""Of the queues that a broker lists, those that hold the dead letters of others are left out."""

from __future__ import annotations

from babelgate.brokers.names import queue_names


def test_queues_of_dead_letters_are_left_out_and_a_queue_of_such_a_name_alone_stays() -> None:
    assert queue_names(["b", "a.dlq", "a", "c.dlq", "a.dlq.dlq", ".dlq"], ".dlq") == [".dlq", "a", "b", "c.dlq"]
    assert queue_names([], ".dlq") == []
