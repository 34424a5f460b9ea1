from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, BinaryIO, TextIO, TYPE_CHECKING, Generator

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

from ..models.listed_queue_source import check_listed_queue_source
from ..models.listed_queue_source import ListedQueueSource
from typing import cast

if TYPE_CHECKING:
  from ..models.capabilities import Capabilities
  from ..models.idempotency_keys import IdempotencyKeys
  from ..models.listed_queue_stored_as import ListedQueueStoredAs
  from ..models.pause import Pause
  from ..models.policy import Policy
  from ..models.stats import Stats





T = TypeVar("T", bound="ListedQueue")



@_attrs_define
class ListedQueue:
    """ A queue of the list.

        Attributes:
            queue (str): The name of the queue in paths.
            broker (str): The configured name of the broker.
            native_name (str): The broker's own name of the queue, with every prefix of its profile or layout.
            dead_letter_queue (None | str): The broker's name of the queue of the dead letters; `null`: they are stored
                without a queue.
            stored_as (ListedQueueStoredAs): How messages are stored, by option of the route: `layout`, `profile`,
                `queue_type`. Without an entry the broker stores them in one way only, or its own settings decide.
            stats (Stats): Counts of a queue. `null`: the broker does not report this count.
            capabilities (Capabilities): What the broker of a queue can do.
            policy (Policy): The configured rules of a queue.
            idempotency (IdempotencyKeys | None): `null`: the queue does not support idempotency keys.
            pause (None | Pause): The pause of the queue; `null`: it is not paused.
            source (ListedQueueSource): How the name is known. `configured`: it is in the configuration. `broker`: the
                broker lists it. `process`: the process that answers has used the queue since its start, or knows that it is
                paused.
     """

    queue: str
    broker: str
    native_name: str
    dead_letter_queue: None | str
    stored_as: ListedQueueStoredAs
    stats: Stats
    capabilities: Capabilities
    policy: Policy
    idempotency: IdempotencyKeys | None
    pause: None | Pause
    source: ListedQueueSource
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)





    def to_dict(self) -> dict[str, Any]:
        from ..models.capabilities import Capabilities # noqa: PLC0415
        from ..models.idempotency_keys import IdempotencyKeys # noqa: PLC0415
        from ..models.listed_queue_stored_as import ListedQueueStoredAs # noqa: PLC0415
        from ..models.pause import Pause # noqa: PLC0415
        from ..models.policy import Policy # noqa: PLC0415
        from ..models.stats import Stats # noqa: PLC0415
        queue = self.queue

        broker = self.broker

        native_name = self.native_name

        dead_letter_queue: None | str
        dead_letter_queue = self.dead_letter_queue

        stored_as = self.stored_as.to_dict()

        stats = self.stats.to_dict()

        capabilities = self.capabilities.to_dict()

        policy = self.policy.to_dict()

        idempotency: dict[str, Any] | None
        if isinstance(self.idempotency, IdempotencyKeys):
            idempotency = self.idempotency.to_dict()
        else:
            idempotency = self.idempotency

        pause: dict[str, Any] | None
        if isinstance(self.pause, Pause):
            pause = self.pause.to_dict()
        else:
            pause = self.pause

        source: str = self.source


        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({
            "queue": queue,
            "broker": broker,
            "native_name": native_name,
            "dead_letter_queue": dead_letter_queue,
            "stored_as": stored_as,
            "stats": stats,
            "capabilities": capabilities,
            "policy": policy,
            "idempotency": idempotency,
            "pause": pause,
            "source": source,
        })

        return field_dict



    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.capabilities import Capabilities # noqa: PLC0415
        from ..models.idempotency_keys import IdempotencyKeys # noqa: PLC0415
        from ..models.listed_queue_stored_as import ListedQueueStoredAs # noqa: PLC0415
        from ..models.pause import Pause # noqa: PLC0415
        from ..models.policy import Policy # noqa: PLC0415
        from ..models.stats import Stats # noqa: PLC0415
        d = dict(src_dict)
        queue = d.pop("queue")

        broker = d.pop("broker")

        native_name = d.pop("native_name")

        def _parse_dead_letter_queue(data: object) -> None | str:
            if data is None:
                return data
            return cast(None | str, data)

        dead_letter_queue = _parse_dead_letter_queue(d.pop("dead_letter_queue"))


        stored_as = ListedQueueStoredAs.from_dict(d.pop("stored_as"))




        stats = Stats.from_dict(d.pop("stats"))




        capabilities = Capabilities.from_dict(d.pop("capabilities"))




        policy = Policy.from_dict(d.pop("policy"))




        def _parse_idempotency(data: object) -> IdempotencyKeys | None:
            if data is None:
                return data
            try:
                if not isinstance(data, dict):
                    raise TypeError()
                idempotency_type_0 = IdempotencyKeys.from_dict(data)



                return idempotency_type_0
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
            return cast(IdempotencyKeys | None, data)

        idempotency = _parse_idempotency(d.pop("idempotency"))


        def _parse_pause(data: object) -> None | Pause:
            if data is None:
                return data
            try:
                if not isinstance(data, dict):
                    raise TypeError()
                pause_type_0 = Pause.from_dict(data)



                return pause_type_0
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
            return cast(None | Pause, data)

        pause = _parse_pause(d.pop("pause"))


        source = check_listed_queue_source(d.pop("source"))




        listed_queue = cls(
            queue=queue,
            broker=broker,
            native_name=native_name,
            dead_letter_queue=dead_letter_queue,
            stored_as=stored_as,
            stats=stats,
            capabilities=capabilities,
            policy=policy,
            idempotency=idempotency,
            pause=pause,
            source=source,
        )


        listed_queue.additional_properties = d
        return listed_queue

    @property
    def additional_keys(self) -> list[str]:
        return list(self.additional_properties.keys())

    def __getitem__(self, key: str) -> Any:
        return self.additional_properties[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.additional_properties[key] = value

    def __delitem__(self, key: str) -> None:
        del self.additional_properties[key]

    def __contains__(self, key: str) -> bool:
        return key in self.additional_properties
