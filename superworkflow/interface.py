"""The Python interface: what the commands do, as functions for programs and notebooks.

    import superworkflow as sw

    run = sw.run("NAME", source=frame, params={"stage.parameter": 0.25})
    run.metrics, run.cost, run.stages
    run["output"].to_numpy()

Sources are paths, URIs, or values in memory (`superworkflow.frames`). Tables are frames of pandas. Bad input and failed
stages raise `SuperworkflowError` with the words of the command line.

The functions' examples have `pipeline`, the name of a superworkflow, `data`, frames by the name of their source, and
`params`, and run in this order. `SUPERWORKFLOW_STORE` names a store with a run called `first`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from superworkflow.arguments import check_registered, registration_of
from superworkflow.earlier_runs import find_datasets, read_record
from superworkflow.flows import known_names, load_superworkflow, superworkflow_names
from superworkflow.frames import source_uri
from superworkflow.handle import RunHandle
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.extras import require_extra
from superworkflow.infra.base.suggest import nearest
from superworkflow.infra.config.request import Request, build_request, default_store
from superworkflow.infra.contract.registration import Registration
from superworkflow.infra.contract.superworkflow import Superworkflow
from superworkflow.infra.process.kernel_cache import bring_kernels
from superworkflow.infra.process.threads import sleep_soon
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.store import Store
from superworkflow.results import Run, frame
from superworkflow.tasks import stage_names

if TYPE_CHECKING:
    import pandas as pd

    from superworkflow.infra.tracking.model_versions import Move
    from superworkflow.infra.tracking.models import ModelRegistry

Params = Mapping[str, Any]
_IN_CELLS = "In a notebook, define it in a cell that begins with %%superworkflow"


@overload
def run(superworkflow: str | Superworkflow, *, wait: Literal[True] = True, **settings: Any) -> Run: ...
@overload
def run(superworkflow: str | Superworkflow, *, wait: Literal[False], **settings: Any) -> RunHandle: ...
def run(
    superworkflow: str | Superworkflow,
    *,
    params: Params | None = None,
    profile: str = "laptop",
    store: str | None = None,
    name: str | None = None,
    config: str | None = None,
    prices: str | None = None,
    export: Sequence[str] = (),
    register: str | None = None,
    gates: Sequence[str] = (),
    max_drift: Sequence[str] = (),
    tolerance: float | None = None,
    promote: bool = True,
    warm_start: bool = False,
    tracking: bool = True,
    rehash: bool = False,
    as_of: str = "",
    wait: bool = True,
    **sources: Any,
) -> Run | RunHandle:
    """Run a superworkflow as `superworkflow run` does; stages whose datasets are in the store are not run again.

    Args:
        superworkflow: name of one, path of a file that defines one, or the object.
        params: values by `stage.parameter`, or by stage and parameter.
        profile: name or path of a profile: engines and resources.
        store: folder or URI of the store; `SUPERWORKFLOW_STORE`, else `superworkflow-store`, by default.
        name: of the run in Prefect and MLflow.
        config: YAML file of parameters, weaker than `params`.
        prices: name or path of a price table.
        export: formats in which the result is also written.
        register: name under which models are registered, and promoted if they are good enough.
        gates, max_drift, tolerance, promote, warm_start: terms of promotion; see `Registration`.
        tracking: record the run in MLflow.
        rehash: read all sources again, even those that seem unchanged.
        as_of: version or time at which tables of Delta Lake and Iceberg are read.
        wait: False returns a handle at once: `progress`, `cancel()`, `result()`.
        sources: by name: a path, a URI, the address of a table in a database or lakehouse, a frame, an array, a sparse
            matrix or a graph. None leaves one out. Flags of the superworkflow are given likewise: `directed=True`.

    Returns:
        The run, or a handle of it.

    Raises:
        UserError: bad input; nothing has run.
        StageFailed: a stage failed; the stages before it are kept.
        KeyboardInterrupt: interrupted; complete stages are kept.

    >>> run = sw.run(pipeline, **data, params=params, name="second", register="teams")
    >>> set(run.stages["state"])  # the datasets were in the store
    {'cached'}
    >>> run[run.outputs[0]].to_numpy().shape[1]
    16
    """
    require_extra("flow")
    chosen = chosen_superworkflow(superworkflow)
    terms = registration_of(
        chosen, register, gates=_listed(gates), max_drift=_listed(max_drift), tolerance=tolerance, promote=promote,
        warm_start=warm_start,
    )  # fmt: skip
    registration = check_registered(terms, tracking)
    request = _request(chosen, sources, params, profile, store, config, prices, rehash, registration, as_of)
    from superworkflow.execution import Execution

    handle = RunHandle(request, partial(Execution, request, name, _listed(export), tracking))
    return handle.here() if wait else handle.start()


def plan(
    superworkflow: str | Superworkflow, *, params: Params | None = None, profile: str = "laptop",
    store: str | None = None, config: str | None = None, prices: str | None = None, **sources: Any,
) -> pd.DataFrame:  # fmt: skip
    """Prediction for each stage: cached or to run, seconds, memory, CPU seconds, cost; arguments are those of `run`.

    Raises:
        UserError: bad input.

    >>> planned = sw.plan(pipeline, **data, params=params)
    >>> set(planned["state"]), float(planned["cost_usd"].sum())
    ({'cached'}, 0.0)
    """
    from superworkflow.infra.planning.plan import plan as predict

    stages = predict(_request(chosen_superworkflow(superworkflow), sources, params, profile, store, config, prices))
    columns = ["state", "seconds", "memory_bytes", "cpu_s", "cost_usd", "output_bytes", "warnings"]
    rows = [{name: getattr(each, name) for name in columns} | {"basis": each.basis} for each in stages]
    return frame(rows, index=[each.name for each in stages])


def explain(
    superworkflow: str | Superworkflow, *, params: Params | None = None, profile: str = "laptop",
    store: str | None = None, config: str | None = None, **sources: Any,
) -> pd.DataFrame:  # fmt: skip
    """Explanation for each stage: cached, or what differs from the nearest dataset; arguments are those of `run`.

    Raises:
        UserError: bad input.

    >>> sw.explain(pipeline, **data, params=params)["why"].iloc[0]
    'cached, made 20... UTC'
    """
    from superworkflow.infra.planning.explain import explain as compare_stages

    found = compare_stages(_request(chosen_superworkflow(superworkflow), sources, params, profile, store, config))
    rows = [{"cached": each.cached, "created": each.created, "why": str(each)} for each in found]
    return frame(rows, index=[each.name for each in found])


def runs(*, store: str | None = None, limit: int = 20) -> pd.DataFrame:
    """Recorded runs of a store, newest first, with a column for each metric and total.

    Raises:
        UserError: nothing is recorded there, or the tracker cannot be reached.

    >>> sw.runs(limit=1)[["name", "status"]]
         name    status
    0  second  FINISHED
    """
    from superworkflow.infra.tracking.history import recorded_runs

    found = recorded_runs(_tracking_uri(store), limit)
    rows = [
        {"run": each.run_id, "name": each.name, "superworkflow": each.superworkflow, "status": each.status,
         "started": each.started, "outcome": each.outcome, **each.totals, **each.metrics}
        for each in found
    ]  # fmt: skip
    return frame(rows)


def load(run: str, *, superworkflow: str | Superworkflow | None = None, store: str | None = None) -> Run:
    """An earlier run, such as of another process or of the command line: its figures and what it made.

    Args:
        run: its ID, the beginning of it, or its name (the newest of that name).
        superworkflow: that it ran; needed where a file or a cell defined it.
        store: whose run it is.

    Raises:
        UserError: there is no such run, or no superworkflow of its name is installed.

    >>> first = sw.load("first")
    >>> first.metrics.equals(sw.load(first.id).metrics), len(first[first.outputs[0]].to_pandas()) > 0
    (True, True)
    """
    record, page = read_record(run, _location(store).uri)
    if superworkflow is None and record.superworkflow not in superworkflow_names():
        raise UserError("the superworkflow of this run is not installed", where=run, value=record.superworkflow,
                        remedy="Give it as superworkflow=: the path of its file, or the object")  # fmt: skip
    return Run(chosen_superworkflow(superworkflow or record.superworkflow), record, page)


def compare(first: str | Run, second: str | Run, *, store: str | None = None) -> pd.DataFrame:
    """Two recorded runs side by side: what differs in parameters and sources; quality, seconds, cost, memory of each.

    Args:
        first, second: runs, their IDs, beginnings of these, or names.
        store: whose records are read; that of a `Run`, if one is given.

    Returns:
        Columns `first`, `second` and `ratio`, indexed by kind and name.

    Raises:
        UserError: there is no such run.

    >>> side = sw.compare("first", "second")
    >>> "params" in side.index.get_level_values("kind")  # none differs
    False
    """
    from superworkflow.dashboards.comparison import compare as side_by_side
    from superworkflow.infra.tracking.history import find_run

    given = [each for each in (first, second) if isinstance(each, Run)]
    uri = _tracking_uri(store or (given[0].record.store if given else None))
    found = side_by_side(*(find_run(uri, each.id if isinstance(each, Run) else each) for each in (first, second)))
    rows, index = [], []
    for kind in ("params", "sources", "metrics", "seconds", "cost_usd", "memory_bytes", "totals"):
        for name, (before, after) in getattr(found, kind).items():
            ratio = after / before if before and after and kind not in ("params", "sources") else None
            rows.append({"first": before, "second": after, "ratio": ratio})
            index.append((kind, name))
    import pandas

    from superworkflow.tables import UnitFrame

    return UnitFrame(rows, index=pandas.MultiIndex.from_tuples(index, names=["kind", "name"]))


def models(name: str | None = None, *, store: str | None = None) -> pd.DataFrame:
    """Registered models, a row for each version: who decided what of it, when and why; aliases `current`, `challenger`.

    Args:
        name: of one model; all that runs have registered by default.
        store: whose runs registered them.

    Raises:
        UserError: nothing is recorded there, or no such model.

    >>> sw.models("teams")[["name", "version", "verdict"]]
        name  version   verdict
    0  teams        1  promoted
    """
    return frame(
        {"name": each.name, "version": each.version, "aliases": ", ".join(each.aliases), "created": each.created,
         "run": each.run_id, "verdict": each.decision.get("verdict", ""),
         "why": each.moves[-1].why if each.moves else each.decision.get("why", ""), **each.quality}
        for versions in _registry(store).listed(name).values() for each in versions
    )  # fmt: skip


def promote(name: str, version: int | None = None, *, why: str, store: str | None = None) -> Move:
    """Put a version of a model into use, the challenger's by default; `why` is kept with it.

    Raises:
        UserError: there is no such version.

    >>> sw.promote("teams", 1, why="checked by hand").version
    1
    """
    return _registry(store).promote(name, version, why)


def rollback(name: str, version: int | None = None, *, why: str, store: str | None = None) -> Move:
    """Return to an earlier version, by default the one in use before; runs promote none until `promote` does.

    Raises:
        UserError: there is no such version.

    >>> sw.rollback("teams", why="complaints")
    Traceback (most recent call last):
    superworkflow.infra.base.errors.UserError: teams: version 1 is in use, and there is nothing before it...
    """
    return _registry(store).roll_back(name, version, why)


def _registry(store: str | None) -> ModelRegistry:
    require_extra("flow")
    from superworkflow.infra.tracking.history import open_registry

    return open_registry(_location(store))


def chosen_superworkflow(superworkflow: str | Superworkflow) -> Superworkflow:
    """The superworkflow of a call: the object, or the one of a name or file.

    Raises:
        UserError: it is neither, such as a vertex program or a stage; or processes of its stages would not find them.
    """
    if isinstance(superworkflow, str | Path):
        return load_superworkflow(str(superworkflow))
    if not isinstance(superworkflow, Superworkflow):
        raise UserError("is no superworkflow", where="the first argument", value=type(superworkflow).__name__,
                        remedy=f"Give a name or a file. {_IN_CELLS}")  # fmt: skip
    if lost := {stage.name for stage in superworkflow.stages} - superworkflow.own - set(stage_names()):
        raise UserError("a stage is neither in a file nor installed, so that its process would not find it",
                        where=superworkflow.name, value=min(lost), remedy=_IN_CELLS)  # fmt: skip
    return superworkflow


def _request(
    superworkflow: Superworkflow,
    sources: Mapping[str, Any],
    params: Params | None,
    profile: str,
    store: str | None,
    config: str | None = None,
    prices: str | None = None,
    rehash: bool = False,
    registration: Registration | None = None,
    as_of: str = "",
) -> Request:
    """The request of a call; values in memory are written to the store."""
    where = open_store(store)
    for name in sources:
        if name not in superworkflow.sources and name not in superworkflow.flags:
            raise UserError("is no source", where=superworkflow.name, value=name,
                            remedy=nearest(name, [*superworkflow.sources, *superworkflow.flags]))  # fmt: skip
    uris, values = given_sources(superworkflow, sources, params, where)
    uris = find_datasets(superworkflow, uris, where.uri)
    return build_request(
        superworkflow, sources=uris, parameters=values, profile=profile, store=where.uri, config=config, prices=prices,
        rehash=rehash, registered=known_names, registration=registration, as_of=as_of,
    )  # fmt: skip


def open_store(store: str | None) -> Store:
    """The store of a call; this process is made ready for what runs there, as the command line does it."""
    bring_kernels()
    sleep_soon()
    return Store(_location(store).uri)


def given_sources(
    superworkflow: Superworkflow, sources: Mapping[str, Any], params: Params | None, store: Store
) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """URIs of sources, those in memory written to the store; parameters by prefix, with what the sources imply.

    Raises:
        UserError: a value that is no source, or no parameter.
    """
    values, uris = _nested(params or {}), dict[str, str]()
    for prefix, model in superworkflow.models().items():
        for parameter, value in values.get(prefix, {}).items():
            field = model.model_fields.get(parameter)
            if isinstance(value, Integral) and field is not None and field.annotation in (str, str | None):
                values[prefix][parameter] = str(value)  # such as the number of a node
    for name, value in sorted(sources.items(), key=lambda each: each[0] in superworkflow.sources):  # flags first
        if value is None:
            continue
        flags: dict[str, Any] = {name: value}
        if name in superworkflow.sources:
            uris[name], implied = source_uri(superworkflow, name, value, store)
            flags = dict.fromkeys(implied, True)
        for flag in flags.keys() & superworkflow.flags.keys():
            prefix, _, parameter = superworkflow.flags[flag].parameter.partition(".")
            values.setdefault(prefix, {}).setdefault(parameter, flags[flag])
    return uris, values


def _listed(texts: Sequence[str]) -> Sequence[str]:
    return [texts] if isinstance(texts, str) else texts


def _nested(params: Params) -> dict[str, dict[str, Any]]:
    """Values by prefix and parameter, of which some are given as `prefix.parameter`."""
    if not isinstance(params, Mapping):
        raise UserError("are no parameters by name", where="params", value=params,
                        remedy='Give a mapping, such as {"train.epochs": 20}')  # fmt: skip
    found: dict[str, dict[str, Any]] = {}
    for name, value in params.items():
        prefix, dot, parameter = name.partition(".")
        if not dot and not isinstance(value, Mapping):
            raise UserError(
                "is no parameter", where="params", value=name, remedy="Write stage.parameter, such as train.epochs"
            )
        found.setdefault(prefix, {}).update({parameter: value} if dot else value)
    return found


def _tracking_uri(store: str | None) -> str:
    from superworkflow.infra.tracking.uris import default_tracking_uri

    return default_tracking_uri(_location(store))


def _location(store: str | None) -> Location:
    return Location.of(store or default_store())
