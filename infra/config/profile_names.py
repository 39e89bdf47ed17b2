"""Check of the names in profiles: unknown entries of `stages` and unknown variants are refused."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.suggest import nearest
from superworkflow.infra.config.profile import Profile, is_file
from superworkflow.infra.contract.diagram import Diagram, Node
from superworkflow.infra.contract.stage import Stage, StageParams
from superworkflow.infra.contract.superworkflow import Superworkflow

_TRIED = 64
"""Combinations of options for which a diagram is drawn."""


@dataclass(frozen=True)
class ProfileNames:
    """Names that profiles may use.

    Args:
        entries: of `stages`.
        variants: by which superworkflows add entries themselves.
    """

    entries: Set[str]
    variants: Set[str]


def check_placements(
    superworkflow: Superworkflow, profile: Profile, given: str, registered: Callable[[], ProfileNames] | None
) -> None:
    """Refuse a profile with an unknown variant, or an entry for an unknown node or stage.

    One profile may serve several superworkflows, so it may name what this one does not have.

    Args:
        superworkflow: the one that is run.
        profile: who places its stages.
        given: its name or path; the profiles that come with the project are not checked.
        registered: returns the names of all other superworkflows; called only for names that this one lacks.

    Raises:
        UserError: names the entry and the nearest name.
    """
    if registered is None or not is_file(given):
        return
    variant = profile.variant
    if variant is not None and variant not in superworkflow.variants:
        variants = registered().variants | superworkflow.variants.keys()
        if variant not in variants:
            raise UserError(
                "no superworkflow declares a variant of this name", where=f"{given}: variant", value=variant,
                remedy=nearest(variant, sorted(variants)),
            )  # fmt: skip
    own = node_names(superworkflow)
    if unknown := [name for name in profile.stages if name not in own]:
        others = registered().entries
        for name in unknown:
            if name not in others:
                remedy = nearest(name, sorted(own))
                remedy = remedy if remedy.endswith("?") else nearest(name, sorted(own | others))
                raise UserError(
                    "no superworkflow has a node or a stage of this name", where=f"{given}: stages.{name}",
                    remedy=remedy,
                )  # fmt: skip


def node_names(superworkflow: Superworkflow) -> set[str]:
    """Names of stages, and of all nodes that diagrams of a superworkflow may have.

    Diagrams leave nodes out by their options and by what they are given, so they are drawn with each choice of options,
    with all sources and with none of the optional ones, from nothing.
    """
    stages = [*superworkflow.stages, *superworkflow.prefixes.values()]
    names = {stage.name for stage in stages} | {each.node for each in superworkflow.outcomes}
    for options in _options(superworkflow.options):
        for given in (list(superworkflow.sources), [*superworkflow.sources.keys() - superworkflow.optional]):
            sketch, sources = (
                _Sketch(options),
                {name: name if name in given else None for name in superworkflow.sources},
            )
            with contextlib.suppress(Exception):  # a diagram that looks into its sources; what it had by then counts
                superworkflow.diagram(sketch, **sources)
            names |= sketch.nodes.keys()
    return names


class _Sketch(Diagram):
    """Collects names; nothing is computed and nothing is checked."""

    def __init__(self, options: StageParams):
        super().__init__({}, options)

    def parameter(self, dotted: str) -> Any:
        """As if it were given: what depends on it is then in the diagram."""
        return True

    def stage(self, stage: Stage[Any], *, name: str | None = None, params: str | None = None, **inputs: Any) -> Node:
        node = Node(name or stage.name, stage, self.options, {}, "", params or stage.name)
        self.nodes[node.name] = node
        return node


def _options(model: type[StageParams]) -> Iterator[StageParams]:
    """The options with each combination of the values of those that have few."""
    choices: dict[str, tuple[Any, ...]] = {}
    for name, field in model.model_fields.items():
        if field.annotation is bool:
            choices[name] = (True, False)
        elif get_origin(field.annotation) is Literal:
            choices[name] = get_args(field.annotation)
    for values in itertools.islice(itertools.product(*choices.values()), _TRIED):
        yield model.model_construct(**dict(zip(choices, values, strict=True)))
