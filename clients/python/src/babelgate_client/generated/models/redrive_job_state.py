from typing import Literal

RedriveJobState = Literal['cancelled', 'completed', 'failed', 'interrupted', 'running']

REDRIVE_JOB_STATE_VALUES: set[RedriveJobState] = { 'cancelled', 'completed', 'failed', 'interrupted', 'running',  }

def check_redrive_job_state(value: str) -> RedriveJobState:
    if value in REDRIVE_JOB_STATE_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {REDRIVE_JOB_STATE_VALUES!r}")
