"""Relations of a network and the levels of its samples."""

from __future__ import annotations

from typing import NamedTuple


class Relation(NamedTuple):
    """An edge set as messages flow along it.

    Args:
        number: of the edge set.
        name: of it.
        receivers: node set in which its edges start.
        senders: node set in which they end.
    """

    number: int
    name: str
    receivers: str
    senders: str


class LayerSchema(NamedTuple):
    """Schema of one layer.

    Args:
        receivers: node sets that get new rows.
        relations: along which messages flow.
        senders: node sets whose rows it reads, the receivers among them.
    """

    receivers: tuple[str, ...]
    relations: tuple[Relation, ...]
    senders: tuple[str, ...]
