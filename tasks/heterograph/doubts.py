"""Doubts about an edge list that stage `heterograph` reads as `index` does, in words that fit this stage."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.source import Source
from superworkflow.tasks.heterograph import HeterographParams
from superworkflow.tasks.index import IndexParams
from superworkflow.tasks.lib.edge_list.edge_files import detected_warnings
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning


def doubts(params: HeterographParams, sources: Mapping[str, Source]) -> Sequence[str]:
    """Warnings that the stage will give of an edge list, from the first rows; of tables and triples none are known.

    Raises:
        UserError: the file will be refused.
    """
    if "edges" not in sources or params.format == "triples":
        return []
    try:
        found = detected_warnings(sources["edges"], index_params(params))
    except UserError as error:
        raise without_parameters(error) from None
    return [str(without_parameter(each)) for each in found]


def index_params(params: HeterographParams) -> IndexParams:
    """Parameters of `index` by which this stage reads an edge list."""
    return IndexParams(
        engine="compiled", missing=params.missing, bipartite=params.bipartite, directed=params.directed,
        time=params.time, from_time=params.from_time, until=params.until,
    )  # fmt: skip


def without_parameters(error: UserError) -> UserError:
    """The error, whose remedy may name parameters of `index`, of which this stage has some."""
    remedy = _own(error.remedy or "")
    if remedy == error.remedy and "index." not in remedy:
        return error
    value = {} if error.value is None else {"value": error.value}
    if "index.format=triples" in remedy:
        remedy = (
            "Set heterograph.format=triples for one edge set a relation, or give a header to have them read as edges"
        )
    elif "index." in remedy:
        remedy = f"{remedy}. The stage heterograph has no such parameter: convert the file first"
    return UserError(error.what, where=error.where, remedy=remedy, **value)


def _own(remedy: str) -> str:
    """A remedy whose parameters of `index` that this stage has too are named as its own."""
    return re.sub(r"\bindex\.(missing|bipartite|time|from_time|until|directed)\b", r"heterograph.\1", remedy)


def without_parameter(warning: InputWarning) -> InputWarning:
    """The warning, if a parameter of `index` would settle it, with what does so here."""
    if timed := re.match(r"Set index\.time=(.+?) and index", warning.settle):
        settle = (
            f"Set heterograph.time={timed[1]} to keep the times, or heterograph.from_time or heterograph.until to cut"
        )
        return replace(warning, settle=settle)
    settle = _own(warning.settle)
    if "index." not in settle:
        return replace(warning, settle=settle)
    return replace(warning, settle="Give a table with columns source, target and weight to have it read otherwise")
