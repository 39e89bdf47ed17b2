"""Graphs on which `gnn` with defaults is judged: edge lists with features, labels and, where published, splits.

Three are drawn here, and no default was chosen by them: products bought together, authors with joint papers, and pages
that link to each other. Degrees follow a power law, most edges stay within a class, and a node's words are drawn from
its class's or from all. Numbers of nodes, edges and classes are near those of real graphs; the shares are guesses, and
of co-purchase they are too easy: GCN reaches 0.987 there (one seed).
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from examples.debian_archive import convert_apt
from tests.tasks.planetoid import write_planetoid

SPLITS = ("train", "validation", "test")


class Drawn(NamedTuple):
    """Sizes of a drawn graph.

    Args:
        local: share of the edges whose ends have one class.
        words: of a node, on average.
        topical: share of the words that are drawn by the node's class.
        labelled: nodes of each class to train on; as many, and at most 30, to validate on.
    """

    nodes: int
    edges: int
    width: int
    classes: int
    local: float
    words: int
    topical: float
    labelled: int


DRAWN = {
    "co-purchase": Drawn(13_752, 245_861, 767, 10, 0.78, 267, 0.06, 20),
    "co-author": Drawn(18_333, 81_894, 1_500, 15, 0.81, 48, 0.35, 20),
    "musae": Drawn(11_631, 170_918, 1_000, 5, 0.55, 22, 0.25, 100),
}
REAL = ("email-eu-core", "cora", "citeseer")
DEBIAN = "debian"


def cases(data: Path | None, lists: Path) -> list[str]:
    """Names of the graphs that can be written, small ones first."""
    real = [*(REAL if data else ()), *([DEBIAN] if any(lists.glob("*_Packages*")) else ())]
    return [*real, *sorted(DRAWN, key=lambda name: DRAWN[name].edges)]


def write_case(name: str, data: Path, folder: Path, lists: Path) -> dict[str, str]:
    """Write a graph; the inputs of stage heterograph.

    Args:
        name: one of `cases`.
        data: folder of the real graphs.
        folder: to write to; must not exist.
        lists: folder of apt's lists, of which Debian's dependencies and sections are.
    """
    if name in DRAWN:
        return _drawn(DRAWN[name], folder)
    if name == DEBIAN:
        return _debian(lists, folder)
    if name == "email-eu-core":
        files = {"edges": "email-Eu-core.txt", "labels": "email-Eu-core-department-labels.txt"}
        return {each: str(data / name / file) for each, file in files.items()}
    write_planetoid(data / "planetoid", name, folder)
    papers = pq.read_table(folder / "paper.parquet")
    pq.write_table(papers.select(["id", "feat"]).rename_columns(["node", "features"]), folder / "features.parquet")
    label = dict(zip(papers["id"].to_pylist(), papers["label"].to_pylist(), strict=True))
    with (folder / "seeds.csv").open() as lines:
        rows = [(each["id"], label[int(each["id"])], each["split"]) for each in csv.DictReader(lines)]
    _write(folder / "labels.csv", ("node", "label", "split"), rows)
    return {each: str(folder / file) for each, file in _FILES.items()} | {"edges": str(folder / "cites.parquet")}


_FILES = {"edges": "edges.parquet", "features": "features.parquet", "labels": "labels.csv"}


def _debian(lists: Path, folder: Path) -> dict[str, str]:
    """Sections of packages that have one, words of their descriptions, and dependencies."""
    convert_apt(lists, folder)
    nodes = pq.read_table(folder / "package.parquet")
    pq.write_table(nodes.select(["id", "words"]).rename_columns(["node", "features"]), folder / "features.parquet")
    pq.write_table(nodes.select(["id", "section"]).rename_columns(["node", "label"]), folder / "labels.parquet")
    return {each: str(folder / f"{each}.parquet") for each in ("features", "labels")} | {
        "edges": str(folder / "depends.parquet")
    }


def _drawn(case: Drawn, folder: Path) -> dict[str, str]:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(29)
    share = rng.dirichlet(np.full(case.classes, 3.0))
    kind = rng.choice(case.classes, case.nodes, p=share)
    weight = rng.pareto(1.8, case.nodes) + 0.3
    ends = _ends(rng, weight, kind, case)
    pq.write_table(pa.table({"source": ends[0], "target": ends[1]}), folder / _FILES["edges"])
    words = rng.dirichlet(np.full(case.width, 0.5))
    topics = np.stack([rng.dirichlet(words * 150 + 1e-3) for _ in range(case.classes)])
    chance = case.topical * topics[kind] + (1 - case.topical) * words
    lengths = rng.poisson(case.words, case.nodes)[:, None]
    present = rng.random(chance.shape) < 1 - np.exp(-lengths * chance)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(present.astype(np.float32).reshape(-1)), case.width)
    pq.write_table(pa.table({"node": np.arange(case.nodes), "features": vectors}), folder / _FILES["features"])
    order, split = rng.permutation(case.nodes), np.full(case.nodes, 2)
    for each in range(case.classes):
        nodes = order[kind[order] == each]
        split[nodes[: case.labelled]] = 0
        split[nodes[case.labelled : case.labelled + max(30, case.labelled)]] = 1
    rows = [(node, f"c{kind[node]}", SPLITS[split[node]]) for node in range(case.nodes)]
    _write(folder / _FILES["labels"], ("node", "label", "split"), rows)
    return {each: str(folder / file) for each, file in _FILES.items()}


def _ends(rng: np.random.Generator, weight: NDArray[np.float64], kind: NDArray[np.int64], case: Drawn) -> NDArray:
    """Ends of edges [2, edges]: the second one is drawn in the class of the first for a share of them."""
    first = rng.choice(case.nodes, case.edges, p=weight / weight.sum())
    second = rng.choice(case.nodes, case.edges, p=weight / weight.sum())
    local = rng.random(case.edges) < case.local
    for each in range(case.classes):
        nodes, where = np.flatnonzero(kind == each), np.flatnonzero(local & (kind[first] == each))
        second[where] = rng.choice(nodes, len(where), p=weight[nodes] / weight[nodes].sum())
    ends = np.stack([first, second])
    return ends[:, first != second]


def _write(path: Path, header: tuple[str, ...], rows: list) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
