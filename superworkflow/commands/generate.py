"""`superworkflow generate`: random graphs of any size, to try capacity."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from superworkflow.infra.progress import Progress
from superworkflow.tasks._generate import generate


def add_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--model", choices=["er", "chung-lu"], required=True, help="Erdős–Rényi, or power-law degrees")
    parser.add_argument("--nodes", type=int, required=True, metavar="N", help="number of vertices")
    parser.add_argument("--edges", type=int, required=True, metavar="M", help="number of edges")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help=".csv, .tsv, .txt (also .gz) or .parquet"
    )
    parser.add_argument("--exponent", type=float, default=2.5, help="power-law exponent of chung-lu; default 2.5")
    parser.add_argument("--prefix", default="", help="text in front of each vertex number, for string labels")
    parser.add_argument("--seed", type=int, default=42, help="default 42")


def run(options: argparse.Namespace) -> int:
    """Write the file."""
    progress = Progress("generate")
    generate(
        options.model, options.nodes, options.edges, options.out, seed=options.seed, exponent=options.exponent,
        prefix=options.prefix, progress=lambda done, total: progress.update(done, total, "edges"),
    )  # fmt: skip
    print(options.out)
    return 0
