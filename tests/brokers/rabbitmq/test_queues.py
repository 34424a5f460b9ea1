"""Queues declared differently by others, and the connection options of a RabbitMQ server."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import httpx
import pytest

from babelgate.brokers.binding import NativeQueue, Outgoing
from babelgate.brokers.rabbitmq.binding import RabbitBinding, connect
from babelgate.clock import now_ms
from babelgate.errors import BrokerRejected, BrokerUnavailable, ConfigError, OutcomeUnknown, StorageFull
from tests.brokers.rabbitmq.harness import binding, browse, client, count
from tests.brokers.rabbitmq.server import RabbitServer
from tests.brokers.rabbitmq.wire_support import BODY, kinds, message, refusal, reserved
from tests.harness.local import certify, free_port
from tests.harness.world import until

pytestmark = pytest.mark.rabbitmq


class TestQueues:
    async def test_a_queue_that_was_deleted_is_declared_again(
        self, rabbit: RabbitServer, one: RabbitBinding, native: NativeQueue, queue: str
    ) -> None:
        assert await one.publish(native, [message("gone")]) == [None]
        with client(rabbit.url()) as channel:
            channel.queue_delete(queue)
        (outcome,) = await one.publish(native, [message("refused")])
        assert isinstance(outcome, BrokerUnavailable)
        assert outcome.retryable and queue in str(outcome)
        assert await one.publish(native, [message("kept")]) == [None]
        assert (await reserved(one, native)).body == message("kept").body

    async def test_a_queue_that_is_deleted_while_somebody_waits(
        self, rabbit: RabbitServer, one: RabbitBinding, native: NativeQueue, queue: str
    ) -> None:
        waiting = asyncio.create_task(one.reserve(native, 1, 10, 30))
        await asyncio.sleep(0.1)
        with client(rabbit.url()) as channel:
            channel.queue_delete(queue)
        with contextlib.suppress(BrokerUnavailable):
            assert await waiting == []
        await one.publish(native, [message("refused or not")])
        assert await one.publish(native, [message("kept")]) == [None]
        assert (await one.reserve(native, 2, 10, 30))[-1].body in (
            message("kept").body,
            message("refused or not").body,
        )

    async def test_a_queue_that_is_deleted_before_a_consumer_starts(
        self, rabbit: RabbitServer, one: RabbitBinding, native: NativeQueue, queue: str
    ) -> None:
        assert await one.reserve(native, 1, 0, 30) == []
        with client(rabbit.url()) as channel:
            channel.queue_delete(queue)
        # The queue was empty a moment ago: this starts a consumer without a get before.
        assert await one.reserve(native, 1, 0.5, 30) == []
        with client(rabbit.url()) as channel:
            channel.queue_declare(queue, passive=True)

    async def test_a_new_quorum_queue_takes_messages_while_somebody_waits(self, one: RabbitBinding, queue: str) -> None:
        """Both connections declare the queue, at the same moment or some milliseconds apart."""
        for number in range(200):
            native = one.native_queue(f"{queue}.{number}", {"queue_type": "quorum"})
            waiting = asyncio.create_task(one.reserve(native, 1, 20, 30))
            await asyncio.sleep(0.001 * (number % 10))
            assert await one.publish(native, [message()]) == [None]
            (delivery,) = await waiting
            assert await one.ack(native, [delivery.handle]) == [None]

    async def test_passive_never_makes_a_queue(self, rabbit: RabbitServer, one: RabbitBinding, queue: str) -> None:
        native = one.native_queue(queue, {"declare": "passive"})
        for call in (
            lambda: one.publish(native, [message()]),
            lambda: one.reserve(native, 1, 0, 30),
        ):
            error = await refusal(call)
            assert isinstance(error, BrokerRejected)
            assert queue in str(error)
        with client(rabbit.url()) as channel:
            channel.queue_declare(queue, durable=True, arguments={"x-max-length": 10})
        assert await one.publish(native, [message()]) == [None]
        assert (await reserved(one, native)).body == message().body

    async def test_none_takes_it_that_the_queue_is_there(
        self, rabbit: RabbitServer, one: RabbitBinding, queue: str
    ) -> None:
        native = one.native_queue(queue, {"declare": "none"})
        assert isinstance(await refusal(lambda: one.publish(native, [message()])), BrokerRejected)
        assert isinstance(await refusal(lambda: one.reserve(native, 1, 0, 30)), BrokerRejected)
        with client(rabbit.url()) as channel:
            channel.queue_declare(queue, durable=True, arguments={"x-max-length": 10})
        assert await one.publish(native, [message()]) == [None]
        assert (await reserved(one, native)).body == message().body

    @pytest.mark.parametrize("verb", ["publish", "reserve"])
    async def test_a_queue_that_somebody_declared_otherwise_is_explained(
        self, rabbit: RabbitServer, one: RabbitBinding, native: NativeQueue, queue: str, verb: str
    ) -> None:
        with client(rabbit.url()) as channel:
            channel.queue_declare(queue, durable=True, arguments={"x-max-length": 10})
        error = await refusal(
            (lambda: one.publish(native, [message()])) if verb == "publish" else (lambda: one.reserve(native, 1, 0, 30))
        )
        assert isinstance(error, BrokerRejected)
        assert "x-max-length" in str(error)
        assert "declare: passive" in str(error)

    async def test_of_a_batch_only_the_refused_ones_fail(
        self, rabbit: RabbitServer, one: RabbitBinding, queue: str
    ) -> None:
        native = one.native_queue(queue, {"declare": "passive"})
        with client(rabbit.url()) as channel:
            arguments = {"x-max-length-bytes": len(message().body) * 3, "x-overflow": "reject-publish"}
            channel.queue_declare(queue, durable=True, arguments=arguments)
        outcomes = [await one.publish(native, [message(f"{n}{m}") for m in range(3)]) for n in range(3)]
        flat = [outcome for batch in outcomes for outcome in batch]
        # Without the management API nobody can tell a full queue from one that failed.
        assert flat[0] is None and isinstance(flat[-1], OutcomeUnknown)
        assert count(rabbit.url(), queue) == flat.count(None)

    @pytest.mark.parametrize("size", [1 << 20, 10 << 20])
    async def test_a_large_body_is_carried_whole(self, one: RabbitBinding, native: NativeQueue, size: int) -> None:
        body = BODY % (b"x" * size)
        assert await one.publish(native, [Outgoing(body), message("small")]) == [None] * 2
        deliveries = [await reserved(one, native), await reserved(one, native)]
        assert deliveries[0].body == body
        assert deliveries[1].body == message("small").body
        assert await one.ack(native, [each.handle for each in deliveries]) == [None] * 2

    async def test_more_queues_than_channels(self, rabbit: RabbitServer, queue: str) -> None:
        with rabbit.configured(channel_max=8):
            async with binding(rabbit.url(), {"timeout_seconds": 30}) as one:
                natives = [one.native_queue(f"{queue}.{n}", {}) for n in range(20)]
                waiting = [asyncio.create_task(one.reserve(native, 1, 20, 30)) for native in natives]
                outcomes = await asyncio.gather(*(one.publish(native, [message(native.name)]) for native in natives))
                assert outcomes == [[None]] * 20
                for native, (delivery,) in zip(natives, await asyncio.gather(*waiting), strict=True):
                    assert delivery.body == message(native.name).body
                    assert await one.ack(native, [delivery.handle]) == [None]


class TestTheAddress:
    async def test_a_virtual_host(self, rabbit: RabbitServer, one: RabbitBinding, queue: str) -> None:
        rabbit.add_vhost(queue + "/é")
        async with binding(rabbit.url(queue + "/é")) as other:
            native = other.native_queue(queue, {})
            assert await other.publish(native, [message("there")]) == [None]
            assert await one.reserve(one.native_queue(queue, {}), 1, 0, 30) == []
            assert (await reserved(other, native)).body == message("there").body

    async def test_a_virtual_host_that_is_not_there(self, rabbit: RabbitServer) -> None:
        with pytest.raises(BrokerUnavailable) as refused:
            async with binding(rabbit.url("nowhere")):
                pass
        assert "nowhere" in str(refused.value) or "refused" in str(refused.value).lower()

    async def test_a_wrong_password_is_named_and_not_shown(self, rabbit: RabbitServer) -> None:
        with pytest.raises(BrokerUnavailable) as refused:
            async with binding(rabbit.url(password="hush-hush")):
                pass
        assert "login" in str(refused.value)
        assert "hush-hush" not in str(refused.value)

    async def test_nobody_listens(self) -> None:
        with pytest.raises(BrokerUnavailable):
            async with binding(f"amqp://guest:guest@127.0.0.1:{free_port()}/"):
                pass

    async def test_a_user_without_rights_is_told(self, rabbit: RabbitServer, queue: str) -> None:
        rabbit.add_user(queue, "secret")
        rabbit.permit(queue, "/", "^$", "^$", "^$")
        async with binding(rabbit.url(user=queue, password="secret")) as one:
            native = one.native_queue(queue, {})
            for call in (lambda: one.publish(native, [message()]), lambda: one.reserve(native, 1, 0, 30)):
                error = await refusal(call)
                assert isinstance(error, BrokerRejected)
                assert queue in str(error)
            await one.ping()

    async def test_tls(self, rabbit: RabbitServer, queue: str) -> None:
        async with binding(rabbit.tls_url(), {"ssl_ca_certs": str(rabbit.ca_file)}) as one:
            native = one.native_queue(queue, {})
            assert await one.publish(native, [message()]) == [None]
            assert (await reserved(one, native)).body == message().body

    async def test_tls_needs_a_certificate_that_fits(self, rabbit: RabbitServer, tmp_path: Any) -> None:
        certify(tmp_path)
        for options in ({}, {"ssl_ca_certs": str(tmp_path / "ca.crt")}):
            with pytest.raises(BrokerUnavailable) as refused:
                async with binding(rabbit.tls_url(), options):
                    pass
            assert "certificate" in str(refused.value).lower()

    async def test_tls_may_be_told_not_to_look(self, rabbit: RabbitServer) -> None:
        async with binding(rabbit.tls_url(), {"ssl_cert_reqs": "none", "ssl_check_hostname": False}) as one:
            await one.ping()

    def test_an_option_that_is_not_known(self) -> None:
        with pytest.raises(ConfigError):
            connect("rabbit", "amqp://127.0.0.1/", {"prefetch": 7}, now_ms)


def tells_the_limit(server: RabbitServer, queue: str) -> bool:
    """Whether the management API shows the limit of the queue yet."""
    answer = httpx.get(f"{server.management_url}/api/queues/%2F/{queue}", auth=("guest", "guest"))
    return "max-length" in answer.text


class TestManagement:
    async def test_it_tells_what_the_protocol_cannot(self, managed: RabbitServer, queue: str) -> None:
        async with binding(managed.url(), {"management": managed.management_url}) as one:
            native = one.native_queue(queue, {})
            await one.publish(native, [message(str(n)) for n in range(3)])
            held = await reserved(one, native)

            async def told() -> bool:
                stats = await one.stats(native)
                return (stats.depth, stats.in_flight) == (2, 1)

            await until(told)
            assert await one.ack(native, [held.handle]) == [None]

    # The gateway itself declares no limit.
    @pytest.mark.parametrize(
        ("declare", "limited_by"), [("passive", "arguments"), ("passive", "policy"), ("active", "policy")]
    )
    @pytest.mark.parametrize("queue_type", ["classic", "quorum"])
    async def test_a_full_queue_refuses_what_it_has_no_room_for(
        self, managed: RabbitServer, queue: str, queue_type: str, declare: str, limited_by: str
    ) -> None:
        if limited_by == "policy":
            definition = '{"max-length": 1, "overflow": "reject-publish"}'
            managed.set_policy(queue, f"^{queue}$", definition)
        arguments: dict[str, Any] = {"x-queue-type": queue_type}
        if limited_by == "arguments":
            arguments |= {"x-max-length": 1, "x-overflow": "reject-publish"}
        if declare == "passive":
            with client(managed.url()) as channel:
                channel.queue_declare(queue, durable=True, arguments=arguments)
        async with binding(managed.url(), {"management": managed.management_url}) as one:
            native = one.native_queue(
                queue, {"queue_type": queue_type} if declare == "active" else {"declare": declare}
            )
            assert await one.publish(native, [message("in")]) == [None]
            await until(lambda: asyncio.to_thread(tells_the_limit, managed, queue))
            # A quorum queue takes a few more than its limit.
            accepted = 1
            while (outcome := (await one.publish(native, [message("in")]))[0]) is None:
                accepted += 1
            outcomes = [outcome, *await one.publish(native, [message("out"), message("too")])]
            assert kinds(outcomes) == [StorageFull] * 3
            assert all(outcome.retryable and queue in str(outcome) for outcome in outcomes if outcome)
        assert [body for _, body in browse(managed.url(), queue)] == [message("in").body] * accepted

    async def test_a_quorum_queue_without_a_leader_is_not_full(self, managed: RabbitServer, queue: str) -> None:
        with client(managed.url()) as channel:
            channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
        async with binding(managed.url(), {"management": managed.management_url}) as one:
            native = one.native_queue(queue, {"declare": "passive"})
            await one.stats(native)
            managed.queue_eval(queue, "ra:stop_server(quorum_queues, Pid)")
            (outcome,) = await one.publish(native, [message()])
            managed.queue_eval(queue, "ra:restart_server(quorum_queues, Pid)")
            assert isinstance(outcome, BrokerUnavailable) and "no leader" in outcome.reason

    @pytest.mark.parametrize("how", ["nobody listens", "refused"])
    async def test_without_an_answer_the_protocol_does(self, managed: RabbitServer, queue: str, how: str) -> None:
        url = (
            f"http://127.0.0.1:{free_port()}"
            if how == "nobody listens"
            else managed.management_url.replace("http://", "http://guest:wrong@")
        )
        async with binding(managed.url(), {"management": url}) as one:
            native = one.native_queue(queue, {})
            await one.publish(native, [message()])
            stats = await one.stats(native)
            assert (stats.depth, stats.in_flight) == (1, None)
