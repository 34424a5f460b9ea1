"""The events of one run, in the classes of the official client."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from inspect import cleandoc
from typing import Any

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    documentation_job,
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    output_statistics_output_dataset,
    parent_run,
    processing_engine_run,
    schema_dataset,
    source_code_location_job,
    storage_dataset,
)
from openlineage.client.uuid import generate_new_uuid

from babelgate import __version__
from babelgate.pipeline.lineage.datasets import Facts, LineageDataset, Options, dataset_name, datasets_of

_REPOSITORY = "https://github.com/babelgate/babelgate"
_PRODUCER = f"{_REPOSITORY}/tree/v{__version__}/app/babelgate/pipeline"
_DEFAULT_NAMESPACE = "babelgate"


class RunEvents:
    """Makes the events of one run of ``job``. ``streaming``: it runs until it is stopped."""

    def __init__(self, job: str, description: str, options: Options, *, streaming: bool) -> None:
        self._job = job
        self._options = options
        self._run_id = str(generate_new_uuid())
        self._description = " ".join(cleandoc(description).partition("\n\n")[0].split())
        self._streaming = streaming

    def event(self, state: str, facts: Facts, error: str | None = None) -> RunEvent:
        """An event of now. ``state``: START, RUNNING, COMPLETE, FAIL or ABORT; ``error``: why it failed, one line."""
        found = datasets_of(self._job, self._options, facts)
        assert found is not None, self._job
        return RunEvent(
            eventType=RunState(state),
            eventTime=datetime.now(UTC).isoformat(),
            producer=_PRODUCER,
            run=Run(self._run_id, self._run_facets(error)),
            job=Job(os.environ.get("OPENLINEAGE_NAMESPACE") or _DEFAULT_NAMESPACE, self.name, self._job_facets()),
            inputs=[_input(each) for each in found.inputs],
            outputs=[_output(each) for each in found.outputs],
        )

    @property
    def name(self) -> str:
        """The name of the job in its namespace."""
        return f"babelgate.pipeline.{self._job}"

    def _run_facets(self, error: str | None) -> dict[str, Any]:
        facets: dict[str, Any] = {
            "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
                version=__version__, name="babelgate", producer=_PRODUCER
            )
        }
        if parent := _parent(os.environ.get("OPENLINEAGE_PARENT_ID", "")):
            facets["parent"] = parent
        if error is not None:
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(error, "PYTHON", producer=_PRODUCER)
        return facets

    def _job_facets(self) -> dict[str, Any]:
        return {
            "jobType": job_type_job.JobTypeJobFacet(
                processingType="STREAMING" if self._streaming else "BATCH",
                integration="BABELGATE",
                jobType="COMMAND",
                producer=_PRODUCER,
            ),
            "documentation": documentation_job.DocumentationJobFacet(self._description, producer=_PRODUCER),
            # Without it the client would take the repository that the command is run in, with what its URL has.
            "sourceCodeLocation": source_code_location_job.SourceCodeLocationJobFacet(
                type="git", url=_PRODUCER, repoUrl=_REPOSITORY, tag=f"v{__version__}", producer=_PRODUCER
            ),
        }


def _parent(text: str) -> parent_run.ParentRunFacet | None:
    """The run that started this one, as ``namespace/job/run id``, which Airflow and dbt pass on; None if it is not."""
    namespace, _, rest = text.rpartition("/")[0].partition("/")
    try:
        run = parent_run.Run(text.rpartition("/")[2])
    except ValueError:
        return None
    if not (namespace and rest):
        return None
    return parent_run.ParentRunFacet(run=run, job=parent_run.Job(namespace, rest), producer=_PRODUCER)


def _input(dataset: LineageDataset) -> InputDataset:
    counts = _counts(dataset)
    facet = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(**counts, producer=_PRODUCER)
    inputs: dict[str, Any] = {"inputStatistics": facet} if counts else {}
    return InputDataset(*dataset_name(dataset.url), inputFacets=inputs, facets=_facets(dataset))


def _output(dataset: LineageDataset) -> OutputDataset:
    counts = _counts(dataset)
    facet = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(**counts, producer=_PRODUCER)
    outputs: dict[str, Any] = {"outputStatistics": facet} if counts else {}
    return OutputDataset(*dataset_name(dataset.url), outputFacets=outputs, facets=_facets(dataset))


def _counts(dataset: LineageDataset) -> dict[str, int]:
    counts: Mapping[str, int | None] = {"rowCount": dataset.rows, "size": dataset.size, "fileCount": dataset.files}
    return {name: count for name, count in counts.items() if count is not None}


def _facets(dataset: LineageDataset) -> dict[str, Any]:
    if dataset.columns is None:
        return {}
    fields = [schema_dataset.SchemaDatasetFacetFields(name, kind) for name, kind in dataset.columns.items()]
    return {
        "schema": schema_dataset.SchemaDatasetFacet(fields, producer=_PRODUCER),
        "storage": storage_dataset.StorageDatasetFacet("delta", "parquet", producer=_PRODUCER),
    }
