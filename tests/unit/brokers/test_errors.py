"""One translation for the errors of all clients, by class, by content, and by what may have been written."""

from __future__ import annotations

import asyncio

import pytest

from babelgate.brokers.bounded import answering
from babelgate.brokers.errors import ErrorMap, failure_for_each, nothing_written, translating
from babelgate.errors import BabelgateError, BrokerRejected, BrokerUnavailable, LeaseLost, OutcomeUnknown, StorageFull


class VendorError(Exception):
    pass


class Lost(VendorError):
    pass


class LostAtOnce(Lost):
    pass


class Refused(VendorError):
    pass


MAP = ErrorMap(
    by_class={VendorError: BrokerRejected, Lost: OutcomeUnknown, OSError: OutcomeUnknown},
    reason=lambda error: str(error).rstrip("."),
    by_content=lambda error: StorageFull if "no space" in str(error) else None,
)


@pytest.mark.parametrize(
    ("error", "written", "expected"),
    [
        (VendorError("x."), False, BrokerRejected),
        (Refused("x."), True, BrokerRejected),
        (Lost("x."), True, OutcomeUnknown),
        (Lost("x."), False, BrokerUnavailable),
        (LostAtOnce("x."), True, OutcomeUnknown),
        (LostAtOnce("no space."), True, StorageFull),
        (ConnectionRefusedError("x."), False, BrokerUnavailable),
        (KeyError("x"), True, OutcomeUnknown),
        (KeyError("x"), False, BrokerUnavailable),
    ],
    ids=repr,
)
def test_translation(error: Exception, written: bool, expected: type[BabelgateError]) -> None:
    translated = MAP.translate("cache", error, written=written)
    assert type(translated) is expected
    assert translated.broker == "cache" and not translated.reason.endswith(".")


def test_an_error_of_this_project_stays() -> None:
    error = LeaseLost()
    assert MAP.translate("cache", error, written=True) is error


def test_another_kind_for_unknown_classes() -> None:
    other = ErrorMap({}, str, otherwise=BrokerRejected)
    assert isinstance(other.translate("cache", OverflowError("too big"), written=True), BrokerRejected)


def test_a_call_that_writes_nothing_has_a_known_outcome() -> None:
    known = nothing_written(OutcomeUnknown(broker="cache", reason="lost"))
    assert type(known) is BrokerUnavailable and (known.broker, known.reason) == ("cache", "lost")
    rejected = BrokerRejected(broker="cache", reason="no")
    assert nothing_written(rejected) is rejected


def test_a_failure_for_each_item_has_no_frames() -> None:
    try:
        raise BrokerUnavailable(broker="cache", reason="lost")
    except BrokerUnavailable as error:
        outcomes = failure_for_each(error, 3)
    assert outcomes == [outcomes[0]] * 3 and outcomes[0].__traceback__ is None
    assert failure_for_each(outcomes[0], 0) == []


def translate(error: BaseException, broker: str, *, written: bool) -> BabelgateError:
    return MAP.translate(broker, error, written=written)


@pytest.mark.parametrize(("written", "expected"), [(True, OutcomeUnknown), (False, BrokerUnavailable)])
def test_a_block_raises_the_errors_of_a_client_as_those_of_this_project(
    written: bool, expected: type[BabelgateError]
) -> None:
    cause = Lost("x.")
    with pytest.raises(expected) as caught, translating(translate, "cache", written=written):
        raise cause
    assert caught.value.__cause__ is cause


@pytest.mark.parametrize("error", [LeaseLost(), KeyboardInterrupt()], ids=["its own", "no error"])
def test_a_block_leaves_what_is_no_error_of_a_client(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, translating(translate, "cache"):
        raise error
    assert caught.value is error
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(("written", "expected"), [(True, OutcomeUnknown), (False, BrokerUnavailable)])
async def test_a_block_without_an_answer_ends(written: bool, expected: type[BabelgateError]) -> None:
    with pytest.raises(expected, match=r"no answer within 0\.01 s"):
        async with answering(0.01, translate, "cache", written=written):
            await asyncio.Event().wait()
    with pytest.raises(expected, match="too late"):
        async with answering(0.01, translate, "cache", written=written, reason="too late"):
            await asyncio.Event().wait()


async def test_a_block_with_an_answer_raises_its_own_errors() -> None:
    async with answering(0.01, translate, "cache") as bound:
        bound.reschedule(None)
        await asyncio.sleep(0.02)
    with pytest.raises(StorageFull):
        async with answering(30, translate, "cache"):
            raise Lost("no space.")
    with pytest.raises(LeaseLost):
        async with answering(30, translate, "cache"):
            raise LeaseLost
