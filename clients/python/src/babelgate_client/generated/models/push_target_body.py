from typing import Literal

PushTargetBody = Literal['cloudevents', 'cloudevents_binary', 'data', 'envelope']

PUSH_TARGET_BODY_VALUES: set[PushTargetBody] = { 'cloudevents', 'cloudevents_binary', 'data', 'envelope',  }

def check_push_target_body(value: str) -> PushTargetBody:
    if value in PUSH_TARGET_BODY_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {PUSH_TARGET_BODY_VALUES!r}")
