"""Names of a heterograph's sets in stats, and the bytes of their items in records of subgraphs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from superworkflow.tasks.lib.graph.dtypes import FLOATS, STRING, is_read

_INTEGER_BYTES, _STRING_BYTES, _USUAL_LENGTH = 2, 20, 8
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")


def stat_name(name: str, number: int) -> str:
    """A set's name where it is a plain word, else its number: names of sets may be any text."""
    return name if _PLAIN_NAME.fullmatch(name) else str(number)


def record_stats(kind: str, sets: Iterable[Any]) -> dict[str, int]:
    """About how many bytes the features of an item of each set take in a record, as `record_bytes.<kind>.<set>`.

    Also `values.<kind>.<set>`: numbers of a node that a network reads; of an edge all numbers.

    Args:
        kind: `nodes` or `edges`.
        sets: with a name and features, which have a type and a shape. Of strings and ragged ones it is a guess.
    """
    found = {}
    for number, items in enumerate(sets):
        sizes = [
            math.prod(_USUAL_LENGTH if size is None else size for size in feature.shape)
            * (_STRING_BYTES if feature.dtype == STRING else 4 if feature.dtype in FLOATS else _INTEGER_BYTES)
            for feature in items.features
        ]
        name = stat_name(items.name, number)
        found[f"record_bytes.{kind}.{name}"] = sum(sizes)
        found[f"values.{kind}.{name}"] = (
            sum(
                math.prod(each.shape)
                for each in items.features
                if None not in each.shape and is_read(each.dtype, math.prod(each.shape))
            )
            if kind == "nodes"
            else sum(math.prod(each.shape) for each in items.features if is_matrix(each))
        )
    return found


def end_stats(edge_sets: Iterable[Any]) -> dict[str, str]:
    """Node sets at the ends of each edge set, as `edges.<edge set>.source` and `.target`."""
    return {
        f"edges.{stat_name(each.name, number)}.{end}": getattr(each, end)
        for number, each in enumerate(edge_sets)
        for end in ("source", "target")
    }


def is_matrix(feature: Any) -> bool:
    """True if a feature is the same count of numbers for each item, at least one."""
    return feature.dtype != STRING and None not in feature.shape and math.prod(feature.shape) > 0


def is_single(feature: Any) -> bool:
    """True if a feature is one number for each item."""
    return is_matrix(feature) and math.prod(feature.shape) == 1
