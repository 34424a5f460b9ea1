"""Translates the errors of redis-py and the error replies of Redis: the only place that does."""

from __future__ import annotations

from redis import exceptions as vendor

from babelgate.brokers.errors import ErrorMap
from babelgate.errors import BabelgateError, BrokerRejected, BrokerUnavailable, OutcomeUnknown, StorageFull

# A connection that breaks under a command is not translated here: see PipelinedConnection.
BY_CLASS: dict[type[BaseException], type[BabelgateError]] = {
    vendor.RedisError: BrokerRejected,
    vendor.ConnectionError: BrokerUnavailable,
    vendor.TimeoutError: BrokerUnavailable,
    vendor.AuthenticationError: BrokerUnavailable,
    vendor.AuthorizationError: BrokerUnavailable,
    vendor.ExternalAuthProviderError: BrokerUnavailable,
    vendor.AuthenticationWrongNumberOfArgsError: BrokerUnavailable,
    vendor.MaxConnectionsError: BrokerUnavailable,
    vendor.BusyLoadingError: BrokerUnavailable,
    vendor.MasterDownError: BrokerUnavailable,
    # A replica after a failover: the next connection may find the new primary.
    vendor.ReadOnlyError: BrokerUnavailable,
    vendor.InvalidResponse: OutcomeUnknown,
    vendor.OutOfMemoryError: StorageFull,
    vendor.ResponseError: BrokerRejected,
    vendor.NoPermissionError: BrokerRejected,
    vendor.NoScriptError: BrokerRejected,
    vendor.ExecAbortError: BrokerRejected,
    vendor.ModuleError: BrokerRejected,
    vendor.NoSuchFieldsetError: BrokerRejected,
    vendor.DataError: BrokerRejected,
    vendor.PubSubError: BrokerRejected,
    vendor.WatchError: BrokerRejected,
    vendor.LockError: BrokerRejected,
    vendor.LockNotOwnedError: BrokerRejected,
    vendor.ChildDeadlockedError: BrokerUnavailable,
    vendor.RedisClusterException: BrokerRejected,
    vendor.ClusterError: BrokerUnavailable,
    vendor.ClusterDownError: BrokerUnavailable,
    vendor.AskError: BrokerRejected,
    vendor.MovedError: BrokerRejected,
    vendor.TryAgainError: BrokerUnavailable,
    vendor.ClusterCrossSlotError: BrokerRejected,
    vendor.SlotNotCoveredError: BrokerUnavailable,
    vendor.CrossSlotTransactionError: BrokerRejected,
    vendor.InvalidPipelineStack: BrokerRejected,
    vendor.IncorrectPolicyType: BrokerRejected,
    Exception: BrokerUnavailable,
}

# Error replies that redis-py has no class for, by their first word.
BY_CODE: dict[str, type[BabelgateError]] = {
    "BUSY": BrokerUnavailable,
    "MISCONF": BrokerUnavailable,
    "NOREPLICAS": BrokerUnavailable,
    "UNBLOCKED": BrokerUnavailable,
    "WRONGTYPE": BrokerRejected,
}

# Before 7.0 an error inside a script arrives as "ERR Error running script (…): @user_script: 1: -OOM command not …".
BY_INNER_CODE: dict[str, type[BabelgateError]] = {
    " -OOM ": StorageFull,
    " -READONLY ": BrokerUnavailable,
    " -MISCONF ": BrokerUnavailable,
    "No space left on device": StorageFull,
}


def is_read_only(error: Exception) -> bool:
    """Whether ``error``, an error reply, says that the server is a replica."""
    return isinstance(error, vendor.ReadOnlyError) or " -READONLY " in str(error)


def translate(error: Exception, broker: str) -> BabelgateError:
    """The error of this project for ``error``, an error reply or a failure to connect.

    OutcomeUnknown only for a reply that cannot be parsed: in the other cases nothing was written.
    """
    return _ERRORS.translate(broker, error, written=True)


def _reason(error: BaseException) -> str:
    # Redis quotes the arguments of an unknown command, which may be messages.
    return str(error).partition(", with args beginning with")[0].rstrip(".") or type(error).__name__


def _by_code(error: BaseException) -> type[BabelgateError] | None:
    if type(error) is not vendor.ResponseError:
        return None
    reason = _reason(error)
    inner = next((kind for mark, kind in BY_INNER_CODE.items() if mark in reason), None)
    return inner or BY_CODE.get(reason.partition(" ")[0])


_ERRORS = ErrorMap(BY_CLASS, _reason, _by_code)
