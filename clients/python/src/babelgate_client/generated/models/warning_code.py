from typing import Literal

WarningCode = Literal['id_not_uuid', 'trace_id_not_uuid']

WARNING_CODE_VALUES: set[WarningCode] = { 'id_not_uuid', 'trace_id_not_uuid',  }

def check_warning_code(value: str) -> WarningCode:
    if value in WARNING_CODE_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {WARNING_CODE_VALUES!r}")
