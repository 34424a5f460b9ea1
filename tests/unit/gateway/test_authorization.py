"""Rights of callers on queues."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest

from babelgate.errors import BabelgateError, Forbidden, InvalidParameter
from babelgate.gateway.ack_tokens import TokenKey, TokenSealer
from babelgate.gateway.authorization import ANYONE, Caller, Right
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.model import DeadLetterFilter, LetterEdit, Settlement
from babelgate.gateway.redrive import RedriveOrder
from babelgate.gateway.routing import Router, Rule
from tests.harness.memory import MemoryBinding

SEND, LISTEN, MANAGE, OBSERVE = Right.SEND, Right.LISTEN, Right.MANAGE, Right.OBSERVE


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
        if (right, other) == (LISTEN, OBSERVE):
            caller.require(other, "mine")
        else:
            with pytest.raises(Forbidden, match=f"'{other.value}'.*'mine'"):
                caller.require(other, "mine")
        with pytest.raises(Forbidden):
            caller.require_anywhere(other)
    with pytest.raises(Forbidden):
        caller.require(right, "foreign")
    with pytest.raises(Forbidden):
        caller.require_any("foreign")


@pytest.mark.parametrize("right", [MANAGE, OBSERVE, SEND])
def test_no_right_implies_another(right: Right) -> None:
    """But listen, with which one may look."""
    caller = Caller("ops", {"*": frozenset({right})})
    for other in set(Right) - {right}:
        with pytest.raises(Forbidden):
            caller.require(other, "orders")


def test_one_of_several_rights_on_some_queue() -> None:
    caller = Caller("ops", {"a": frozenset({OBSERVE}), "b": frozenset({SEND})})
    caller.require_anywhere(MANAGE, OBSERVE)
    assert caller.patterns(MANAGE, OBSERVE) == ["a"]
    with pytest.raises(Forbidden, match="'listen' or 'manage' on some queue"):
        caller.require_anywhere(LISTEN, MANAGE)


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


def test_a_name_is_checked_before_rights_are_looked_up() -> None:
    for caller in (Caller("nobody", {}), Caller("some", {"*-*-eu": frozenset({SEND})}), ANYONE):
        for name in ("", "a b", "a" * 121, "-" * 60_000, "a/b", "q.dlq", ".."):
            with pytest.raises(InvalidParameter):
                caller.require(SEND, name)
            with pytest.raises(InvalidParameter):
                caller.require_any(name)


def test_anyone_may_do_everything() -> None:
    for right in Right:
        ANYONE.require(right, "whatever")
        ANYONE.require_anywhere(right)


def verbs(gateway: Gateway, caller: Caller) -> Mapping[str, tuple[Right, Callable[[], Awaitable[object]]]]:
    """Every verb on the queue "mine", and the right that it needs there."""

    async def validate() -> object:
        return await gateway.validate(caller, "mine", b"{}")

    letters, every = gateway.letters, RedriveOrder(dry_run=True)
    return {
        "publish": (SEND, lambda: gateway.publish(caller, "mine", b"{}")),
        "publish_many": (SEND, lambda: gateway.publish_many(caller, "mine", [])),
        "validate": (SEND, validate),
        "receive": (LISTEN, lambda: gateway.receive(caller, "mine")),
        "settle": (LISTEN, lambda: gateway.settle(caller, "mine", Settlement(acks=["x"]))),
        "peek": (OBSERVE, lambda: gateway.peek(caller, "mine", 1)),
        "letters.page": (OBSERVE, lambda: letters.page(caller, "mine", DeadLetterFilter(), 1, None)),
        "letters.groups": (OBSERVE, lambda: letters.groups(caller, "mine")),
        "letters.get": (OBSERVE, lambda: letters.get(caller, "mine", "0")),
        "letters.remove": (MANAGE, lambda: letters.remove(caller, "mine", ["0"])),
        "letters.redrive": (MANAGE, lambda: letters.redrive(caller, "mine", every, None, None)),
        "letters.redrive_one": (MANAGE, lambda: letters.redrive_one(caller, "mine", "0", None, None, False, None)),
        "letters.start_job": (MANAGE, lambda: letters.start_job(caller, "mine", every, None, None)),
        "letters.job": (OBSERVE, lambda: letters.job(caller, "mine", "0")),
        "letters.jobs_of": (OBSERVE, lambda: letters.jobs_of(caller, "mine")),
        "letters.cancel_job": (MANAGE, lambda: letters.cancel_job(caller, "mine", "0")),
        "letters.resume_job": (MANAGE, lambda: letters.resume_job(caller, "mine", "0", None)),
        "purge": (MANAGE, lambda: gateway.purge(caller, "mine")),
        "letters.purge": (MANAGE, lambda: letters.purge(caller, "mine")),
    }


def new_gateway() -> tuple[Gateway, MemoryBinding]:
    binding = MemoryBinding()
    router = Router([Rule("mine", binding), Rule("other", binding)])
    return Gateway({"memory": binding}, router, TokenSealer([TokenKey("test", b"k" * 32)])), binding


async def is_forbidden(call: Callable[[], Awaitable[object]]) -> bool:
    try:
        await call()
    except Forbidden:
        return True
    except BabelgateError:
        return False
    return False


@pytest.mark.parametrize("verb", verbs(new_gateway()[0], ANYONE))
async def test_every_verb_needs_its_right_before_it_touches_the_broker(verb: str) -> None:
    gateway, binding = new_gateway()
    needed, _ = verbs(gateway, ANYONE)[verb]
    for right in Right:
        holder = Caller("holder", {"mine": frozenset({right})})
        has_it = right is needed or (right, needed) == (LISTEN, OBSERVE)
        assert await is_forbidden(verbs(gateway, holder)[verb][1]) is not has_it
    stranger = Caller("stranger", {"other": frozenset(Right)})
    binding.calls.clear()
    assert await is_forbidden(verbs(gateway, stranger)[verb][1])
    assert not binding.calls


@pytest.mark.parametrize("rights", [{MANAGE}, {SEND}, {SEND, LISTEN}], ids=["manage", "send", "send and listen"])
async def test_an_edit_needs_the_rights_to_manage_and_to_send(rights: set[Right]) -> None:
    gateway, binding = new_gateway()
    edit, holder = LetterEdit(b"{}"), Caller("holder", {"mine": frozenset(rights)})
    letters = gateway.letters
    assert await is_forbidden(lambda: letters.preview(holder, "mine", "0", None, edit, None))
    assert await is_forbidden(lambda: letters.redrive_one(holder, "mine", "0", None, edit, False, None))
    assert not binding.calls


async def test_an_access_is_good_for_its_caller_and_its_right_alone() -> None:
    gateway, binding = new_gateway()
    sender = Caller("sender", {"mine": frozenset({SEND})})
    access = gateway.access(sender, SEND, "mine")
    assert gateway.access(sender, SEND, access) is access
    binding.calls.clear()
    assert await is_forbidden(lambda: gateway.receive(sender, access))
    assert await is_forbidden(lambda: gateway.publish(Caller("other", {}), access, b"{}"))
    assert not binding.calls
    assert not await is_forbidden(lambda: gateway.publish(sender, access, b"{}"))


async def test_a_redrive_to_another_queue_needs_the_right_to_send_there() -> None:
    gateway, _ = new_gateway()
    every = RedriveOrder(dry_run=True)

    def redrive(caller: Caller) -> Callable[[], Awaitable[object]]:
        return lambda: gateway.letters.redrive(caller, "mine", every, "other", None)

    assert await is_forbidden(redrive(Caller("a", {"mine": frozenset(Right)})))
    assert await is_forbidden(redrive(Caller("b", {"*": frozenset({SEND, LISTEN})})))
    assert not await is_forbidden(redrive(Caller("c", {"mine": frozenset({MANAGE}), "other": frozenset({SEND})})))


async def test_an_overview_shows_what_the_caller_has_a_right_on() -> None:
    gateway, _ = new_gateway()
    listener = Caller("listener", {"other": frozenset({LISTEN})})
    listed, _ = await gateway.overview.queues(listener, 100, None)
    assert [info.queue for info in listed] == ["other"]
    assert (await gateway.overview.queue(listener, "other")).queue == "other"
    assert await is_forbidden(lambda: gateway.overview.queue(listener, "mine"))
    assert await is_forbidden(lambda: gateway.overview.brokers(listener))
    listed, _ = await gateway.overview.queues(ANYONE, 100, None)
    assert [info.queue for info in listed] == ["mine", "other"]
    assert [info.broker for info in await gateway.overview.brokers(ANYONE)] == ["memory"]


ROUTED = {"orders.eu.*": "eu", "orders.*": "shop", "mails": "mail", "*.log": "logs"}


@pytest.mark.parametrize(
    ("patterns", "default", "shown"),
    [
        (["*"], True, {"eu", "shop", "mail", "logs", "rest", "unused"}),
        (["mails"], True, {"mail"}),
        (["mails.old"], True, {"rest"}),
        (["mails.old"], False, set()),
        (["orders.us"], True, {"shop"}),
        (["orders.eu.north"], True, {"eu"}),
        (["orders.*"], True, {"eu", "shop"}),
        (["orders.us.*"], True, {"shop"}),
        (["orders.eu.*"], True, {"eu"}),
        (["mail*"], True, {"mail", "rest"}),
        (["mail*"], False, {"mail"}),
        (["mails", "a.log"], True, {"mail", "logs"}),
        # Only some of these are logs: the route of all of them is the default.
        (["a.*"], True, {"rest"}),
        (["a.*"], False, set()),
    ],
)
async def test_brokers_are_shown_for_the_queues_that_one_may_manage(
    patterns: list[str], default: bool, shown: set[str]
) -> None:
    bindings = {name: MemoryBinding(name) for name in [*ROUTED.values(), "rest", "unused"]}
    rules = [Rule(match, bindings[broker]) for match, broker in ROUTED.items()]
    router = Router(rules, Rule("*", bindings["rest"]) if default else None)
    gateway = Gateway(bindings, router, TokenSealer([TokenKey("test", b"k" * 32)]))
    caller = Caller("ops", {**dict.fromkeys(patterns, frozenset({MANAGE})), "other*": frozenset({SEND, LISTEN})})
    assert {info.broker for info in await gateway.overview.brokers(caller)} == shown


async def test_an_ending_looks_at_the_clock_and_happens_once() -> None:
    now = [1_000_000]
    caller = Caller("brief", {}, ends_at=1_060.0)
    calls: list[int] = []
    happened = asyncio.Event()

    def call() -> None:
        calls.append(now[0])
        happened.set()

    ending = caller.when_ended(call, lambda: now[0])
    cancelled = caller.when_ended(lambda: calls.append(-1), lambda: now[0])
    cancelled.cancel()
    ending._look()
    assert not calls and ending._timer is not None
    assert 50 < ending._timer.when() - asyncio.get_running_loop().time() <= 60
    now[0] = 1_059_999
    # The timer is as long as the rest of the time.
    ending._look()
    now[0] = 1_060_000
    await asyncio.wait_for(happened.wait(), 60)
    caller.revoke()
    assert calls == [1_060_000]
