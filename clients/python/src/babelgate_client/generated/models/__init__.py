""" Contains all the data models used in inputs/outputs """

from .ack_request import AckRequest
from .batch_result import BatchResult
from .batch_result_omitted import BatchResultOmitted
from .broker import Broker
from .broker_circuit import BrokerCircuit
from .broker_list import BrokerList
from .broker_properties import BrokerProperties
from .broker_state import BrokerState
from .broker_state_circuit import BrokerStateCircuit
from .busy_queue import BusyQueue
from .capabilities import Capabilities
from .capabilities_ack_scope import CapabilitiesAckScope
from .capabilities_delivery_count import CapabilitiesDeliveryCount
from .capabilities_ordering import CapabilitiesOrdering
from .circuit import Circuit
from .circuit_circuit import CircuitCircuit
from .cloud_event import CloudEvent
from .concern import Concern
from .concern_kind import ConcernKind
from .configuration_fault import ConfigurationFault
from .configuration_refusal import ConfigurationRefusal
from .configuration_reload import ConfigurationReload
from .dead_letter import DeadLetter
from .dead_letter_edit import DeadLetterEdit
from .dead_letter_edit_body import DeadLetterEditBody
from .dead_letter_edit_data import DeadLetterEditData
from .dead_letter_filter import DeadLetterFilter
from .dead_letter_filter_reason_type_0 import DeadLetterFilterReasonType0
from .dead_letter_headers import DeadLetterHeaders
from .dead_letter_page import DeadLetterPage
from .dead_letter_record_type_0 import DeadLetterRecordType0
from .defect import Defect
from .delete_dead_letters_request import DeleteDeadLettersRequest
from .draft import Draft
from .draft_data import DraftData
from .draft_headers import DraftHeaders
from .draft_meta import DraftMeta
from .draft_meta_lang import DraftMetaLang
from .entry import Entry
from .entry_headers import EntryHeaders
from .entry_result import EntryResult
from .envelope import Envelope
from .envelope_data import EnvelopeData
from .envelope_meta import EnvelopeMeta
from .envelope_meta_lang import EnvelopeMetaLang
from .event import Event
from .event_event import EventEvent
from .event_meta_type_0 import EventMetaType0
from .event_page import EventPage
from .extend_request import ExtendRequest
from .failure import Failure
from .figures import Figures
from .get_asyncapi_response_get_asyncapi_asyncapi_json_get import GetAsyncapiResponseGetAsyncapiAsyncapiJsonGet
from .get_schema_response_get_schema_schemas_job_get import GetSchemaResponseGetSchemaSchemasJobGet
from .idempotency_keys import IdempotencyKeys
from .issued_token import IssuedToken
from .issuer_state import IssuerState
from .job import Job
from .job_error import JobError
from .job_meta import JobMeta
from .job_schema import JobSchema
from .job_schema_list import JobSchemaList
from .list_dead_letters_reason_type_0 import ListDeadLettersReasonType0
from .list_events_event_type_0 import ListEventsEventType0
from .listed_queue import ListedQueue
from .listed_queue_source import ListedQueueSource
from .listed_queue_stored_as import ListedQueueStoredAs
from .loaded_configuration import LoadedConfiguration
from .loaded_configuration_settings import LoadedConfigurationSettings
from .message_history import MessageHistory
from .message_history_status import MessageHistoryStatus
from .minute import Minute
from .nack_request import NackRequest
from .native_header import NativeHeader
from .native_write import NativeWrite
from .native_write_fields import NativeWriteFields
from .native_write_headers import NativeWriteHeaders
from .native_write_target import NativeWriteTarget
from .page import Page
from .page_request import PageRequest
from .pause import Pause
from .pause_publishes import PausePublishes
from .pause_request import PauseRequest
from .pause_request_publishes import PauseRequestPublishes
from .pause_result import PauseResult
from .peeked_list import PeekedList
from .peeked_message import PeekedMessage
from .peeked_message_envelope_type_0 import PeekedMessageEnvelopeType0
from .peeked_message_headers import PeekedMessageHeaders
from .policy import Policy
from .policy_expired import PolicyExpired
from .policy_ordering_key import PolicyOrderingKey
from .probe import Probe
from .problem import Problem
from .processes import Processes
from .projection import Projection
from .projection_envelope import ProjectionEnvelope
from .projection_headers import ProjectionHeaders
from .purge_request import PurgeRequest
from .purge_result import PurgeResult
from .purged import Purged
from .push import Push
from .push_change import PushChange
from .push_change_source import PushChangeSource
from .push_failure import PushFailure
from .push_failure_code import PushFailureCode
from .push_outcomes import PushOutcomes
from .push_removed import PushRemoved
from .push_request import PushRequest
from .push_request_body import PushRequestBody
from .push_request_headers import PushRequestHeaders
from .push_source import PushSource
from .push_state import PushState
from .push_state_circuit import PushStateCircuit
from .push_target import PushTarget
from .push_target_body import PushTargetBody
from .push_test_result import PushTestResult
from .queue import Queue
from .queue_limits import QueueLimits
from .queue_limits_counted_in import QueueLimitsCountedIn
from .queue_list import QueueList
from .queue_rates import QueueRates
from .queue_stored_as import QueueStoredAs
from .rate_terms import RateTerms
from .rates import Rates
from .readyz_verbose import ReadyzVerbose
from .receipt import Receipt
from .receive_request import ReceiveRequest
from .received import Received
from .received_broker_properties import ReceivedBrokerProperties
from .received_envelope import ReceivedEnvelope
from .received_envelope_data import ReceivedEnvelopeData
from .received_envelope_meta import ReceivedEnvelopeMeta
from .received_message import ReceivedMessage
from .received_message_headers import ReceivedMessageHeaders
from .redrive_dead_letter_request import RedriveDeadLetterRequest
from .redrive_failure import RedriveFailure
from .redrive_job import RedriveJob
from .redrive_job_list import RedriveJobList
from .redrive_job_state import RedriveJobState
from .redrive_request import RedriveRequest
from .redrive_result import RedriveResult
from .redriven_letter import RedrivenLetter
from .reject_request import RejectRequest
from .removal import Removal
from .removal_result import RemovalResult
from .replica import Replica
from .replica_list import ReplicaList
from .revoked_token import RevokedToken
from .right import Right
from .rotation_request import RotationRequest
from .schemas_state import SchemasState
from .searched import Searched
from .searched_gateway import SearchedGateway
from .settle_outcome import SettleOutcome
from .settle_request import SettleRequest
from .stats import Stats
from .stream_request import StreamRequest
from .token import Token
from .token_list import TokenList
from .token_request import TokenRequest
from .token_request_rights import TokenRequestRights
from .token_result import TokenResult
from .token_result_action import TokenResultAction
from .token_rights import TokenRights
from .trace_history import TraceHistory
from .traced_message import TracedMessage
from .traced_message_status import TracedMessageStatus
from .validate_message_mode import ValidateMessageMode
from .warning import Warning_
from .warning_code import WarningCode
from .worker_configuration import WorkerConfiguration

__all__ = (
    "AckRequest",
    "BatchResult",
    "BatchResultOmitted",
    "Broker",
    "BrokerCircuit",
    "BrokerList",
    "BrokerProperties",
    "BrokerState",
    "BrokerStateCircuit",
    "BusyQueue",
    "Capabilities",
    "CapabilitiesAckScope",
    "CapabilitiesDeliveryCount",
    "CapabilitiesOrdering",
    "Circuit",
    "CircuitCircuit",
    "CloudEvent",
    "Concern",
    "ConcernKind",
    "ConfigurationFault",
    "ConfigurationRefusal",
    "ConfigurationReload",
    "DeadLetter",
    "DeadLetterEdit",
    "DeadLetterEditBody",
    "DeadLetterEditData",
    "DeadLetterFilter",
    "DeadLetterFilterReasonType0",
    "DeadLetterHeaders",
    "DeadLetterPage",
    "DeadLetterRecordType0",
    "Defect",
    "DeleteDeadLettersRequest",
    "Draft",
    "DraftData",
    "DraftHeaders",
    "DraftMeta",
    "DraftMetaLang",
    "Entry",
    "EntryHeaders",
    "EntryResult",
    "Envelope",
    "EnvelopeData",
    "EnvelopeMeta",
    "EnvelopeMetaLang",
    "Event",
    "EventEvent",
    "EventMetaType0",
    "EventPage",
    "ExtendRequest",
    "Failure",
    "Figures",
    "GetAsyncapiResponseGetAsyncapiAsyncapiJsonGet",
    "GetSchemaResponseGetSchemaSchemasJobGet",
    "IdempotencyKeys",
    "IssuedToken",
    "IssuerState",
    "Job",
    "JobError",
    "JobMeta",
    "JobSchema",
    "JobSchemaList",
    "ListDeadLettersReasonType0",
    "ListedQueue",
    "ListedQueueSource",
    "ListedQueueStoredAs",
    "ListEventsEventType0",
    "LoadedConfiguration",
    "LoadedConfigurationSettings",
    "MessageHistory",
    "MessageHistoryStatus",
    "Minute",
    "NackRequest",
    "NativeHeader",
    "NativeWrite",
    "NativeWriteFields",
    "NativeWriteHeaders",
    "NativeWriteTarget",
    "Page",
    "PageRequest",
    "Pause",
    "PausePublishes",
    "PauseRequest",
    "PauseRequestPublishes",
    "PauseResult",
    "PeekedList",
    "PeekedMessage",
    "PeekedMessageEnvelopeType0",
    "PeekedMessageHeaders",
    "Policy",
    "PolicyExpired",
    "PolicyOrderingKey",
    "Probe",
    "Problem",
    "Processes",
    "Projection",
    "ProjectionEnvelope",
    "ProjectionHeaders",
    "Purged",
    "PurgeRequest",
    "PurgeResult",
    "Push",
    "PushChange",
    "PushChangeSource",
    "PushFailure",
    "PushFailureCode",
    "PushOutcomes",
    "PushRemoved",
    "PushRequest",
    "PushRequestBody",
    "PushRequestHeaders",
    "PushSource",
    "PushState",
    "PushStateCircuit",
    "PushTarget",
    "PushTargetBody",
    "PushTestResult",
    "Queue",
    "QueueLimits",
    "QueueLimitsCountedIn",
    "QueueList",
    "QueueRates",
    "QueueStoredAs",
    "Rates",
    "RateTerms",
    "ReadyzVerbose",
    "Receipt",
    "Received",
    "ReceivedBrokerProperties",
    "ReceivedEnvelope",
    "ReceivedEnvelopeData",
    "ReceivedEnvelopeMeta",
    "ReceivedMessage",
    "ReceivedMessageHeaders",
    "ReceiveRequest",
    "RedriveDeadLetterRequest",
    "RedriveFailure",
    "RedriveJob",
    "RedriveJobList",
    "RedriveJobState",
    "RedrivenLetter",
    "RedriveRequest",
    "RedriveResult",
    "RejectRequest",
    "Removal",
    "RemovalResult",
    "Replica",
    "ReplicaList",
    "RevokedToken",
    "Right",
    "RotationRequest",
    "SchemasState",
    "Searched",
    "SearchedGateway",
    "SettleOutcome",
    "SettleRequest",
    "Stats",
    "StreamRequest",
    "Token",
    "TokenList",
    "TokenRequest",
    "TokenRequestRights",
    "TokenResult",
    "TokenResultAction",
    "TokenRights",
    "TracedMessage",
    "TracedMessageStatus",
    "TraceHistory",
    "ValidateMessageMode",
    "Warning_",
    "WarningCode",
    "WorkerConfiguration",
)
