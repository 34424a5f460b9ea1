from typing import Literal

PolicyExpired = Literal['dead_letter', 'drop']

POLICY_EXPIRED_VALUES: set[PolicyExpired] = { 'dead_letter', 'drop',  }

def check_policy_expired(value: str) -> PolicyExpired:
    if value in POLICY_EXPIRED_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {POLICY_EXPIRED_VALUES!r}")
