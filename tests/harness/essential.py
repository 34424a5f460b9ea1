"""What ``make test`` runs, and what it leaves to the groups of ``make test-all``."""

from __future__ import annotations

from collections.abc import Mapping

from tests.brokers import registry

ESSENTIAL = (
    "tests/architecture/",
    "tests/unit/",
    "tests/http/",
    "tests/console/",
    *(f"tests/brokers/{kind}/test_contract.py" for kind in registry.KINDS),
    "tests/e2e/test_kill.py::test_one_gateway",
    "tests/e2e/test_readme.py",
    "tests/pipeline/test_ingest.py::test_every_member_of_every_record_arrives",
)
"""What ``make test`` runs, by beginnings of names: each broker's contract once, on its ordinary variant."""

NOT_ESSENTIAL = ("browser", "prometheus", "slow")
"""Marks of tests that ``make test`` leaves out, unless :data:`ESSENTIAL` names them."""

_HARNESS = "of how tests run: each run of tests shows it"
_TABLE = "a table of odd spellings: the ordinary refusals are in the files beside it"
_BOUNDS = "of memory or space under much traffic"
_PROPERTIES = "of many examples: the vectors and the ordinary cases are in the files beside it"

BEYOND: Mapping[str, str] = {
    "tests/console/test_queue_rights.py::test_an_action_needs_a_form_of_the_session": "test_guards.py has the guard",
    "tests/http/test_docs.py::test_readers_are_bounded_and_others_are_served": _BOUNDS,
    "tests/http/test_encodings.py": _TABLE,
    "tests/http/test_flood.py": _BOUNDS,
    "tests/http/test_history.py::test_an_id_has_any_characters": _TABLE,
    "tests/http/test_idempotency.py::test_the_document_tells_of_the_header": "a document for each configuration",
    "tests/http/test_numbers.py": _TABLE,
    "tests/http/test_openapi.py::test_the_command_writes_the_export": "a process of its own",
    "tests/http/test_overload_process.py": _BOUNDS,
    "tests/http/test_result_space.py": _BOUNDS,
    "tests/http/test_stalls.py::test_a_stop_signal_is_obeyed_during_a_long_upload": "a process of its own",
    "tests/http/test_streams.py::test_a_reader_that_stops_takes_no_more_than_its_window": _BOUNDS,
    "tests/http/test_targets.py::test_both_ways_read_every_spelling_of_a_path_alike": _TABLE,
    "tests/http/test_tracing.py::test_a_ratio_samples_its_share_of_messages_with_a_uuid": _PROPERTIES,
    "tests/http/test_upload.py::test_100_megabytes_do_not_grow_the_process": _BOUNDS,
    "tests/http/test_upload_bounds.py": _BOUNDS,
    "tests/unit/cloudevents/test_mapping.py::test_an_event_comes_back_as_it_was": _PROPERTIES,
    "tests/unit/cloudevents/test_mapping.py::"
    "test_the_binary_mode_has_all_attributes_as_headers_and_the_data_as_the_body": _PROPERTIES,
    "tests/unit/config/test_token_keys.py::test_processes_that_start_at_once_agree": "processes of their own",
    "tests/unit/envelope/test_canonical.py::test_the_canonical_form_of_any_valid_body": _PROPERTIES,
    "tests/unit/envelope/test_codec_properties.py": _PROPERTIES,
    "tests/unit/observe/test_journal_index.py::test_the_index_is_complete_after_any_kill": "processes of their own",
    "tests/unit/observe/test_rates.py::test_a_queue_takes_as_much_memory_as_is_documented": _BOUNDS,
    "tests/unit/ojs/test_mapping.py::test_a_job_survives_its_time_as_an_envelope": _PROPERTIES,
    "tests/unit/ojs/test_mapping.py::test_an_envelope_survives_its_time_as_a_job_byte_for_byte": _PROPERTIES,
    "tests/unit/ojs/test_mapping.py::test_whatever_a_job_holds_it_is_an_envelope_or_none": _PROPERTIES,
    "tests/unit/test_archives.py": "of a download that only the tests of Keycloak make",
    "tests/unit/test_coverage_report.py": "processes of their own",
    "tests/unit/test_missing.py": "processes of their own",
    "tests/unit/test_scheduling.py": _HARNESS,
    "tests/unit/test_sharing.py": _HARNESS,
    "tests/unit/test_workers.py": _HARNESS,
}
"""Beginnings of names that :data:`ESSENTIAL` has and ``make test`` leaves out, because they cost more than they say:
each with what it is, or what is left of it. The groups have them."""
