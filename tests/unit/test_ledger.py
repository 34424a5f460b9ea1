"""The ledger of the replicas' clients: it must find what it looks for, and accuse nobody else."""

from __future__ import annotations

import pytest

from tests.harness.ledger import Handed, Ledger, Verb

LEASE = 2.0


class Story:
    """A ledger on a clock that moves a tenth of a second with every event."""

    def __init__(self, *, owned: bool = False, acks_repeat: bool = True) -> None:
        self.time = 100.0
        self.ledger = Ledger(
            LEASE,
            owned=owned,
            acks_repeat=acks_repeat,
            clock=lambda: self.time,
            unix=lambda: self.time,
        )

    def wait(self, seconds: float = 0.1) -> None:
        self.time += seconds

    def publish(self, status: int | None = 201) -> None:
        self.wait()
        self.ledger.published(1, status)

    def receive(self, waited: float = 0.05, leased: float = LEASE) -> Handed:
        """``waited`` seconds for the answer, whose lease ends ``leased`` seconds after it was asked for."""
        self.wait()
        asked = self.time - waited
        return self.ledger.handed(1, "token", asked, asked + leased)

    def settle(self, handed: Handed, verb: Verb, status: int | None) -> None:
        self.wait()
        answered = self.ledger.sending(handed, verb)
        self.wait()
        answered(status)

    def wrongs(self, *dead: int) -> list[str]:
        return [wrong.partition(": ")[2] for wrong in self.ledger.verdict(dead)]


@pytest.fixture(params=[False, True], ids=["anywhere", "owned"])
def story(request: pytest.FixtureRequest) -> Story:
    return Story(owned=request.param)


@pytest.fixture
def one(story: Story) -> Handed:
    """The delivery of a message that was accepted."""
    story.publish()
    return story.receive()


@pytest.mark.parametrize("unknown", [None, 503, 504])
def test_a_life_without_a_wrong(story: Story, one: Handed, unknown: int | None) -> None:
    story.settle(one, "nack", 200)
    story.settle(two := story.receive(), "extend", 200)
    story.wait(LEASE + 1)
    story.settle(two, "ack", 409)
    story.settle(three := story.receive(), "ack", unknown)
    story.settle(three, "ack", 200)
    assert story.wrongs() == []


def test_an_accepted_message_that_is_nowhere_is_lost(story: Story) -> None:
    story.publish()
    assert story.wrongs() == ["accepted and lost"]


@pytest.mark.parametrize("settle", [("ack", 409), ("nack", 200), ("nack", None), ("extend", 200)])
def test_a_message_that_was_delivered_and_not_settled_is_lost(
    story: Story, one: Handed, settle: tuple[Verb, int | None]
) -> None:
    story.wait(LEASE)
    story.settle(one, *settle)
    assert story.wrongs() == ["accepted, delivered and lost"]


@pytest.mark.parametrize("leased", [LEASE, LEASE - 0.5])
def test_a_lease_ends_when_its_client_was_told(story: Story, leased: float) -> None:
    """A reserve that began for somebody else has begun its lease as well."""
    story.publish()
    story.settle(story.receive(waited=0.6, leased=leased), "extend", 409)
    story.wait(1.0)
    story.settle(story.receive(), "ack", 200)
    early = [wrong.partition(",")[0].partition(" lost")[0] for wrong in story.wrongs()]
    assert early == ["extend: lease", "delivered twice"][: 2 if leased == LEASE else 1]


def test_a_publish_without_an_answer_may_be_either() -> None:
    never, done = Story(), Story()
    never.publish(None)
    done.publish(504)
    done.settle(done.receive(), "ack", 200)
    assert never.wrongs() == done.wrongs() == []


@pytest.mark.parametrize("status", [429, 503])
def test_what_was_refused_is_not_delivered(story: Story, status: int) -> None:
    story.publish(status)
    story.settle(story.receive(), "ack", 200)
    assert story.wrongs() == ["delivered, though its publish was refused"]


def test_nothing_is_delivered_that_nobody_published(story: Story) -> None:
    story.settle(story.receive(), "ack", 200)
    assert story.wrongs() == ["delivered and never published"]


@pytest.mark.parametrize(("verb", "dead"), [("ack", ()), ("reject", (1,))])
def test_what_was_settled_for_good_does_not_come_again(
    story: Story, one: Handed, verb: Verb, dead: tuple[int, ...]
) -> None:
    story.settle(one, verb, 200)
    story.receive()
    assert story.wrongs(*dead) == ["delivered again after it was settled for good"]


def test_an_answer_that_took_longer_than_its_lease_tells_of_the_past(story: Story) -> None:
    story.publish()
    story.wait(LEASE)
    one = story.receive()
    story.settle(one, "ack", 200)
    story.receive(waited=LEASE + 0.4)
    assert story.wrongs() == []


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
def test_a_token_is_worth_nothing_once_the_message_was_handed_out_again(story: Story, one: Handed, verb: Verb) -> None:
    story.wait(LEASE)
    two = story.receive()
    story.settle(one, verb, 200)
    story.settle(two, "ack", 200)
    assert story.wrongs() == [f"{verb}: done by the token of a lease that somebody else has had since"]


def test_a_late_ack_is_judged_by_what_was_known_when_it_was_sent(story: Story, one: Handed) -> None:
    story.wait(LEASE)
    answered = story.ledger.sending(one, "ack")
    two = story.receive()
    answered(200)
    assert story.wrongs() == []
    story.settle(two, "ack", 200)
    assert story.wrongs() == []


def test_a_repeated_nack_is_done_by_either_answer(story: Story, one: Handed) -> None:
    story.settle(one, "nack", None)
    two = story.receive()
    story.settle(one, "nack", 200)
    story.settle(two, "ack", 200)
    assert story.wrongs() == []


def test_a_message_is_with_one_consumer_at_a_time(story: Story, one: Handed) -> None:
    story.settle(story.receive(), "ack", 200)
    assert len(story.wrongs()) == 1
    assert story.wrongs()[0].startswith("delivered twice, 1.")


def test_an_extended_lease_lasts(story: Story, one: Handed) -> None:
    story.wait(LEASE / 2)
    story.settle(one, "extend", 200)
    story.wait(LEASE / 2)
    story.settle(one, "ack", 409)
    assert story.wrongs()[0].startswith("ack: lease lost 0.")


def test_a_lease_is_not_lost_before_its_end(story: Story, one: Handed) -> None:
    story.settle(one, "ack", 409)
    assert story.wrongs()[0].startswith("ack: lease lost 1.")


def test_a_double_ack_is_done(story: Story, one: Handed) -> None:
    story.settle(one, "ack", 200)
    story.settle(one, "ack", 409)
    assert story.wrongs()[0].startswith("ack: lease lost 1.")


@pytest.mark.parametrize("status", [400, 500, 502])
def test_no_other_answer_is_expected(story: Story, one: Handed, status: int) -> None:
    story.settle(one, "ack", status)
    assert story.wrongs() == [f"its ack was answered with {status}"]


def test_dead_letters_are_those_that_were_rejected(story: Story, one: Handed) -> None:
    story.settle(one, "reject", 200)
    assert story.wrongs(1) == []
    assert story.wrongs() == ["rejected, and not among the dead letters"]


def test_a_dead_letter_is_there_once(story: Story, one: Handed) -> None:
    story.settle(one, "reject", 200)
    assert story.wrongs(1, 1) == ["2 times among the dead letters"]


def test_nobody_else_is_among_the_dead_letters(story: Story, one: Handed) -> None:
    story.settle(one, "ack", 200)
    assert set(story.wrongs(1)) == {
        "among the dead letters, though nobody rejected it",
        "acked, and among the dead letters",
    }


@pytest.fixture
def shaken() -> Story:
    """A message that was out during a disturbance."""
    story = Story(owned=True)
    story.publish()
    one = story.receive()
    with story.ledger.disturbance():
        story.wait()
    two = story.receive()
    story.settle(one, "ack", 409)
    story.settle(two, "ack", 200)
    return story


def test_where_deliveries_are_owned_a_disturbance_ends_leases(shaken: Story) -> None:
    assert shaken.wrongs() == []
    assert shaken.ledger.told["pardoned"] == 2


def test_but_it_makes_no_second_message(shaken: Story) -> None:
    shaken.receive()
    assert shaken.wrongs() == ["delivered again after it was settled for good"]


@pytest.mark.parametrize("when", ["before", "within", "expired", "expired and delivered"])
def test_unless_a_copy_may_have_been_written(when: str) -> None:
    story = Story(owned=True)
    story.publish()
    one, two = story.receive(), None
    answered = story.ledger.sending(one, "nack") if when == "before" else None
    with story.ledger.disturbance():
        if when == "within":
            answered = story.ledger.sending(one, "nack")
        story.wait(LEASE if when.startswith("expired") else 0.1)
        if when == "expired and delivered":
            two = story.receive()
    if answered is not None:
        answered(None)
    two, three = two or story.receive(), story.receive()
    story.settle(two, "ack", 200)
    story.settle(three, "ack", 200)
    assert story.wrongs() == []


@pytest.mark.parametrize("seconds", [0.5, 1.5])
def test_a_copy_that_was_only_just_delivered_may_be_beside_its_original(seconds: float) -> None:
    story = Story(owned=True)
    story.publish()
    story.receive()
    story.wait(LEASE)
    two = story.receive()
    story.wait(seconds)
    with story.ledger.disturbance():
        story.wait()
    three = story.receive()
    story.settle(two, "ack", 200)
    story.settle(three, "ack", 200)
    stale = "ack: done by the token of a lease that somebody else has had since"
    assert story.wrongs() == ([] if seconds < 1 else [stale])


@pytest.mark.parametrize(("seconds", "of_broker"), [(0.05, True), (-0.1, True), (0.3, True), (0.05, False)])
def test_what_a_broker_had_only_just_read_may_come_again_after_it_ended(seconds: float, of_broker: bool) -> None:
    """``seconds`` before the disturbance; less than none: within."""
    story = Story(owned=True)
    story.publish()
    one = story.receive()
    if seconds > 0:
        story.settle(one, "ack", 200)
        story.wait(seconds)
    with story.ledger.disturbance(of_broker=of_broker):
        if seconds < 0:
            story.settle(one, "ack", 200)
        story.wait()
    story.settle(story.receive(), "reject", 200)
    wrongs = story.wrongs(1)
    if of_broker and seconds < 0.1:
        assert wrongs == []
    else:
        assert wrongs == ["delivered again after it was settled for good", "acked, and among the dead letters"]


@pytest.mark.parametrize("when", ["asked before", "asked within", "asked after"])
def test_of_two_acks_the_second_may_find_nobody_who_knows_of_the_first(when: str) -> None:
    story = Story(owned=True)
    story.publish()
    one = story.receive()
    second = story.ledger.sending(one, "ack") if when == "asked before" else None
    story.settle(one, "ack", 200)
    with story.ledger.disturbance():
        if when == "asked within":
            second = story.ledger.sending(one, "ack")
        story.wait()
    if second is not None:
        second(504)
    story.settle(one, "ack", 409)
    story.receive()
    wrongs = story.wrongs()
    assert wrongs[-1] == "delivered again after it was settled for good"
    assert len(wrongs) == 1 + (second is None)


def test_a_story_tells_a_message_from_its_publish_on() -> None:
    story = Story()
    story.publish()
    one = story.receive()
    with story.ledger.disturbance():
        story.wait()
    story.settle(one, "ack", 200)
    story.receive()
    assert list(story.ledger.wronged) == [1]
    assert story.ledger.story(1).split("; ") == [
        "0000.100 publish 201",
        "0000.200 delivered, asked for 0.050 s before, 1.950 s left, token",
        "0000.200 a gateway ends",
        "0000.300 that is over",
        "0000.400 ack sent, token",
        "0000.500 ack settled by 200, token",
        "0000.600 delivered, asked for 0.050 s before, 1.950 s left, token",
    ]


def test_a_disturbance_does_not_excuse_a_loss() -> None:
    story = Story(owned=True)
    story.publish()
    with story.ledger.disturbance():
        story.settle(story.receive(), "nack", 200)
    assert story.wrongs() == ["accepted, delivered and lost"]


@pytest.mark.parametrize("settled_first", [True, False])
def test_nor_what_happens_to_others(settled_first: bool) -> None:
    story = Story(owned=True)
    story.publish()
    if settled_first:
        story.settle(story.receive(), "ack", 200)
    with story.ledger.disturbance():
        story.wait()
    story.wait()
    story.settle(story.receive(), "ack", 200)
    if not settled_first:
        story.receive()
    assert story.wrongs() == ["delivered again after it was settled for good"]


def test_where_any_process_settles_a_disturbance_excuses_nothing() -> None:
    story = Story()
    story.publish()
    one = story.receive()
    with story.ledger.disturbance():
        story.settle(one, "ack", 409)
    assert story.wrongs()[0].startswith("ack: lease lost 1.")


@pytest.mark.parametrize("repeats", [True, False])
def test_a_second_ack_may_be_lost_where_acks_are_not_repeated(repeats: bool) -> None:
    story = Story(acks_repeat=repeats)
    story.publish()
    one = story.receive()
    story.settle(one, "ack", None)
    story.settle(one, "ack", 409)
    assert bool(story.wrongs()) is repeats
