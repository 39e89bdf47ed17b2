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
    return [str(each) for each in own_warnings(found, params)]


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


def own_warnings(found: Sequence[InputWarning], params: HeterographParams) -> tuple[InputWarning, ...]:
    """Warnings of `index` in words of this stage, without those of columns that this or other stages read."""
    used = [name.strip() for name in f"{params.edge_features},{params.other_columns}".split(",")]
    left = (each for each in found if not ("not used" in each.what and each.where.endswith(tuple(map(_place, used)))))
    return tuple(map(without_parameter, left))


def _place(column: str) -> str:
    return f", column {column}" if column else "\n"  # which no place ends with


def without_parameter(warning: InputWarning) -> InputWarning:
    """The warning, if a parameter of `index` would settle it, with what does so here."""
    if timed := re.match(r"Set index\.time=(.+?) and index", warning.settle):
        settle = (
            f"Set heterograph.time={timed[1]} to keep the times, or heterograph.from_time or heterograph.until to cut"
        )
        return replace(warning, settle=settle)
    if weighted := re.match(r"Set index\.weight=(.+?)(?= and | to use )", warning.settle):
        settle = f"Set heterograph.edge_features={weighted[1]} for a feature of edges, or call it weight for weights"
        return replace(warning, settle=settle)
    settle = _own(warning.settle)
    if "index." not in settle:
        return replace(warning, settle=settle)
    return replace(warning, settle="Give a table with columns source, target and weight to have it read otherwise")
