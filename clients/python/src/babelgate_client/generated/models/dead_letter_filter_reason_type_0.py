from typing import Literal

DeadLetterFilterReasonType0 = Literal['failed', 'poison', 'unknown_urn']

DEAD_LETTER_FILTER_REASON_TYPE_0_VALUES: set[DeadLetterFilterReasonType0] = { 'failed', 'poison', 'unknown_urn',  }

def check_dead_letter_filter_reason_type_0(value: str) -> DeadLetterFilterReasonType0:
    if value in DEAD_LETTER_FILTER_REASON_TYPE_0_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {DEAD_LETTER_FILTER_REASON_TYPE_0_VALUES!r}")
