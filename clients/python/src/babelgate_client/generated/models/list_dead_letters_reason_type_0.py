from typing import Literal

ListDeadLettersReasonType0 = Literal['failed', 'poison', 'unknown_urn']

LIST_DEAD_LETTERS_REASON_TYPE_0_VALUES: set[ListDeadLettersReasonType0] = { 'failed', 'poison', 'unknown_urn',  }

def check_list_dead_letters_reason_type_0(value: str) -> ListDeadLettersReasonType0:
    if value in LIST_DEAD_LETTERS_REASON_TYPE_0_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {LIST_DEAD_LETTERS_REASON_TYPE_0_VALUES!r}")
