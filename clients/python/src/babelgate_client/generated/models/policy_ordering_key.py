from typing import Literal

PolicyOrderingKey = Literal['ignore', 'refuse']

POLICY_ORDERING_KEY_VALUES: set[PolicyOrderingKey] = { 'ignore', 'refuse',  }

def check_policy_ordering_key(value: str) -> PolicyOrderingKey:
    if value in POLICY_ORDERING_KEY_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {POLICY_ORDERING_KEY_VALUES!r}")
