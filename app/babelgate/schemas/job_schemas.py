"""The schemas of all jobs, compiled once, and the check of data against them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from babelgate.envelope.publication import MAX_PROBLEMS
from babelgate.errors import ConfigError, Problem, shortened
from babelgate.extras import how_to_install, missing
from babelgate.jsontext import exceeds_depth, pointer
from babelgate.schemas.examples import examples_of
from babelgate.schemas.files import SchemaFault, SchemaFile, read_bundle, read_files
from babelgate.schemas.structure import self_contained, structure_faults, uri_of
from babelgate.schemas.weights import TooHeavy, Weigher, Weight

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator, Registry, ValidationError

    from babelgate.schemas.source import BundleSource

MAX_CHECKS = 500_000
"""Most steps of the check of one message. The library holds the interpreter meanwhile. A step takes 0.3 µs at most, and
usually a tenth of that."""
MAX_EXPLAINED_CHECKS = 10_000
"""The most of them for which all places of mistakes are reported: each costs some 10 µs."""
MAX_EXPLAINED_BYTES = 1_048_576
"""Most bytes of data, multiplied by the checks of one place, for the same: each alternative copies what it refuses."""
MAX_EXPLAINED_DEPTH = 32
"""Most levels of nesting, for the same: each level may copy all below."""
BYTES_OF_A_CHECK = 4
"""Bytes of text that a regular expression reads in a step. The worst expressions take five times as long."""
MULTIPLE_CHECKS = 40
"""Steps of a ``multipleOf``, which is exact for any number."""
PAIRS_OF_A_CHECK = 256
"""Pairs of elements that ``uniqueItems`` compares in a step, if all have the same hash."""
LONG_CHECKS = 14
"""Steps for the same with a pair of long numbers, of which many have the same hash."""
LIBRARY = ("jsonschema_rs",)
"""The modules of the extra ``schemas``."""
_REGEX_BYTES = 65_536
"""Most bytes of a compiled regular expression, and of the cache of its automaton."""
_MASK = "\ue000"
"""Stands for the value in the library's sentences, which would quote it."""
_MAX_PLACE = 200
"""Most characters of a place in a sentence."""

_WORDS = {
    "falseSchema": "{place} is not allowed",
    "contains": "{place} has no element of the kind that the schema requires",
    "not": "{place} is of a kind that the schema excludes",
}
"""The sentences of keywords for which those of the library quote a value or a whole schema."""

_NOT_ALLOWED = ("additionalProperties", "unevaluatedProperties")
"""Keywords whose errors name the members that are not allowed."""

VIOLATION = "schema_violation"
MISSING = "schema_missing"
TOO_LARGE = "schema_check_too_long"


_LONG = re.compile(rb"[0-9]{16,}")


class _WithData(msgspec.Struct):
    data: Any


_decode = msgspec.json.Decoder(_WithData).decode


class JobSchema:
    """The compiled schema of one job."""

    def __init__(self, file: SchemaFile, validator: Draft202012Validator, weight: Weight) -> None:
        self.file = file
        self.weight = weight
        self._validator = validator
        self._is_valid = validator.is_valid

    def problems(self, body: bytes) -> list[Problem]:
        """What is wrong with ``data`` of the envelope ``body``, at most MAX_PROBLEMS; pointers begin with ``/data``.

        Blocks for at most 0.2 s, and with the worst regular expressions 1.5 s for each MiB. No other thread runs then.
        """
        work = self._work(body)
        if work > MAX_CHECKS:
            detail = f"The check of this data could take {work} steps, more than {MAX_CHECKS}: send less at once."
            return [Problem("/data", TOO_LARGE, detail)]
        try:
            data = _decode(body).data
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            # Of a body on a queue, which need not be canonical.
            return [Problem("/data", VIOLATION, "data cannot be read.")]
        if self._is_valid(data):
            return []
        if (
            work > MAX_EXPLAINED_CHECKS
            or len(body) * self.weight.checks > MAX_EXPLAINED_BYTES
            or exceeds_depth(body, MAX_EXPLAINED_DEPTH)
        ):
            detail = f"The data does not match the schema of {self.file.job}. It is too large to say where."
            return [Problem("/data", VIOLATION, shortened(detail))]
        found = (each for error in self._validator.iter_errors(data) for each in _problems(error, data))
        return list(islice(dict.fromkeys(found), MAX_PROBLEMS))

    def _work(self, body: bytes) -> int:
        # Each value follows one of these characters, some of which are in strings.
        values = body.count(b",") + body.count(b"{") + body.count(b"[")
        weight = self.weight
        work = values * weight.checks + len(body) * weight.patterns // BYTES_OF_A_CHECK
        if weight.multiples:
            work += values * MULTIPLE_CHECKS
        if weight.unique:
            work += values**2 // PAIRS_OF_A_CHECK + sum(1 for _ in _LONG.finditer(body)) ** 2 * LONG_CHECKS
        return work


class JobSchemas:
    """The schemas of all jobs; immutable. ``source``: the bundle that they are from; None for a directory.
    ``failure``: why it is an older bundle, which was kept; None: it is the one that was read."""

    def __init__(
        self, schemas: Mapping[str, JobSchema] = {}, source: BundleSource | None = None, failure: str | None = None
    ) -> None:
        self._schemas = schemas
        self.source = source
        self.failure = failure

    def of(self, source: BundleSource, failure: str | None = None) -> JobSchemas:
        """The same schemas, from ``source``."""
        return JobSchemas(self._schemas, source, failure)

    def __len__(self) -> int:
        return len(self._schemas)

    def __iter__(self) -> Iterator[SchemaFile]:
        """The files in the order of their jobs."""
        return iter([self._schemas[job].file for job in sorted(self._schemas)])

    def get(self, job: str) -> SchemaFile | None:
        """The file of the schema of ``job``; None without one."""
        found = self._schemas.get(job)
        return None if found is None else found.file

    def example(self, job: str) -> bytes | None:
        """A draft of a message of ``job`` whose data its schema allows, if one can be made, and else at least resembles
        what it describes; None for a job without a schema, or if its schema is too large. Blocks some milliseconds."""
        if job not in self._schemas:
            return None
        files = {each.job: each for each in self}
        drafts = (msgspec.json.encode({"job": job, "data": data}) for data in examples_of(job, files))
        made = list(islice(drafts, 3))
        return next((each for each in made if not self.problems(job, each)), next(iter(made), None))

    def problems(self, job: str, body: bytes) -> Sequence[Problem]:
        """What is wrong with the envelope ``body`` of ``job``, as its schema has it: at most MAX_PROBLEMS.

        A job without a schema is one problem. Blocks like :meth:`JobSchema.problems`.
        """
        schema = self._schemas.get(job)
        if schema is None:
            return [Problem("/job", MISSING, f"There is no schema of the job {shortened(job)!r}.")]
        return schema.problems(body)


def load(directory: Path) -> JobSchemas:
    """Read and compile the schemas below ``directory``.

    Raises ConfigError with the key ``schemas.directory``, whose ``problems`` are all faults as (key, reason); without
    the library, its ``extra`` is the one to install.
    """
    schemas, faults = compiled(directory)
    refuse(faults, "schemas.directory")
    return schemas


def require_library(key: str) -> None:
    """Raise ConfigError as :func:`load` does, if the library is missing."""
    if missing(LIBRARY):
        reason = f"schemas need a library: {how_to_install('schemas')}"
        raise ConfigError(key=key, reason=reason, extra="schemas")


def refuse(faults: Sequence[SchemaFault], key: str) -> None:
    """Raise ConfigError as :func:`load` does, if there are ``faults``."""
    if faults:
        if missing(LIBRARY):
            raise ConfigError(key=key, reason=str(faults[0]), extra="schemas")
        raise ConfigError(key=key, reason=str(faults[0]), problems=[(key, str(fault)) for fault in faults])


def compiled(directory: Path) -> tuple[JobSchemas, list[SchemaFault]]:
    """The schemas below ``directory``, and all that is wrong with them; no schema is usable if anything is."""
    return _compiled(partial(read_files, directory))


def compiled_bundle(bundle: bytes) -> tuple[JobSchemas, list[SchemaFault]]:
    """The same for the schemas of a bundle, whose size the caller has limited."""
    return _compiled(partial(read_bundle, bundle))


def _compiled(
    read: Callable[[], tuple[dict[str, SchemaFile], list[SchemaFault]]],
) -> tuple[JobSchemas, list[SchemaFault]]:
    if missing(LIBRARY):
        return JobSchemas(), [SchemaFault("", "", f"schemas need a library: {how_to_install('schemas')}")]
    files, faults = read()
    faults += [fault for file in files.values() for fault in _meta_faults(file)]
    if not faults:
        faults = [fault for file in files.values() for fault in structure_faults(file, files)]
    if faults:
        return JobSchemas(), faults
    weigher, schemas, registry = Weigher(files), dict[str, JobSchema](), _registry(files)
    for job, file in files.items():
        try:
            weight = weigher.weigh(job)
            schemas[job] = JobSchema(file, _compile(file, registry), weight)
        except TooHeavy as refused:
            faults.append(SchemaFault(file.path, "", str(refused)))
        except ValueError as error:
            faults.append(_compile_fault(file, error))
    return (JobSchemas(), faults) if faults else (JobSchemas(schemas), [])


def _meta_faults(file: SchemaFile) -> Iterator[SchemaFault]:
    """What the metaschema refuses."""
    import jsonschema_rs

    try:
        jsonschema_rs.meta.validate(file.schema)
    except jsonschema_rs.ValidationError as error:
        yield SchemaFault(file.path, pointer(*error.instance_path), shortened(error.message))


def _registry(files: Mapping[str, SchemaFile]) -> Registry:
    import jsonschema_rs

    resources = [(uri_of(job), self_contained(file)) for job, file in files.items()]
    return jsonschema_rs.Registry(resources, draft=jsonschema_rs.Draft202012, retriever=_fetch_nothing)


def _fetch_nothing(uri: str) -> Any:
    raise ValueError(f"{uri} is not in the directory")


def _compile(file: SchemaFile, registry: Registry) -> Draft202012Validator:
    """Raises ValueError for a regular expression that could backtrack or is too large, and for an unknown format."""
    import jsonschema_rs

    return jsonschema_rs.Draft202012Validator(
        self_contained(file),
        registry=registry,
        offline=True,
        mask=_MASK,
        validate_formats=True,
        ignore_unknown_formats=False,
        # The engine without backtracking: it takes time in proportion to the text.
        pattern_options=jsonschema_rs.RegexOptions(size_limit=_REGEX_BYTES, dfa_size_limit=_REGEX_BYTES),
    )


def _compile_fault(file: SchemaFile, error: ValueError) -> SchemaFault:
    place = pointer(*getattr(error, "instance_path", ()))
    message = getattr(error, "message", str(error))
    if place.endswith("/pattern") or "/patternProperties" in place:
        message = (
            "no regular expression of the supported kind: look-around and back references can take long, and one may "
            f"have at most {_REGEX_BYTES} bytes when compiled"
        )
    return SchemaFault(file.path, place, shortened(message))


def _problems(error: ValidationError, data: Any) -> Iterator[Problem]:
    """The places of ``error`` in the envelope, each with a sentence that quotes the schema and no value."""
    path, kind = ("data", *error.instance_path), error.kind
    if isinstance(name := getattr(kind, "property", None), str):
        yield _problem((*path, name), "{place} is required")
    elif names := _not_allowed(error, data):
        for name in names:
            yield _problem((*path, name), "{place} is not allowed")
    else:
        yield _problem(path, _WORDS.get(kind.name) or error.message)


def _not_allowed(error: ValidationError, data: Any) -> Sequence[str]:
    """The members that are not allowed; empty for an error about something else."""
    if error.kind.name == "falseSchema" and error.schema_path[-1:] == ["additionalProperties"]:
        # No member is allowed, and the error is about the object with them.
        for step in error.instance_path:
            data = data[step]
        return list(data)
    unexpected = getattr(error.kind, "unexpected", ()) if error.kind.name in _NOT_ALLOWED else ()
    return [name for name in unexpected if isinstance(name, str)]


def _problem(path: Sequence[str | int], sentence: str) -> Problem:
    place = ".".join(str(name)[:_MAX_PLACE] for name in path)
    place = place if len(place) <= _MAX_PLACE else f"{place[:_MAX_PLACE]}…"
    detail = sentence.replace("{place}", place) if sentence.startswith("{place}") else sentence.replace(_MASK, place)
    return Problem(pointer(*path), VIOLATION, shortened(f"{detail}."))
