"""Why a stage is cached or not: the parameter, input or version that differs from the nearest dataset in the store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from superworkflow.infra.config.request import Request
from superworkflow.infra.contract.code_file import INPUT
from superworkflow.infra.contract.diagram import Node
from superworkflow.infra.storage.dataset import Dataset


@dataclass(frozen=True)
class Difference:
    """One thing that differs from the nearest dataset.

    Args:
        kind: `parameter`, `input`, `version`, or `code`, the user's file that defines the stage.
        name: of the parameter or input.
        before: value in the nearest dataset; a digest for an input.
        now: value in this request.
    """

    kind: str
    name: str
    before: Any
    now: Any

    def __str__(self) -> str:
        if self.kind == "code":
            return "the file that defines the stage differs"
        if self.kind == "input":
            return f"input {self.name} differs"
        label = "stage version" if self.kind == "version" else self.name
        before, now = ("''" if value == "" else value for value in (self.before, self.now))
        return f"{label}: {before} → {now}"


@dataclass(frozen=True)
class Explanation:
    """Explanation of one node: the dataset that serves it, or its differences from the nearest one.

    Args:
        cached: the dataset is there.
        created: when the dataset, or the nearest one, was made; None when the store has none of this stage.
        differences: empty when cached, when a file of the dataset is gone, or when there is nothing to compare with.
    """

    name: str
    cached: bool
    created: datetime | None
    differences: tuple[Difference, ...] = ()

    def __str__(self) -> str:
        when = f"{self.created:%Y-%m-%d %H:%M} UTC" if self.created else ""
        if self.cached:
            return f"cached, made {when}"
        if self.created is None:
            return "will run: the store has no dataset of this stage"
        if not self.differences:
            return "will run: a file of its dataset is gone"
        return "will run: " + "; ".join(str(difference) for difference in self.differences)


def explain(request: Request) -> list[Explanation]:
    """Explain every node of a request, in the order of its diagram.

    The nearest dataset is the one of the same stage with the fewest differences; the newest among equals.
    """
    return [_explain(node, request) for node in request.diagram.nodes.values()]


def _explain(node: Node, request: Request) -> Explanation:
    dataset = request.store.find(node.stage.name, node.digest)
    if dataset is not None:
        return Explanation(node.name, True, dataset.manifest.created)
    best: tuple[int, float, Dataset, tuple[Difference, ...]] | None = None
    for candidate in request.store.datasets(node.stage.name):
        found = differences(node, candidate)
        key = (len(found), -candidate.manifest.created.timestamp())
        if best is None or key < best[:2]:
            best = (*key, candidate, found)
    if best is None:
        return Explanation(node.name, False, None)
    return Explanation(node.name, False, best[2].manifest.created, best[3])


def differences(node: Node, dataset: Dataset) -> tuple[Difference, ...]:
    """Differences between the dataset that `node` names and one of the same stage."""
    manifest = dataset.manifest
    found: list[Difference] = []
    if manifest.version != node.stage.version:
        found.append(Difference("version", "version", manifest.version, node.stage.version))
    now = node.params.identity()
    for name in sorted(now.keys() | manifest.params.keys()):
        before, value = manifest.params.get(name), now.get(name)
        if before != value:
            found.append(Difference("parameter", f"{node.prefix}.{name}", before, value))
    given = node.input_digests
    for name in sorted(given.keys() | manifest.inputs.keys()):
        entry = manifest.inputs.get(name)
        if (entry.digest if entry else None) != given.get(name):
            kind = "code" if node.code is not None and name == INPUT else "input"
            found.append(Difference(kind, name, entry.digest if entry else None, given.get(name)))
    return tuple(found)
