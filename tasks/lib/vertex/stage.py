"""The stage of a vertex program: its declaration, made by one function, and its work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.import_strings import imported
from superworkflow.infra.contract.estimate import Process
from superworkflow.infra.contract.stage import IN_PROCESS, Estimate, Input, Output, Resources, Stage, StageRun, Stats
from superworkflow.infra.storage.manifest import Stat
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning, warning_stats
from superworkflow.tasks.lib.vertex.program import (
    CLASSES,
    DISTANCES,
    LEVEL,
    SIDE,
    FieldKind,
    ProgramParams,
    VertexProgram,
    length_of,
)

if TYPE_CHECKING:
    from superworkflow.infra.storage.dataset import Dataset, FileWriter
    from superworkflow.tasks.lib.vertex.earlier import Earlier
    from superworkflow.tasks.lib.vertex.given import GivenFields
    from superworkflow.tasks.lib.vertex.outcome import ProgramOutcome
    from superworkflow.tasks.lib.vertex.run import Coloured

SHARD = 1 << 20
"""Vertices of a file of a field."""
TRACE, GLOBALS = "trace.parquet", "globals.json"
_WORKERS = "workers"
_ON_WORKERS = "superworkflow.tasks.lib.vertex.cluster.on_workers:run_on_workers"
_ENGINE = 2
"""Version of the engine, raised when it gives another result: sums of residuals and folds are exact since 2."""
_ARC_S = 3e-9
_PROCESS = Process(start_s=3.0, memory_bytes=230 << 20)
"""With compiling a program's functions, which are kept for later runs."""
_CLASSES = 20
"""Classes that estimates assume."""
_STEPS = 20
"""Steps that estimates assume where a run ends by itself."""


def program_stage(
    program: VertexProgram,
    run: str,
    version: str = "1",
    of_graph: Callable[[Stats], VertexProgram] | None = None,
    arc_s: Callable[[Any], float] = lambda params: _ARC_S,
    alone: str = "",
    steps: Callable[[VertexProgram, Any], int] | None = None,
) -> Stage[Any]:
    """The stage of a program, of its name.

    Args:
        program: what it runs.
        run: import string of the program, or of the work.
        version: raised when the program gives another result.
        of_graph: function of a graph's stats to the program that runs on it, where there are several.
        arc_s: CPU seconds that an update takes for each of its arcs, from the parameters.
        alone: value of `execution` with which one process does without the program, and colours.
        steps: of a run that does not end by itself, their number, from the program and the parameters.
    """

    def estimate(params: ProgramParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
        chosen = of_graph(inputs.get("graph", {})) if of_graph else program
        taken = steps(chosen, params) if steps else min(with_defaults(chosen, params).max_steps, _STEPS)
        return _estimate(chosen, params, inputs, arc_s(params), taken)

    def estimate_on_workers(params: ProgramParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
        return _on_workers(estimate(params, inputs, resources), inputs, resources)

    without = f"; {alone} does without" if alone else ""
    colours = Input(f"colour dataset of the same graph{without}", optional=bool(alone))
    further = {"table": Input("vertex_fields dataset of the same graph")} if program.given else {}
    if program.restart is not None:
        further["initial"] = Input(f"{program.name} dataset of an earlier run, to start from", optional=True)
        further["before"] = Input("the graph of that run", optional=True, affects_result=False)
    if program.arc_fields:
        fields = ", ".join(program.arc_fields)
        further["arcs"] = Input(f"dataset of the same graph's edges, with {fields}", optional=True)
    return Stage(
        name=program.name,
        version=f"{version}.{_ENGINE}",
        params=program.params,
        inputs={"graph": Input("index dataset"), "colours": colours, **further},
        run=run,
        estimate=estimate,
        engines={_WORKERS: run},
        estimates={_WORKERS: estimate_on_workers},
        images={_WORKERS: "torch"},
        help=program.help or f"vertex program {program.name}",
    )


def run_program(program: VertexProgram, job: StageRun[Any]) -> Output:
    """The work of a program's stage; see `VertexProgram.__call__`."""
    from superworkflow.infra.process.shutdown import saves_first
    from superworkflow.tasks.lib.checkpoint_stores import Folder
    from superworkflow.tasks.lib.vertex.run import ChromaticEngine
    from superworkflow.tasks.lib.vertex.snapshots import alone

    if job.engine != IN_PROCESS:
        output: Output = imported(_ON_WORKERS)(program, job)
        return output
    source, params = job.inputs["graph"], with_defaults(program, job.params)
    graph = coloured_graph(source, job.inputs["colours"], program, job.inputs.get("arcs"))
    given, nodes = given_by(program, source, job.inputs.get("table")), numbers_of(program, params, source)
    datasets = job.inputs.get("initial"), job.inputs.get("before"), source
    earlier = earlier_run(program, job.params, datasets, graph, given, job.progress.log)
    job.progress.log(f"{len(graph.indptr) - 1} vertices, {len(graph.indices)} arcs, {len(graph.bounds) - 1} colours")
    with saves_first() as shutdown:
        snapshots = alone(
            Folder(job.checkpoint), params.snapshot_every, shutdown, job.progress.log, job.save_checkpoint
        )
        engine = ChromaticEngine(program, params, graph, job.threads, nodes, given, earlier, snapshots)
        outcome = engine.run(job.progress)
    return write_outcome(program, params, given, outcome, job.output, job.progress.log)


def is_of_program(program: VertexProgram, job: StageRun[Any], alone: str) -> bool:
    """True if the program runs, false if `execution` has one process do without it.

    Raises:
        UserError: workers are to do without it, or it has no colours.
    """
    where, execution = f"{program.name}.execution", job.params.execution
    if execution != alone:
        if "colours" not in job.inputs:
            raise UserError("the program needs the colours of the graph", where=where, value=execution,
                            remedy=f"Give --input colours=URI, or set {alone}")  # fmt: skip
        return True
    if job.engine != IN_PROCESS:
        raise UserError("this is for one process", where=where, value=alone,
                        remedy=f"Set the engine to in-process, or {where}=consistent")  # fmt: skip
    return False


def with_defaults(program: VertexProgram, params: ProgramParams) -> ProgramParams:
    """Parameters with the program's values of those that are None."""
    return params.model_copy(
        update={name: value for name, value in program.defaults.items() if getattr(params, name) is None}
    )


def earlier_run(
    program: VertexProgram, params: ProgramParams, datasets: tuple[Dataset | None, Dataset | None, Dataset],
    graph: Coloured, given: GivenFields, log: Callable[[str], None],
) -> Earlier | None:  # fmt: skip
    """The earlier run to start from; None for none.

    Args:
        program: what runs.
        params: as they were given, without the program's own defaults.
        datasets: of the earlier run, of its graph, and of the present graph.
        graph: the present one.
        given: fields that a table gives.
        log: of the stage.
    """
    from superworkflow.tasks.lib.vertex.earlier import earlier_of

    initial, before, now = datasets
    if initial is None or before is None:
        return None
    earlier = earlier_of(program, params, initial, before, now, graph, given)
    log(f"starts from {initial.uri}: {int(earlier.kept.sum())} of {len(earlier.kept)} vertices were there, "
        f"{int(earlier.changed.sum())} have changed")  # fmt: skip
    return earlier


def given_by(program: VertexProgram, graph: Dataset, table: Dataset | None) -> GivenFields:
    """Fields of a program that a table gives.

    Raises:
        UserError: the table is of another graph, or as in `given_fields`.
    """
    from superworkflow.tasks.lib.vertex.given import NOTHING_GIVEN, given_fields

    if not program.given or table is None:
        return NOTHING_GIVEN

    def name_of(vertex: int) -> str:
        return str(graph.table("vertices.parquet", ["node"]).column(0)[vertex].as_py())

    matched = table.manifest.inputs.get("graph")
    if matched is not None and matched.digest != graph.digest:
        raise UserError("the table was matched with another graph", where=table.uri, value=matched.digest,
                        remedy=f"Match it with {graph.uri}")  # fmt: skip
    return given_fields(program, table, int(graph.stats["vertices"] or 0), name_of)


def numbers_of(program: VertexProgram, params: ProgramParams, graph: Dataset) -> dict[str, int]:
    """Numbers of the nodes that parameters name.

    Raises:
        UserError: the graph has no such node.
    """
    if not program.nodes:
        return {}
    import pyarrow as pa
    import pyarrow.compute as pc

    names = graph.table("vertices.parquet", ["node"]).column(0)
    found = {
        name: int(pc.index(names, pa.scalar(str(getattr(params, name)), names.type)).as_py()) for name in program.nodes
    }
    for name, number in found.items():
        if number < 0:
            raise UserError("the graph has no such node", where=f"{program.name}.{name}", value=getattr(params, name),
                            remedy="Give a node of the edge list, as it is written there")  # fmt: skip
    return found


def coloured_graph(
    graph: Dataset, colours: Dataset, program: VertexProgram, arcs: Dataset | None = None, mapped: bool = False
) -> Coloured:
    """The graph of two datasets.

    Args:
        graph: index dataset, or another kind of graph.
        colours: of it.
        program: what runs.
        arcs: the program's `arc_fields`.
        mapped: the arrays stay in their files, and colours are not checked: a worker checks those of its piece.

    Raises:
        UserError: the colours are of another graph or distance, or conflict, or a file is damaged.
    """
    from superworkflow.tasks.lib.graph.integrity import check_rows, unfit
    from superworkflow.tasks.lib.vertex.blocks import conflict as conflict_of_blocks
    from superworkflow.tasks.lib.vertex.colours import conflict
    from superworkflow.tasks.lib.vertex.run import Coloured
    from superworkflow.tasks.lib.vertex.transpose import in_edges

    weights = graph.array("weights.npy") if graph.stats.get("weighted") else None
    indptr, indices = graph.array("indptr.npy", mmap=mapped), graph.array("indices.npy")
    vertices = len(indptr) - 1
    check_rows(graph.uri, indptr, indices, weights, vertices, signed=program.signed)
    order, bounds = colours.array("order.npy", mmap=False), colours.array("bounds.npy", mmap=False)
    needed = DISTANCES[program.consistency]
    if int(colours.stats.get("distance") or 0) < needed or colours.stats.get("vertices") != vertices:
        raise UserError("the colours are not those of this graph and consistency", where=colours.uri,
                        value=f"{colours.stats.get('vertices')} vertices, distance {colours.stats.get('distance')}",
                        remedy=f"Colour it with colour.distance={needed}")  # fmt: skip
    if not _divides(order, bounds, vertices):
        raise UserError("the colours are damaged", where=colours.uri, remedy="Delete the dataset and run again")
    directed = bool(graph.stats["directed"])
    idle = None
    if (updated := graph.stats.get("updated_side")) is not None:
        idle = (sides(graph, program.name) > 0) != (updated == 1)
    blocks = colours.array("blocks.npy", mmap=False) if "blocks.npy" in colours else None
    if blocks is not None and not _blocks_fit(blocks, bounds):
        raise UserError("the blocks are damaged", where=colours.uri, remedy="Delete the dataset and run again")
    if not mapped:
        colour, block = np.empty(vertices, np.int32), np.arange(vertices, dtype=np.int32)
        colour[order] = np.repeat(np.arange(len(bounds) - 1, dtype=np.int32), np.diff(bounds))
        if idle is not None:
            colour[idle] = -1
        if blocks is not None:
            block[order] = np.repeat(np.arange(len(blocks) - 1, dtype=np.int32), np.diff(blocks))
        around = indptr, indices, *in_edges(indptr, indices, directed), needed, colour
        vertex = conflict(*around) if blocks is None else conflict_of_blocks(*around, block)
        if vertex >= 0:
            raise of_one_colour(needed, vertex)
    given = {
        name: sides(graph, program.name)
        if name == SIDE
        else shares_of_levels(graph)
        if name == LEVEL
        else graph.array(f"{name}.npy")
        for name in program.graph_fields
    }
    for name, values in given.items():
        if len(values) != vertices:
            raise unfit(f"{graph.uri}/{name}.npy", f"{vertices} vertices by indptr.npy", len(values))
    rows = {name: (graph.array(f"{name}_indptr.npy"), graph.array(f"{name}.npy")) for name in program.graph_rows}
    for name, (starts, row_values) in rows.items():
        ends = len(starts) == vertices + 1 and starts[0] == 0 and starts[-1] == len(row_values)
        if not ends or (np.diff(starts) < 0).any():
            raise unfit(f"{graph.uri}/{name}_indptr.npy", f"{vertices} rows of {name}.npy", len(starts) - 1)
    for name in program.arc_fields:
        each = np.empty(0, np.int32) if arcs is None else arcs.array(f"{name}.npy")
        if arcs is not None and len(each) != len(indices):
            raise unfit(f"{arcs.uri}/{name}.npy", f"{len(indices)} arcs by indices.npy", len(each))
        rows[name] = (np.zeros(vertices + 1, np.int64) if arcs is None else indptr, each)
    sizes = {name: size for name, size in graph.stats.items() if type(size) is int}
    return Coloured(indptr, indices, weights, order, bounds, directed, given, sizes, rows, blocks, idle)


def of_one_colour(distance: int, vertex: int) -> UserError:
    """The error for a vertex that has the colour of another within a distance."""
    return UserError(f"vertices within distance {distance} have one colour", where="the colours of the graph",
                     value=f"vertex {vertex}", remedy="Delete their dataset and run again")  # fmt: skip


def sides(graph: Dataset, program: str) -> NDArray[np.int32]:
    """Node set of each vertex of a graph of two: 0 of sources, 1 of targets; or as the dataset's `side.npy` says.

    Args:
        graph: index dataset.
        program: which asks, for the error.

    Raises:
        UserError: its nodes are one set.
    """
    from superworkflow.tasks.lib.edge_list.bipartite import side_vertices

    if not graph.stats.get("bipartite"):
        raise UserError("the program needs a graph of two node sets", where=f"program {program}", value=graph.uri,
                        remedy="Index the edge list with bipartite=true")  # fmt: skip
    if f"{SIDE}.npy" in graph:
        given: NDArray[np.int32] = graph.array(f"{SIDE}.npy", mmap=False)
        return given
    found = np.zeros(int(graph.stats["vertices"] or 0), np.int32)
    found[side_vertices(graph.table("vertices.parquet", ["node"]).column(0), graph.stats)[1]] = 1
    return found


def shares_of_levels(graph: Dataset) -> NDArray[np.float32]:
    """Value that each vertex of a lattice has observed, from 0 for the least to 1 for the largest.

    Args:
        graph: grid dataset.

    Raises:
        UserError: it is no lattice.
    """
    if "levels.npy" not in graph:
        raise UserError("the program needs a lattice", where=graph.uri, remedy="Give one with --lattice")
    levels = graph.array("levels.npy").astype(np.float64)
    shares: NDArray[np.float32] = ((levels - levels[0]) / (levels[-1] - levels[0])).astype(np.float32)
    observed: NDArray[np.int32] = graph.array("observed.npy")
    return shares.take(observed)


def _blocks_fit(blocks: NDArray[Any], bounds: NDArray[np.int64]) -> bool:
    """True if blocks divide the order, none of them two colours."""
    if blocks.dtype != np.int64 or blocks.ndim != 1 or len(blocks) < 1 or (np.diff(blocks) <= 0).any():
        return False
    return bool(np.isin(bounds, blocks).all() and blocks[0] == bounds[0] and blocks[-1] == bounds[-1])


def _divides(order: NDArray[Any], bounds: NDArray[Any], vertices: int) -> bool:
    """True if an order has each vertex once, and the bounds divide it."""
    if order.dtype != np.int32 or order.shape != (vertices,) or bounds.dtype != np.int64 or bounds.ndim != 1:
        return False
    if not len(bounds) or bounds[0] != 0 or bounds[-1] != vertices or (np.diff(bounds) < 0).any():
        return False
    return bool((np.sort(order) == np.arange(vertices)).all())


def write_outcome(
    program: VertexProgram, params: ProgramParams, given: GivenFields, outcome: ProgramOutcome, output: FileWriter,
    log: Callable[[str], None],
) -> Output:  # fmt: skip
    """Write what a run left, its messages too if a later one can start from it.

    Args:
        program, params, given: what ran.
        outcome: what it left.
        output: where to write; see `VertexProgram.__call__`.
        log: of the stage.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    vertices = len(next(iter(outcome.fields.values())))
    fields = program.finish(outcome.fields, params) if program.finish else outcome.fields
    named = {**dict(zip(program.classes, program.classes, strict=True)), **program.shown}
    if named:
        output.json(CLASSES, {field: given.classes[name] for field, name in named.items()})
    for name, each in {**fields, **(outcome.messages if program.restart is not None else {})}.items():
        for number, low in enumerate(range(0, max(1, len(each)), SHARD)):
            output.array(f"{name}-{number:05d}.npy", np.ascontiguousarray(each[low : low + SHARD]))
    values = program.report(outcome.globals, params) if program.report is not None else outcome.globals
    output.json(GLOBALS, values)
    columns = list(outcome.trace[0]) if outcome.trace else ["step", "updates", "arcs", "residual"]
    with output.file(TRACE) as path:
        pq.write_table(pa.table({name: [row[name] for row in outcome.trace] for name in columns}), path)
    updates, arcs = (int(sum(row[name] for row in outcome.trace)) for name in ("updates", "arcs"))
    sweeps = params.scheduler == "sweep" and not params.tolerance
    how = {
        "empty": "no vertex is active",
        "tolerance": "the residual is within the tolerance",
        "sweeps": "warning: max_sweeps is reached, and vertices are still active",
        "steps": "as many as max_steps" if sweeps else "warning: max_steps is reached, and vertices are still active",
    }
    log(f"{len(outcome.trace)} steps, {updates} updates; {how[outcome.ended]}")
    doubts = doubts_of(program, params, outcome)
    for doubt in doubts:
        log(f"warning: {doubt}")
    stats: dict[str, Stat] = {
        **warning_stats(doubts),
        "vertices": vertices, "fields": ",".join(fields), "steps": len(outcome.trace), "updates": updates, "arcs": arcs,
        "ended": outcome.ended, "saved_share": 1 - updates / max(1, vertices * len(outcome.trace)),
        **{f"global.{name}": value for name, value in values.items() if isinstance(value, float)},
    }  # fmt: skip
    return Output(rows=vertices, stats=stats)


def doubts_of(program: VertexProgram, params: ProgramParams, outcome: ProgramOutcome) -> list[InputWarning]:
    """Warnings of values that are no numbers, and of a run that ended before anything was propagated."""
    where, doubts = f"program {program.name}", list[InputWarning]()
    for name, values in outcome.fields.items():
        if values.dtype.kind == "f" and (lacking := np.isnan(values).reshape(len(values), -1).any(1).sum()):
            doubts.append(InputWarning("a field is not a number", f"{where}, field {name}", f"{lacking} vertices",
                                       "Look for 0 / 0 and roots or logarithms of negative numbers"))  # fmt: skip
    left = outcome.trace[0]["residual"] if outcome.ended == "empty" and len(outcome.trace) == 1 else 0.0
    if left > params.tolerance > 0:
        what = "no update signalled a vertex, and the residual is above the tolerance"
        settle = f"Call scope.signal, or set {program.name}.scheduler=sweep"
        doubts.append(InputWarning(what, where, f"{left:.3g}", settle))
    return doubts


def whole_field(graph: Dataset, values: Dataset, name: str) -> NDArray[Any]:
    """A field of all vertices, which a program has written.

    Args:
        graph: on which it ran.
        values: dataset of the program.
        name: of the field.

    Raises:
        UserError: the values are of another graph.
    """
    field: NDArray[Any] = np.concatenate([values.array(file) for file in sorted(values.files(f"{name}-*.npy"))])
    if len(field) != graph.stats["vertices"]:
        raise UserError("the values are of another graph", where=values.uri, value=f"{len(field)} vertices",
                        remedy=f"Give those of {graph.uri}")  # fmt: skip
    return field


def _estimate(
    program: VertexProgram, params: ProgramParams, inputs: Mapping[str, Stats], arc_s: float, steps: int
) -> Estimate:
    """Memory of the graph, as it is and renumbered, of fields, of the widest twice, and queue; time of the steps."""
    graph = inputs.get("graph", {})
    vertices, arcs = (
        int(graph.get("vertices") or 0),
        int(graph.get("directed_edges") or 2 * int(graph.get("edges") or 0)),
    )
    sizes = {**graph, **params.model_dump()}
    kept_arcs = sum(np.dtype(dtype).itemsize for dtype in program.arc_fields.values()) if "arcs" in inputs else 0
    wide, of_edges, of_messages = (
        sum(_width(kind, sizes) for kind in group.values())
        for group in (program.fields, program.edge_fields, program.messages)
    )
    both = 2 if graph.get("directed") else 1
    marks = vertices * len(program.fields) + both * arcs * (len(program.edge_fields) + len(program.messages))
    twice = 2 if params.execution == "synchronous" else 1
    widest = max(_width(kind, sizes) for kind in program.fields.values())
    return _PROCESS.estimate(
        memory_bytes=2 * both * (4 + 4 * bool(graph.get("weighted")) + kept_arcs) * arcs
        + (28 + 8 * both + twice * wide + widest) * vertices
        + 2 * int(graph.get("bytes") or 0) * bool(program.graph_rows)
        + (arcs // 2 * both) * (of_edges + 2 * twice * of_messages + (8 if of_edges + of_messages else 0))
        + 16 * params.verify * marks,
        cpu_s=steps * (arc_s * both * arcs + 1e-8 * vertices), output_bytes=wide * vertices,
        stats={"vertices": vertices}, parallel=0.9,
    )  # fmt: skip


def _on_workers(alone: Estimate, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Each worker has its share of the graph and of fields, ghosts of all others at worst; the first one has the
    fields of all vertices at the end. While a worker cuts its share, it has owners, colours and places of all."""
    graph = inputs.get("graph", {})
    workers = max(1, sum(group.count for group in (resources.workers or {}).values()))
    vertices = int(graph.get("vertices") or 0)
    wide = alone.output_bytes // max(1, vertices)
    share = (alone.memory_bytes - _PROCESS.memory_bytes) // workers
    memory = _PROCESS.memory_bytes + share + share // 2 + (30 + 3 * wide) * vertices
    return replace(alone, memory_bytes=memory, cpu_s=alone.cpu_s * 1.2)


def _width(kind: FieldKind, sizes: Mapping[str, Any]) -> int:
    """Bytes of a field of one vertex or edge."""
    dtype, length = kind if isinstance(kind, tuple) else (kind, 1)
    return np.dtype(dtype).itemsize * (length_of(length, sizes, _CLASSES) if isinstance(length, str) else length)
