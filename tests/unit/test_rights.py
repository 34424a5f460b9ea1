"""Who may do what to which queue."""

from __future__ import annotations

import pytest

from app.errors import Forbidden
from app.rights import ANYONE, Caller, Right, pattern

SEND, LISTEN, MANAGE = Right.SEND, Right.LISTEN, Right.MANAGE


@pytest.mark.parametrize(
    ("text", "queue", "matches"),
    [
        ("orders", "orders", True),
        ("orders", "orders.new", False),
        ("orders", "my.orders", False),
        ("orders.*", "orders.new", True),
        ("orders.*", "orders.", True),
        ("orders.*", "orders", False),
        ("orders.*", "ordersXnew", False),
        ("*.new", "orders.new", True),
        ("*.new", "orders.new.eu", False),
        ("a*b*c", "a.b.c", True),
        ("a*b*c", "abc", True),
        ("a*b*c", "acb", False),
        ("*", "anything", True),
        ("[ab]", "a", False),
        ("a?", "ab", False),
        ("Orders", "orders", False),
        ("orders", "orders\n", False),
    ],
)
def test_a_pattern_knows_the_star_and_nothing_else(text: str, queue: str, matches: bool) -> None:
    assert bool(pattern(text).fullmatch(queue)) is matches


def test_rights_are_the_union_of_the_patterns_that_match() -> None:
    caller = Caller("shop", {"orders.*": frozenset({SEND}), "*.new": frozenset({LISTEN}), "x": frozenset({MANAGE})})
    assert caller.rights("orders.new") == {SEND, LISTEN}
    assert caller.rights("orders.old") == {SEND}
    assert caller.rights("mails.new") == {LISTEN}
    assert caller.rights("mails.old") == frozenset()


@pytest.mark.parametrize("right", list(Right))
def test_a_right_is_required_on_the_queue_itself(right: Right) -> None:
    caller = Caller("shop", {"mine": frozenset({right})})
    caller.require(right, "mine")
    caller.require_any("mine")
    caller.require_anywhere(right)
    for other in set(Right) - {right}:
        with pytest.raises(Forbidden, match=f"'{other.value}'.*'mine'"):
            caller.require(other, "mine")
        with pytest.raises(Forbidden):
            caller.require_anywhere(other)
    with pytest.raises(Forbidden):
        caller.require(right, "foreign")
    with pytest.raises(Forbidden):
        caller.require_any("foreign")


def test_no_right_implies_another() -> None:
    manager = Caller("ops", {"*": frozenset({MANAGE})})
    with pytest.raises(Forbidden):
        manager.require(LISTEN, "orders")
    with pytest.raises(Forbidden):
        manager.require(SEND, "orders")


def test_a_caller_without_rights_may_do_nothing() -> None:
    nobody = Caller("nobody", {})
    assert nobody.rights("orders") == frozenset()
    with pytest.raises(Forbidden):
        nobody.require_any("orders")


def test_an_answer_does_not_depend_on_what_was_asked_before() -> None:
    caller = Caller("shop", {"q.1*": frozenset({SEND})})
    names = [f"q.{n}" for n in range(10_500)]
    asked = [bool(caller.rights(name)) for name in names]
    again = [bool(caller.rights(name)) for name in names]
    assert asked == again == [name.startswith("q.1") for name in names]


def test_anyone_may_do_everything() -> None:
    for right in Right:
        ANYONE.require(right, "whatever")
        ANYONE.require_anywhere(right)
