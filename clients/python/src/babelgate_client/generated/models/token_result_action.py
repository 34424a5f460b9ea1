from typing import Literal

TokenResultAction = Literal['ack', 'extend', 'nack', 'reject']

TOKEN_RESULT_ACTION_VALUES: set[TokenResultAction] = { 'ack', 'extend', 'nack', 'reject',  }

def check_token_result_action(value: str) -> TokenResultAction:
    if value in TOKEN_RESULT_ACTION_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {TOKEN_RESULT_ACTION_VALUES!r}")
