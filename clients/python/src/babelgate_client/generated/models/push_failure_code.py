from typing import Literal

PushFailureCode = Literal['internal_error', 'no_answer', 'status', 'unreachable']

PUSH_FAILURE_CODE_VALUES: set[PushFailureCode] = { 'internal_error', 'no_answer', 'status', 'unreachable',  }

def check_push_failure_code(value: str) -> PushFailureCode:
    if value in PUSH_FAILURE_CODE_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {PUSH_FAILURE_CODE_VALUES!r}")
