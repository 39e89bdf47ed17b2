"""Records of earlier launches, kept in the store for forecasts: `.records/<stage>.json`.

Manifests say what a stage's process measured, but not how long it waited for its pod, nor the sizes of source files;
and on object storage the newest of thousands cannot be found without reading all. So each launch is added to one small
file per stage, which keeps the newest records. Of two concurrent writes one may be lost; a forecast then rests on one
run less.
"""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from superworkflow.infra.config.profile import Placement
from superworkflow.infra.config.request import Request
from superworkflow.infra.contract.diagram import Node
from superworkflow.infra.contract.estimate import input_stats
from superworkflow.infra.contract.resources import Resources
from superworkflow.infra.launch.base import Launched
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.manifest import Stat
from superworkflow.infra.storage.store import Store

FOLDER = ".records"
KEPT = 48
"""Records of each stage."""
RECORD_BYTES = 16 << 10
"""A longer record, of a stage with a very long list among its parameters, is not kept."""

_LOOK_BYTES = 1 << 20
"""Bytes of a source file that are read."""
_guard = threading.Lock()

Seconds = Annotated[float, Field(ge=0, le=1e8, allow_inf_nan=False)]
Size = Annotated[int, Field(ge=0, le=1 << 50)]
Text = Annotated[str, Field(max_length=512)]


class MembersRecord(BaseModel, frozen=True):
    """Usage of the members of one role in a launch."""

    cpu_s: Seconds = Field(description="Of all together.")
    memory_bytes: Size = Field(description="Peak of the largest.")


class LaunchRecord(BaseModel, frozen=True):
    """One launch of a stage that ended well.

    `params` and `inputs`, the stats of each input by name, are what the stage's estimate is made from, so that what was
    measured is held against the estimate as it is today. Compiling kernels is in none of the seconds.
    """

    time: datetime = Field(default_factory=lambda: datetime.now(UTC), alias="at")
    version: Text = Field(description="Of the stage.")
    engine: Text
    launcher: Text = Field(description="`process` or `kubernetes`.")
    cluster: Text = Field(default="", description="Name of the profile, where the launcher is a cluster's.")
    image: Text = Field(default="", description="With its digest.")
    processor: Text = Field(default="", description="Kind of processor.")
    resources: Resources
    params: dict[str, Any]
    inputs: dict[str, dict[str, Stat]]
    cpu_s: Seconds
    runtime_s: Seconds = Field(description="From the beginning of its process to its end.")
    wait_s: Seconds = Field(description="For which resources were held beyond that: pod start, container start.")
    memory_bytes: Size
    compile_s: Seconds = 0.0
    delayed_s: Seconds = Field(default=0.0, description="For which its threads waited for a processor at most.")
    members: dict[Text, MembersRecord] = Field(default={}, max_length=16, description="By role.")


class History:
    """Records of the stages in one store; each file is read once."""

    def __init__(self, root: Location):
        self._root = root
        self._read: dict[str, tuple[LaunchRecord, ...]] = {}

    def records(self, stage: str) -> tuple[LaunchRecord, ...]:
        """The records of a stage, newest first; what is no record, and a store that cannot be read, give none."""
        if stage not in self._read:
            self._read[stage] = self._load(stage)
        return self._read[stage]

    def add(self, stage: str, record: LaunchRecord) -> None:
        """Keep a record.

        Raises:
            OSError: the store cannot be written.
        """
        text = record.model_dump_json(by_alias=True)
        if len(text) > RECORD_BYTES:
            return
        with _guard:
            kept = [each.model_dump_json(by_alias=True) for each in self._load(stage)[: KEPT - 1]]
            self._root.join(FOLDER).make()
            self._file(stage).write_atomic('{"format": 1, "records": [\n' + ",\n".join([text, *kept]) + "\n]}\n")
            self._read.pop(stage, None)

    def _load(self, stage: str) -> tuple[LaunchRecord, ...]:
        try:
            size = self._file(stage).size()
            if size is None or size > 2 * KEPT * RECORD_BYTES:
                return ()
            found = json.loads(self._file(stage).read_text())["records"]
        except Exception:  # any error of a file system's client, or an edited file: forecasts do without it
            return ()
        records = [record for each in found[:KEPT] if (record := _record(each))] if isinstance(found, list) else []
        return tuple(sorted(records, key=lambda record: record.time, reverse=True))

    def _file(self, stage: str) -> Location:
        return self._root.join(FOLDER, f"{stage}.json")


def _record(value: Any) -> LaunchRecord | None:
    try:
        record = LaunchRecord.model_validate(value)
    except (ValidationError, RecursionError):
        return None
    return record if record.time.tzinfo is not None else None


def remember(node: Node, request: Request, placement: Placement, launched: Launched, output: Dataset) -> None:
    """Keep what a launch took for later forecasts.

    Args:
        node: the stage at its place.
        request: store and profile.
        placement: engine and resources that were asked for.
        launched: how it went.
        output: the dataset that it made.

    Raises:
        Exception: whatever the store's client raises where it cannot be read or written.
    """
    measured, on_cluster = launched.measured, request.profile.launcher == "kubernetes"
    last = launched.attempts[-1] if launched.attempts else None
    held_s = last.seconds if last else launched.seconds
    record = LaunchRecord(
        version=node.stage.version,
        engine=placement.engine,
        launcher=request.profile.launcher,
        cluster=request.profile.name if on_cluster else "",
        image=launched.image,
        processor=measured.processor,
        resources=last.resources if last else placement.resources,
        params=node.params.model_dump(mode="json"),
        inputs={name: _facts(node, name, request.store, output) for name in node.inputs},
        cpu_s=measured.cpu_s,
        runtime_s=measured.runtime_s,
        wait_s=max(0.0, held_s - measured.runtime_s - measured.compile_s),
        memory_bytes=measured.memory_bytes,
        compile_s=measured.compile_s,
        delayed_s=measured.delayed_s,
        members=_members(launched),
    )
    History(request.store.root).add(node.stage.name, record)


def _members(launched: Launched) -> dict[str, MembersRecord]:
    """Usage of the members, by the role that prefixes the launcher's figures of them."""
    figures, found = launched.figures, {}
    last = launched.attempts[-1].holdings if launched.attempts else ()
    for role in dict.fromkeys(each.role for each in last if each.role):
        cpu_s, memory = figures.get(f"{role}_cpu_s"), figures.get(f"{role}_peak_memory_bytes")
        if cpu_s is not None and memory is not None:
            found[role] = MembersRecord(cpu_s=cpu_s, memory_bytes=int(memory))
    return found


def _facts(node: Node, name: str, store: Store, output: Dataset) -> dict[str, Stat]:
    """Stats of an input as estimates read them; for a source, those of planning and those that the stage found."""
    given = node.inputs[name]
    if isinstance(given, Node):
        return dict(input_stats(store.open(given.stage.name, given.digest)))
    stats = node.stats_of(name, _LOOK_BYTES)
    return dict(stats) if isinstance(given, Dataset) else {**output.stats, **stats}
