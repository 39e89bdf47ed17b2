"""Turns a request into a study's definition, and a study back into the request that started it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.suggest import nearest
from superworkflow.infra.config.request import Request, build_request
from superworkflow.infra.contract.code_file import INPUT
from superworkflow.infra.contract.diagram import Node, with_upstream
from superworkflow.infra.contract.metrics import Metric
from superworkflow.infra.contract.params import parse_params
from superworkflow.infra.contract.superworkflow import Superworkflow
from superworkflow.sweeps.objective import (
    SweepObjective,
    choose_quality,
    declared_metric,
    judged_node,
    needed_nodes,
    parse_objectives,
)
from superworkflow.sweeps.sampling import Choice, choose_pruner, choose_sampler
from superworkflow.sweeps.space import Space, build_space
from superworkflow.sweeps.study import StudySpec

DEFAULT_TRIALS = 20


@dataclass(frozen=True)
class Wishes:
    """Settings that the user gave for a sweep; None means the default.

    Args:
        fixed: dotted names of the parameters that the user set.
        group: (prefix, trials): this many trials share the parameters of this prefix and of the stages upstream.
    """

    objectives: Sequence[str] = ("quality",)
    trials: int | None = None
    space: str | None = None
    fixed: frozenset[str] = frozenset()
    sampler: str | None = None
    pruner: str | None = None
    seed: int | None = None
    group: tuple[str, int] | None = None
    trial_budget_usd: float | None = None


@dataclass(frozen=True)
class SweepSetup:
    """A study's definition, the request that its trials vary, and the choices made by default."""

    spec: StudySpec
    request: Request
    trials: int
    sampler: Choice
    pruner: Choice


def set_up(request: Request, wishes: Wishes) -> SweepSetup:
    """Define the study.

    Args:
        request: the run without the sweep.
        wishes: the sweep's settings.

    Raises:
        UserError: the first invalid setting.
    """
    quality = choose_quality(request.superworkflow, list(request.sources), request.diagram)
    declared = request.superworkflow.metrics
    objectives = parse_objectives(wishes.objectives, quality, declared)
    judges = [declared_metric(each.name, declared) for each in objectives if each.node is not None] or [quality]
    request = _with_options(request, _common_options(judges), wishes.fixed)
    kept = needed_nodes(request.diagram, objectives)
    nodes = [request.diagram.nodes[name] for name in kept]
    models = {node.prefix: node.stage.params for node in nodes if not node.stage.params_of}
    space = build_space(models, file=wishes.space, fixed=wishes.fixed)
    trials = wishes.trials
    if wishes.sampler == "grid":
        trials = min(trials or len(space.grid()), len(space.grid()))
    trials = trials or DEFAULT_TRIALS
    sampler = choose_sampler(wishes.sampler, trials, len(objectives))
    judged = judged_node(request.diagram, objectives)
    steps = most_steps(judged, space) if judged else 0
    pruner = choose_pruner(wishes.pruner, len(objectives), steps)
    shared, group = _group(request, space, kept, wishes.group)
    searched = {dimension.name for dimension in space.dimensions}
    used = [*models, request.superworkflow.name]
    params = {
        prefix: {
            name: value
            for name, value in request.params[prefix].model_dump(mode="json").items()
            if f"{prefix}.{name}" not in searched
        }
        for prefix in used
    }
    spec = StudySpec(
        superworkflow=request.superworkflow.name,
        sources=_source_digests(request),
        params=params, space=space.document(), objectives=[[each.name, each.maximize] for each in objectives],
        sampler=sampler.name, pruner=pruner.name, seed=42 if wishes.seed is None else wishes.seed,
        shared=shared, group=group, trial_budget_usd=wishes.trial_budget_usd, steps=steps,
        defaults={
            each.name: value for each in space.dimensions
            if each.holds(value := getattr(request.params[each.prefix], each.field))
        },
    )  # fmt: skip
    return SweepSetup(spec, request, trials, sampler, pruner)


def restore(
    superworkflow: Superworkflow, spec: StudySpec, launch: Mapping[str, Any], tables_from: Sequence[str] = ()
) -> Request:
    """The request that a study's trials vary.

    Args:
        superworkflow: the one that the study names.
        spec: its definition.
        launch: `sources`, `profile`, `store`, `prices`.
        tables_from: prefixes below which a description may name tables; a study cannot grant access to others.

    Raises:
        UserError: a source no longer exists, or its content has changed.
    """
    request = build_request(
        superworkflow, sources=launch["sources"], parameters=spec.params, profile=launch["profile"],
        store=launch["store"], prices=launch["prices"], tables_from=tables_from, deployed=True,
    )  # fmt: skip
    if superworkflow.name != spec.superworkflow:
        raise UserError(
            "this study belongs to another superworkflow", where=superworkflow.name, value=spec.superworkflow
        )
    for name, digest in _source_digests(request).items():
        if digest != spec.sources.get(name):
            given = superworkflow.code if name == INPUT else request.sources[name]
            raise UserError(
                "this file has changed since the sweep was started", where=given.uri if given else name,
                remedy="Start another sweep with it, or restore the old file",
            )  # fmt: skip
    return request


def _source_digests(request: Request) -> dict[str, str]:
    """Digest of each source by its name, and of the file that defines the superworkflow."""
    digests = {name: source.digest for name, source in request.sources.items()}
    code = request.superworkflow.code
    return digests if code is None else {**digests, INPUT: code.sha256}


def most_steps(node: Node, space: Space) -> int:
    """The most intermediate values that a node may report in a trial.

    Searched parameters are tried one after the other, each at its ends or choices: enough if the number of steps is
    monotonic in each of them.
    """
    assert node.stage.steps is not None
    best = node.params
    for dimension in space.dimensions:
        if dimension.prefix != node.prefix:
            continue
        for value in dimension.choices or (dimension.low, dimension.high):
            with contextlib.suppress(UserError):  # parameters that do not fit together
                tried = parse_params(type(best), {**best.model_dump(), dimension.field: value}, node.prefix)
                best = max(best, tried, key=node.stage.steps)
    return node.stage.steps(best)


def _common_options(judges: Sequence[Metric | None]) -> dict[str, Any]:
    """Options that all these metrics share, so that a trial computes no more than they need."""
    first, *others = [judge.options if judge is not None else {} for judge in judges]
    return {name: value for name, value in first.items() if all(each.get(name, ...) == value for each in others)}


def _with_options(request: Request, options: Mapping[str, Any], fixed: frozenset[str]) -> Request:
    """The request with these options of its superworkflow, except those that the user has set."""
    if not options:
        return request
    prefix = request.superworkflow.name
    model = request.params[prefix]
    chosen = {name: value for name, value in options.items() if f"{prefix}.{name}" not in fixed}
    params = {**request.params, prefix: parse_params(type(model), {**model.model_dump(), **chosen}, prefix)}
    return replace(request, params=params, diagram=request.superworkflow.build(params, request.sources))


def _group(request: Request, space: Space, kept: Sequence[str], group: tuple[str, int] | None) -> tuple[list[str], int]:
    """Names of the parameters that the trials of a group share, and the number of trials in a group."""
    if group is None:
        return [], 1
    stage, size = group
    nodes = [request.diagram.nodes[name] for name in kept]
    node = next((each for each in nodes if each.prefix == stage and not each.stage.params_of), None)
    if node is None:
        valid = sorted({each.prefix for each in nodes})
        raise UserError("no such stage", where="--group", value=stage, remedy=nearest(stage, valid))
    upstream = {each.prefix for each in with_upstream([node])}
    shared = [dimension.name for dimension in space.dimensions if dimension.prefix in upstream]
    if not shared or len(shared) == len(space.dimensions):
        every = "none" if not shared else "every one"
        raise UserError(
            f"{every} of the searched parameters belongs to this stage or one upstream", where="--group", value=stage,
            remedy="Name a stage in the middle of those that are searched, or leave --group out",
        )  # fmt: skip
    return shared, size


def describe(setup: SweepSetup, objectives: Sequence[SweepObjective]) -> list[str]:
    """Lines that show the study's settings and the reasons for the defaults."""
    spec = setup.spec
    lines = [f"objective  {', '.join(f'{each.direction} {each.name}' for each in objectives)}"]
    lines += [
        f"sampler    {spec.sampler} ({setup.sampler.reason if spec.sampler == setup.sampler.name else 'as begun'})"
    ]
    lines += [f"pruner     {spec.pruner} ({setup.pruner.reason if spec.pruner == setup.pruner.name else 'as begun'})"]
    for name, entry in spec.space.items():
        shown = entry["choices"] if "choices" in entry else f"{entry['low']} to {entry['high']}"
        log = ", logarithmic" if entry.get("log") else ""
        lines.append(f"space      {name}: {shown}{log}{', shared in a group' if name in spec.shared else ''}")
    return lines
