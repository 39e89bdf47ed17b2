"""Ways from the seed through a spec's ops; known without compiled kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

MOST_PATHS = 64
"""Paths of ops that are followed, the shortest first."""

Path = tuple[str, ...]
"""Edge sets from the seed on; none for the seed itself."""


def paths_of(ops: Iterable[tuple[str, Sequence[str], str]], seed_op: str, most: int) -> list[Path]:
    """Every way from the seed to the output of an op, as edge sets; the shortest first, the seed's own before all.

    Args:
        ops: name, names of inputs and edge set of each, inputs before those that read them.
        seed_op: name of the seed op.
        most: paths to return.
    """
    found: dict[str, dict[Path, None]] = {seed_op: {(): None}}
    for name, inputs, edge_set in ops:
        ways = {(*path, edge_set): None for given in inputs for path in found[given]}
        found[name] = dict.fromkeys(sorted(ways, key=len)[:most])
    every = dict.fromkeys(path for ways in found.values() for path in ways)
    return sorted(every, key=len)[:most]


def paths_in(spec: Mapping[str, Any]) -> list[Path]:
    """The paths that are followed in a spec whose seeds are nodes, as `Spec.canonical` gives it."""
    ops = [(op["op_name"], op["input_op_names"], op["edge_set_name"]) for op in spec["sampling_ops"]]
    return paths_of(ops, spec["seed_op"]["op_name"], MOST_PATHS)
