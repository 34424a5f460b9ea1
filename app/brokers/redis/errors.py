"""The one boundary where what redis-py raises becomes an error of this project."""

from __future__ import annotations

from redis import exceptions as vendor

from app.errors import BabelgateError, BrokerRejected, BrokerUnavailable, OutcomeUnknown, StorageFull

# By class, the nearest ancestor counts. A connection that breaks is judged where it broke: see Line in redis_line.
BY_CLASS: dict[type[Exception], type[BabelgateError]] = {
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
    """The error of this project for ``error``, an error reply or a failure to connect: in both nothing was written."""
    # Of a command it does not know Redis quotes the arguments, which may be messages.
    reason = str(error).partition(", with args beginning with")[0].rstrip(".") or type(error).__name__
    if type(error) is vendor.ResponseError:
        found = next((kind for mark, kind in BY_INNER_CODE.items() if mark in reason), None)
        found = found or BY_CODE.get(reason.partition(" ")[0])
        if found is not None:
            return found(broker=broker, reason=reason)
    kind = next((BY_CLASS[base] for base in type(error).__mro__ if base in BY_CLASS), BrokerUnavailable)
    return kind(broker=broker, reason=reason)
