"""Bundles of every kind: the names of their nodes, and facts in `bundle.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.dataset import Dataset, DatasetWriter

if TYPE_CHECKING:
    import pyarrow as pa


def write_names(output: DatasetWriter, nodes: pa.LargeStringArray, prefix: str = "") -> None:
    """`nodes.npy` uint8, the nodes' UTF-8 one after the other, cut at `node_offsets.npy` int64 `[n + 1]`."""
    _, offsets, text = nodes.buffers()
    cuts = np.frombuffer(offsets, dtype=np.int64)[nodes.offset : nodes.offset + len(nodes) + 1]
    output.array(f"{prefix}nodes.npy", np.frombuffer(text, dtype=np.uint8)[cuts[0] : cuts[-1]])
    output.array(f"{prefix}node_offsets.npy", cuts - cuts[0])


def sorted_order(nodes: pa.LargeStringArray, what: str, where: str) -> pa.Int64Array:
    """Rows of nodes, ascending by the bytes of their names.

    Raises:
        UserError: a node of dataset `where` has two of `what`.
    """
    import pyarrow.compute as pc

    order = pc.sort_indices(nodes)
    ordered = nodes.take(order)
    twice = pc.index(pc.equal(ordered[1:], ordered[:-1]), True).as_py()
    if twice >= 0:
        raise UserError(f"a node has two {what}", where=where, value=ordered[twice].as_py(),
                        remedy="Give each node one row")  # fmt: skip
    return order


def facts_of(bundle: Dataset, stage: str, prefix: str = "") -> tuple[dict[str, Any], str]:
    """The facts of a bundle, and the first node of those with a prefix; `stage` makes such bundles.

    Raises:
        UserError: the dataset is none.
    """
    if "bundle.json" not in bundle:
        raise UserError(
            "not a bundle that can be registered (no bundle.json)", where=bundle.uri,
            remedy=f"Give a dataset that the {stage} stage made",
        )  # fmt: skip
    text, offsets = bundle.array(f"{prefix}nodes.npy"), bundle.array(f"{prefix}node_offsets.npy")
    return bundle.json("bundle.json"), bytes(text[offsets[0] : offsets[1]]).decode("utf-8")
