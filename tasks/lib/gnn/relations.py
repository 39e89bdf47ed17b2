"""Relations of a network and the levels of its samples."""

from __future__ import annotations

from typing import NamedTuple


class Relation(NamedTuple):
    """An edge set, as messages flow along it.

    Args:
        number: number of the edge set.
        name: name of the edge set.
        receivers: node set where its edges start.
        senders: node set where they end.
    """

    number: int
    name: str
    receivers: str
    senders: str


class LayerSchema(NamedTuple):
    """Schema of one layer.

    Args:
        receivers: node sets that get new rows.
        relations: edge sets along which messages flow.
        senders: node sets whose rows are read, including the receivers.
    """

    receivers: tuple[str, ...]
    relations: tuple[Relation, ...]
    senders: tuple[str, ...]
