"""Versions of registered models, as records. Imports nothing of MLflow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

CURRENT, CHALLENGER = "current", "challenger"
"""Aliases of the version in use, and of the one that challenges it."""


@dataclass(frozen=True)
class Move:
    """One move of `current`, or the rollback that holds it.

    Args:
        kind: `promoted` or `rolled back`.
        version: that it moved to.
        previous: that it was at; None for the first.
        who: a person, or the deployment whose run it was.
        when: ISO 8601, UTC.
        why: one sentence.
        run_id: run that the version is from.
        data: digests by name of the sources that the version was made from.
    """

    kind: str
    version: int
    previous: int | None
    who: str
    when: str
    why: str
    run_id: str = ""
    data: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Version:
    """One version of a registered model.

    Args:
        digest: of its dataset.
        datasets: digests by node of what it can be scored again with.
        data: digests by name of its sources.
        quality: headline figures that its run reported.
        decision: what was decided when it was registered, as `Decision.document` has it.
        moves: of `current` to it, in order.
    """

    name: str
    version: int
    aliases: tuple[str, ...]
    run_id: str
    digest: str
    created: datetime
    datasets: Mapping[str, str]
    data: Mapping[str, str]
    quality: Mapping[str, float]
    decision: Mapping[str, Any]
    moves: tuple[Move, ...]
