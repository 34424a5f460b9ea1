from typing import Literal

ConcernKind = Literal['broker_errors', 'broker_warning', 'circuit_open', 'dead_letters', 'foreign_messages', 'old_messages', 'push_circuit_open', 'queue_paused', 'storage_refused']

CONCERN_KIND_VALUES: set[ConcernKind] = { 'broker_errors', 'broker_warning', 'circuit_open', 'dead_letters', 'foreign_messages', 'old_messages', 'push_circuit_open', 'queue_paused', 'storage_refused',  }

def check_concern_kind(value: str) -> ConcernKind:
    if value in CONCERN_KIND_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {CONCERN_KIND_VALUES!r}")
