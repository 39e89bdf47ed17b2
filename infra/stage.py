"""The stage contract: from input datasets and parameters to one output dataset.

A stage is one module in `tasks/` with a `STAGE` object. The module itself is light (parameters, estimate); the
function that does the work is named by an import string, so that plans and flows need none of its libraries:

    STAGE = Stage(
        name="walk", version="1", params=WalkParams, inputs={"graph": Input("index dataset")},
        run="tasks.walk.run:run", image="cpu", estimate=estimate,
    )

    # tasks/walk/run.py
    def run(job: StageRun[WalkParams]) -> Output: ...

A stage knows nothing of the orchestrator, the tracker or the cluster. Given the same parameters and inputs it
makes the same dataset, whatever its threads, engine or machine; its `version` is raised when that changes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, cast

from infra.dataset import Dataset, DatasetWriter
from infra.manifest import Stat
from infra.params import P
from infra.progress import Progress
from infra.resources import Resources
from infra.store import Source

Stats = Mapping[str, Stat]


@dataclass(frozen=True)
class Input:
    """One input of a stage."""

    help: str
    optional: bool = False
    file: bool = False
    """A source file rather than a dataset."""


@dataclass(frozen=True)
class Output:
    """What a stage says of the dataset it wrote.

    Args:
        rows: rows in the field's sense: edges, walks, embeddings, …
        stats: facts that later stages, plans and records read from the manifest. Numbers under `metrics.` are quality.
    """

    rows: int
    stats: Stats = field(default_factory=dict)


@dataclass(frozen=True)
class Estimate:
    """Prediction of a stage before it runs.

    Args:
        memory_bytes: peak memory of the stage's process.
        cpu_s: CPU seconds on one current core of a server.
        output_bytes: bytes of data files.
        stats: predicted facts of the output, which the estimates of later stages read.
        parallel: share of the work that threads divide among themselves (Amdahl).
    """

    memory_bytes: int
    cpu_s: float
    output_bytes: int
    stats: Stats = field(default_factory=dict)
    parallel: float = 0.9

    def runtime_s(self, threads: int) -> float:
        """Wall seconds on `threads` cores."""
        return self.cpu_s * (1 - self.parallel + self.parallel / threads)


@dataclass
class StageRun(Generic[P]):
    """All that a stage's function is given.

    Args:
        params: validated parameters.
        inputs: datasets by name; optional ones that were not given are absent.
        sources: source files by name.
        output: where to write.
        resources: what may be used; `resources.threads` is the number of threads.
        progress: where to tell how far the work is.
        checkpoint: local folder that survives a crash of this stage and is gone once its dataset is complete.
        scratch: local folder for temporary files, removed at the end.
        save_checkpoint: call after writing to `checkpoint`; sends it to the store when that is remote.
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

    @property
    def threads(self) -> int:
        return self.resources.threads


@dataclass(frozen=True)
class Stage(Generic[P]):
    """Definition of one stage.

    Args:
        name: lower-case word, also the folder in the store.
        version: raised when the same parameters and inputs give another result.
        params: parameter model.
        inputs: input datasets and files by name.
        run: import string `module:function` of the work.
        estimate: (parameters, stats of each input by name, resources) to a prediction; the stats of a source
            file hold `bytes`.
        image: kind of image that holds what the stage needs: `cpu`, `torch` or `spark`.
        help: one line for people.
    """

    name: str
    version: str
    params: type[P]
    inputs: Mapping[str, Input]
    run: str
    estimate: Callable[[P, Mapping[str, Stats], Resources], Estimate]
    image: str = "cpu"
    help: str = ""

    def function(self) -> Callable[[StageRun[P]], Output]:
        """Import the function that does the work."""
        module, _, name = self.run.partition(":")
        return cast("Callable[[StageRun[P]], Output]", getattr(importlib.import_module(module), name))
