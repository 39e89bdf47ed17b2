"""The stage contract: from input datasets and parameters to one output dataset.

A stage is one module in `tasks/` with a `STAGE` object. The module itself is light (parameters, estimate); the
function that does the work is named by an import string, so that plans and flows need none of its libraries:

    STAGE = Stage(
        name="degrees", run="superworkflow.tasks.degrees.run:run", inputs={"graph": Input("index dataset")},
        params=DegreesParams, estimate=estimate,
    )

    # tasks/degrees/run.py
    def run(job: StageRun[DegreesParams]) -> Output: ...

A stage knows nothing of the orchestrator, the tracker or the cluster. Given the same parameters and inputs it
makes the same dataset, whatever its threads, engine or machine; its `version` is raised when that changes.
Parameters, estimates, resources and progress, each in a module of its own, are imported from here as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, cast

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.import_strings import imported
from superworkflow.infra.contract.estimate import Estimate, Process, Stats, estimate_from_bytes
from superworkflow.infra.contract.params import P, StageParams
from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.infra.storage.manifest import DRIFT_PREFIX, METRIC_PREFIX, Stat
from superworkflow.infra.storage.part_files import check_parts
from superworkflow.infra.storage.source import Source

__all__ = (
    "IN_PROCESS", "LOOK_BYTES", "Estimate", "Input", "Output", "Process", "Progress", "Resources", "Stage",
    "StageParams", "StageRun", "Stats",
)  # fmt: skip

IN_PROCESS = "in-process"
"""The engine that every stage has: its own process."""

LOOK_BYTES = 32 << 20
"""Bytes of a source that planning reads."""


@dataclass(frozen=True)
class Input:
    """One input of a stage: a dataset, or a source in one of the forms that it may have.

    Args:
        help: one line for people.
        optional: the stage does without.
        file: a source that is one file.
        folder: a source that is a folder of files.
        parts: a source that is one table, in a file or in a folder of part files (`infra.storage.part_files`).
        tables: a source that is a description of tables: import string of a function of its text and its name for
            people, to the names of their files as `infra.storage.table_files.find_files` takes them. For YAML and JSON
            with keys `file` or `files` it is `superworkflow.infra.storage.table_files:named_files`.
        inside: name of the description in a folder, where such a folder may be given instead of it.
        stats: import string of a function of the source and the number of bytes of it that may be read, to facts by
            name for estimates. `bytes` and `files` are always there.
        affects_result: False for an input that is another form of what the other inputs hold, such as a graph in
            parts: it is not in the digest, and the stage refuses one that is a form of something else.
    """

    help: str
    optional: bool = False
    file: bool = False
    folder: bool = False
    parts: bool = False
    tables: str = ""
    inside: str = ""
    stats: str = ""
    affects_result: bool = True

    @property
    def is_source(self) -> bool:
        return self.file or self.folder or self.parts or bool(self.tables)

    def open(self, source: Source) -> Source:
        """The source, which from now on is what this says.

        Raises:
            UserError: it is a folder where a file is read, or the other way round; or it is no folder of part files.
            ValueError: the input is a dataset, or another stage has declared the source otherwise.
        """
        if not self.is_source:
            raise ValueError(f"{source.uri} is a source, and this input takes a dataset ({self.help}): declare it with "
                             "file=True, folder=True, parts=True or tables")  # fmt: skip
        source.read_as(
            file=self.file or self.parts, folder=self.folder or self.parts, tables=self.tables, inside=self.inside
        )
        if self.parts and source.is_folder:
            check_parts(source)
        return source

    def stats_of(self, source: Source, look_bytes: int = LOOK_BYTES) -> Stats:
        """Stats of a source, as estimates read them."""
        stats: dict[str, Stat] = {"bytes": source.total_bytes, "files": len(source.files())}
        if self.stats:
            stats |= imported(self.stats)(source, look_bytes)
        return stats


@dataclass(frozen=True)
class Output:
    """Result of a stage: rows, stats and figures of the dataset it wrote.

    Args:
        rows: rows in the field's sense, such as vertices of a graph.
        stats: facts that later stages, plans and records read from the manifest.
        metrics: quality by name, as `Stage.metrics` declares it; `f1@0.5` is `f1` at a setting.
        drift: distance of the data from earlier ones by name, as `Stage.drift` declares it.
    """

    rows: int
    stats: Stats = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    drift: Mapping[str, float] = field(default_factory=dict)

    def manifest_stats(self) -> dict[str, Stat]:
        """Everything as the manifest keeps it: metrics and drift under their prefixes."""
        figures = {METRIC_PREFIX + name: value for name, value in self.metrics.items()}
        return {**self.stats, **figures, **{DRIFT_PREFIX + name: value for name, value in self.drift.items()}}


@dataclass
class StageRun(Generic[P]):
    """Argument of a stage's function.

    Args:
        params: validated parameters.
        inputs: datasets by name; optional ones that were not given are absent.
        sources: sources by name.
        output: where to write.
        resources: what may be used; `resources.threads` is the number of threads.
        progress: receives progress and log messages.
        checkpoint: local folder that survives a crash of this stage and is gone once its dataset is complete.
        scratch: local folder for temporary files, removed at the end.
        save_checkpoint: call after writing to `checkpoint`; sends it to the store when that is remote, the files in
            the order in which they were written. A store that does not take it is a warning.
        engine: which of the stage's engines computes.
        engine_settings: the launcher's settings of the engine; empty where it works inside this process.
    """

    params: P
    inputs: Mapping[str, Dataset]
    sources: Mapping[str, Source]
    output: DatasetWriter
    resources: Resources
    progress: Progress
    checkpoint: Path
    scratch: Path
    save_checkpoint: Callable[[], None] = lambda: None
    engine: str = IN_PROCESS
    engine_settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def threads(self) -> int:
        return self.resources.threads


@dataclass(frozen=True)
class Stage(Generic[P]):
    """Definition of one stage.

    Args:
        name: lower-case word, also the folder in the store.
        run: the work in the stage's own process: a function of a `StageRun`, or its import string `module:function`,
            which imports its libraries only where it runs.
        inputs: input datasets and files by name.
        params: parameter model; without one the stage has no parameters.
        version: raised when the same parameters and inputs give another result.
        engines: import strings of the same work on other engines, by engine.
        estimate: (parameters, stats of each input by name, resources) to a prediction; the stats of a source are
            those of `Input.stats_of`, those of a dataset have its `bytes` too. By default in proportion to input bytes.
        image: kind of image that holds what the stage needs in process: `cpu` or `torch`. An engine may have a kind
            of its own.
        images: kinds of images on other engines, by engine, where they differ from that in process.
        estimates: predictions of the work on other engines, by engine, where it differs from that in process. Memory
            is that of each member that works, where the engine has them; what the engine itself takes is added.
        help: one line for people.
        late: modules that `run` imports only when some parameters need them; where one process starts many stages,
            it has them imported beforehand.
        check: import string of a function of the parameters that raises UserError where this machine cannot do what
            they ask for, such as train on a GPU.
        metrics: names of the figures that it may report as `Output.metrics`, without their settings.
        steps: of a stage that reports intermediate values (`Progress.report`): the number of them, from its parameters.
            Sweeps stop trials early by these, and plan for this number.
        drift: names of the figures that it may report as `Output.drift`: 0 where nothing has changed, and larger
            where more has.
        params_of: names of other stages whose parameters it reads: each field of `params` is that of the first one that
            has it. It has no parameters of its own, and its digest depends on those alone that it reads.
        needs: packages without which it cannot run in process; those of its kind of image that it can do without, as
            `torch` where another kernel exists, are not among them.
        doubts: import string of a function of the parameters and the sources by name, to the warnings about them that
            the work will give, as far as the first rows show them. Plans show them, and what it raises.
    """

    name: str
    run: str | Callable[[StageRun[P]], Output]
    inputs: Mapping[str, Input]
    params: type[P] = StageParams  # type: ignore[assignment]
    version: str = "1"
    estimate: Callable[[P, Mapping[str, Stats], Resources], Estimate] = estimate_from_bytes
    image: str = "cpu"
    images: Mapping[str, str] = field(default_factory=dict)
    help: str = ""
    engines: Mapping[str, str] = field(default_factory=dict)
    estimates: Mapping[str, Callable[[P, Mapping[str, Stats], Resources], Estimate]] = field(default_factory=dict)
    late: tuple[str, ...] = ()
    check: str = ""
    metrics: tuple[str, ...] = ()
    steps: Callable[[P], int] | None = None
    drift: tuple[str, ...] = ()
    params_of: tuple[str, ...] = ()
    doubts: str = ""
    needs: tuple[str, ...] = ()

    def check_machine(self, params: P) -> None:
        """Refuse parameters that ask for what this machine does not have.

        Raises:
            UserError: as the stage's own check says.
        """
        if self.check:
            imported(self.check)(params)

    def check_engine(self, name: str, where: str) -> None:
        """Refuse an engine that this stage does not have.

        Args:
            name: of the engine.
            where: what asked for it, for the error.

        Raises:
            UserError: names the engines that there are.
        """
        if name != IN_PROCESS and name not in self.engines:
            raise UserError(
                f"stage {self.name} does not run on this engine", where=where, value=name,
                remedy=f"Valid for {self.name}: {', '.join([IN_PROCESS, *self.engines])}",
            )  # fmt: skip

    def estimate_on(self, name: str, params: P, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
        """The prediction of the work on an engine."""
        return self.estimates.get(name, self.estimate)(params, inputs, resources)

    def function(self, on: str = IN_PROCESS) -> Callable[[StageRun[P]], Output]:
        """Import the function that does the work on an engine.

        Raises:
            UserError: the stage does not have this engine.
        """
        self.check_engine(on, "--engine")
        if on == IN_PROCESS and not isinstance(self.run, str):
            return self.run
        return cast(
            "Callable[[StageRun[P]], Output]", imported(self.run_path if on == IN_PROCESS else self.engines[on])
        )

    @property
    def run_path(self) -> str:
        """Import string of the work in process."""
        return self.run if isinstance(self.run, str) else f"{self.run.__module__}:{self.run.__qualname__}"
