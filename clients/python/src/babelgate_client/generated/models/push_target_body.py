from typing import Literal

PushTargetBody = Literal['cloudevents', 'data', 'envelope']

PUSH_TARGET_BODY_VALUES: set[PushTargetBody] = { 'cloudevents', 'data', 'envelope',  }

def check_push_target_body(value: str) -> PushTargetBody:
    if value in PUSH_TARGET_BODY_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {PUSH_TARGET_BODY_VALUES!r}")
