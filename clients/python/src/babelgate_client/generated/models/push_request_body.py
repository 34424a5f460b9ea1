from typing import Literal

PushRequestBody = Literal['cloudevents', 'cloudevents_binary', 'data', 'envelope']

PUSH_REQUEST_BODY_VALUES: set[PushRequestBody] = { 'cloudevents', 'cloudevents_binary', 'data', 'envelope',  }

def check_push_request_body(value: str) -> PushRequestBody:
    if value in PUSH_REQUEST_BODY_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {PUSH_REQUEST_BODY_VALUES!r}")
