"""Run one stage in this process: check its inputs, hold the lock, write the dataset, measure."""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib.metadata
import math
import platform
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from superworkflow.infra.base.errors import DataFileGone, SuperworkflowError, UserError
from superworkflow.infra.base.suggest import nearest
from superworkflow.infra.contract.code_file import INPUT, CodeFile
from superworkflow.infra.contract.params import P, parse_params
from superworkflow.infra.contract.resources import Resources, format_bytes
from superworkflow.infra.contract.stage import IN_PROCESS, Output, Progress, Stage, StageRun
from superworkflow.infra.engines import engine as engine_named
from superworkflow.infra.engines import engines
from superworkflow.infra.process.compile_clock import clock
from superworkflow.infra.process.gc_pause import collect
from superworkflow.infra.process.resource_usage import (
    container_usage,
    cpu_seconds,
    delayed_seconds,
    peak_memory_bytes,
    process_age_seconds,
    processor,
)
from superworkflow.infra.storage.attempt_marker import remove_marker, reopen
from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.infra.storage.digest import dataset_digest
from superworkflow.infra.storage.lease import LeaseClaim
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.lock import LeaseLost, Right, exclusive
from superworkflow.infra.storage.manifest import CHECKPOINT_FOLDER, InputEntry, Manifest, Measurement
from superworkflow.infra.storage.scratch import Scratch, remove_abandoned
from superworkflow.infra.storage.source import Source
from superworkflow.infra.storage.table_access import TableAccess, reach_of
from superworkflow.infra.storage.upload import upload

_SOFTWARE = ("numpy", "numba", "duckdb", "torch", "scikit-learn")


@dataclass(frozen=True)
class Executed:
    """Outcome of `execute`: the dataset, and whether another run had made it while this one waited."""

    dataset: Dataset
    reused: bool

    @property
    def manifest(self) -> Manifest:
        return self.dataset.manifest


def execute(
    stage: Stage[P],
    params: Mapping[str, Any],
    inputs: Mapping[str, str],
    output: str,
    resources: Resources,
    progress: Progress,
    engine: str = IN_PROCESS,
    expected: str = "",
    on_lost: Callable[[LeaseLost], None] = lambda error: None,
    claim: LeaseClaim = LeaseClaim(),  # noqa: B008
    code: CodeFile | None = None,
    tables_from: Sequence[str] = (),
) -> Executed:
    """Make one dataset.

    Args:
        stage: what to run.
        params: parameter values; defaults fill the rest.
        inputs: URI of each input.
        output: URI of the dataset's folder.
        resources: what the stage may use.
        progress: receives its progress.
        engine: which of the stage's engines computes; the dataset is the same.
        expected: digest by the run's plan; empty to accept any.
        on_lost: called from another thread when another run has taken over the dataset; it may end this process.
        claim: under which name the dataset is locked on an object store.
        code: the user's file that defines the stage.
        tables_from: prefixes below which inputs that describe tables may name them; anywhere with `expected`.

    Raises:
        UserError: bad parameters, inputs, engine or output; the digest is not `expected`; or inputs changed while
            they were read. Nothing that looks complete is left behind.
        LeaseLost: another run has taken over the dataset.
    """
    stage.check_engine(engine, "--engine")
    clock.reset(lambda: progress.log("compiling kernels (their first use on this machine)"))
    engine_settings = engine_named(engine).settings()
    parsed = parse_params(stage.params, params, stage.name)
    with ThreadPoolExecutor(1, thread_name_prefix="inputs") as pool:
        # Sums the sources' bytes, without holding the interpreter.
        opened = pool.submit(open_inputs, stage, inputs, tables_from, bool(expected))
        with contextlib.suppress(Exception):
            stage.function(engine)  # imports in parallel; an error of this is raised again by the call below
    collect()  # everything long-lived has been allocated
    datasets, sources = opened.result()
    given: dict[str, InputEntry] = {
        name: InputEntry(digest=dataset.digest, stage=dataset.manifest.stage)
        for name, dataset in datasets.items()
        if stage.inputs[name].affects_result
    } | {name: InputEntry(digest=source.digest) for name, source in sources.items()}
    if code is not None:
        given[INPUT] = InputEntry(digest=code.sha256)
    identity = parsed.identity()
    digest = dataset_digest(stage.name, stage.version, identity, {n: entry.digest for n, entry in given.items()})
    if expected not in ("", digest):
        raise _unexpected(stage, inputs, expected, digest)
    location = Location.of(output)
    closing = contextlib.ExitStack()
    for each in datasets.values():
        closing.callback(each.close)
    requested = time.monotonic()
    with (
        _store_errors(location),
        closing,
        exclusive(
            location, lambda: progress.log("another run is making this dataset; waiting"), on_lost, claim
        ) as right,
    ):
        waited = time.monotonic() - requested
        existing = Dataset.find(location)
        if existing is not None:
            if existing.digest != digest:
                raise UserError(
                    "another dataset is already here", where=location.uri, value=existing.digest,
                    remedy=f"Choose another --output, or one that ends in {digest}",
                )  # fmt: skip
            try:
                existing.verify("size")
            except DataFileGone as error:
                progress.log(f"making the dataset again, since one of its files is gone: {error}")
                right.check()
                reopen(location, digest, existing.files())
            else:
                remove_marker(location)
                return Executed(existing, reused=True)
        writer = DatasetWriter(location, digest, right)
        with _folders(location, right, progress) as folders:
            run = StageRun(
                params=parsed, inputs=datasets, sources=sources, output=writer, resources=resources,
                progress=progress, checkpoint=folders.checkpoint, scratch=folders.scratch,
                save_checkpoint=folders.save, engine=engine, engine_settings=engine_settings,
            )  # fmt: skip
            try:
                result = stage.function(engine)(run)
                _check_output(stage, result, progress)
                for source in sources.values():
                    source.check_unchanged()
                try:
                    dataset = _commit(stage, engine, identity, given, writer, result, waited)
                except ValidationError as error:
                    raise _bad_output(stage, error) from None
            finally:
                writer.close()
    return Executed(dataset, reused=False)


def _check_output(stage: Stage[Any], result: object, progress: Progress) -> None:
    """Refuse a result that is no Output, and log metrics that are not declared or not finite."""
    if not isinstance(result, Output):
        raise UserError("the stage's function returned no Output", where=f"stage {stage.name}",
                        value=type(result).__name__, remedy="End it with return Output(rows=…)")  # fmt: skip
    if strange := sorted({name.partition("@")[0] for name in result.metrics} - {*stage.metrics}):
        progress.log(f"warning: stage {stage.name} declares no metric {', '.join(strange)}, so no outcome can name it; "
                     f"it declares {', '.join(stage.metrics) or 'none'}")  # fmt: skip
    values: Mapping[str, Any] = result.metrics
    for name, value in values.items():
        if not isinstance(value, Real):
            raise UserError("is no number", where=f"stage {stage.name}, metric {name}", value=value,
                            remedy="Report a number")  # fmt: skip
        if not math.isfinite(value):
            progress.log(f"warning: metric {name} is {value}, which no table shows")


def _bad_output(stage: Stage[Any], error: ValidationError) -> UserError:
    first = error.errors(include_url=False)[0]
    name = ".".join(str(part) for part in first["loc"][:2])
    return UserError("the Output that the stage's function returned has a value of another kind",
                     where=f"stage {stage.name}, {name}", value=first.get("input"),
                     remedy="Give rows as a whole number from 0 on, and stats as numbers or text",
                     )  # fmt: skip


def _unexpected(stage: Stage[Any], inputs: Mapping[str, str], expected: str, digest: str) -> UserError:
    named = ", ".join(f"{name}={uri}" for name, uri in inputs.items())
    return UserError(
        f"what the stage has read is not what the run was planned with: its digest would be {digest}, and {expected}"
        " was planned. An input has changed since, or this program has another version of the stage",
        where=f"stage {stage.name}", value=named, remedy="Run again, which plans anew with the inputs as they are now",
    )  # fmt: skip


def open_inputs(
    stage: Stage[Any], uris: Mapping[str, str], tables_from: Sequence[str] = (), planned: bool = False
) -> tuple[dict[str, Dataset], dict[str, Source]]:
    """Open what `uris` names as `stage` declares it.

    Args:
        stage: whose inputs they are.
        uris: by name.
        tables_from: prefixes below which any description of tables may name some.
        planned: the digest of all of it is known beforehand.

    Raises:
        UserError: an unknown, missing or unreadable input.
    """
    for name in uris:
        if name not in stage.inputs:
            raise UserError(
                f"stage {stage.name} has no such input", where=name, remedy=nearest(name, list(stage.inputs))
            )
    datasets: dict[str, Dataset] = {}
    sources: dict[str, Source] = {}
    for name, declared in stage.inputs.items():
        if name not in uris:
            if not declared.optional:
                raise UserError(
                    f"stage {stage.name} needs this input ({declared.help})", where=name,
                    remedy=f"Give it with --input {name}=URI",
                )  # fmt: skip
        elif declared.is_source:
            reach = TableAccess(anywhere=True) if planned else reach_of(uris[name], tables_from)
            sources[name] = declared.open(Source.of(uris[name], reach=reach))
        else:
            location = Location.of(uris[name])
            with _store_errors(location) if location.local_path is None else contextlib.nullcontext():
                datasets[name] = Dataset.open(location)
    for source in sources.values():
        source.members  # noqa: B018  (sums their bytes)
    return datasets, sources


def _commit(
    stage: Stage[Any],
    engine: str,
    identity: Mapping[str, Any],
    given: Mapping[str, InputEntry],
    writer: DatasetWriter,
    result: Output,
    waited: float,
) -> Dataset:
    writer.wait_for_checksums()  # its work belongs to what is measured
    container_cpu_s, container_peak = container_usage()
    compile_s, compile_cpu_s = clock.seconds
    measured = Measurement(
        runtime_s=max(0.0, process_age_seconds() - waited - compile_s),
        cpu_s=max(0.0, cpu_seconds() - compile_cpu_s), peak_memory_bytes=peak_memory_bytes(),
        rows=result.rows, bytes=writer.bytes_written,
        container_cpu_s=None if container_cpu_s is None else max(0.0, container_cpu_s - compile_cpu_s),
        container_peak_memory_bytes=container_peak,
        compile_s=compile_s, compile_cpu_s=compile_cpu_s,
        delayed_s=delayed_seconds(), processor=processor(),
    )  # fmt: skip
    return writer.commit(
        stage=stage.name, version=stage.version, params=identity, inputs=given,
        stats=result.manifest_stats(), measured=measured, software=software_versions(), engine=engine,
    )  # fmt: skip


@functools.cache
def software_versions() -> dict[str, str]:
    """Versions of Python and of the installed libraries that compute."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in (*_SOFTWARE, *(name for each in engines() for name in each.software)):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


class _folders:
    """Checkpoint and scratch folders of one attempt; the checkpoint of a remote dataset is mirrored to the store."""

    def __init__(self, location: Location, right: Right, progress: Progress):
        self._remote, self._right, self._progress = location.join(CHECKPOINT_FOLDER), right, progress
        remove_abandoned()
        self._folder = Scratch("stage")
        self.scratch = self._folder.path
        self.checkpoint = self._remote.local_path or self.scratch / CHECKPOINT_FOLDER

    def __enter__(self) -> _folders:
        self.checkpoint.mkdir(parents=True, exist_ok=True)
        if self._remote.local_path is None:
            for name in self._remote.walk_files():
                (self.checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
                self._remote.join(name).download(self.checkpoint / name)
        return self

    def save(self) -> None:
        if self._remote.local_path is not None:
            return
        try:
            self._mirror()
        except SuperworkflowError:
            raise
        except Exception as error:  # the work is worth more than this copy of it, and the next one may be kept
            self._progress.log(
                f"warning: the checkpoint could not be sent to the store ({type(error).__name__}: {error}); "
                "continuing, and trying again with the next one"
            )

    def _mirror(self) -> None:
        # Impatient, since the stage waits for this: within seconds the store has the files or has not.
        remote = self._remote.hurried()
        files = sorted((path for path in self.checkpoint.rglob("*") if path.is_file()), key=_written)
        # In the order in which they were written: the last one names the others, and until then the old ones count.
        for path in files:
            upload(path, remote.join(path.relative_to(self.checkpoint).as_posix()), self._right, patient=False)
        kept = {path.relative_to(self.checkpoint).as_posix() for path in files}
        for name in set(remote.walk_files()) - kept:
            remote.join(name).delete()  # else a checkpoint that the stage replaced would come back

    def __exit__(self, *exc: object) -> None:
        self._folder.remove()
        if self._remote.local_path is not None and self.checkpoint.is_dir() and not any(self.checkpoint.iterdir()):
            self.checkpoint.rmdir()


def _written(path: Path) -> int:
    return path.stat().st_mtime_ns


class _store_errors:
    """Turns the errors of a file system or an object store into messages for people."""

    def __init__(self, location: Location):
        self._location = location

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        remote = self._location.local_path is None
        of_client = type(error).__module__.partition(".")[0] in ("botocore", "aiobotocore", "aiohttp")
        number = getattr(error, "errno", None)
        missing = isinstance(error, FileNotFoundError) and not (remote and number is None)  # else such as its bucket
        if of_client or (isinstance(error, OSError) and not missing):
            assert error is not None
            reason = getattr(error, "strerror", None) or str(error)
            if number is None and (folder := self._location.local_path) is not None and folder.exists():
                # NumPy says how many items it could write, and not why it stopped.
                reason += f"; {format_bytes(shutil.disk_usage(folder).free)} are free there"
            remote = of_client or (remote and number not in (errno.ENOSPC, errno.EDQUOT))
            here = "Check its permissions" if number in (errno.EACCES, errno.EPERM) else "Free space"
            remedy = "Check that the store can be reached from here" if remote else f"{here} or choose another store"
            raise UserError(
                f"{'cannot read or write' if remote else 'cannot write'}: {reason}",
                where=str(getattr(error, "filename", None) or self._location.uri),
                remedy=f"{remedy}; complete stages are kept and will not run again",
            ) from error
