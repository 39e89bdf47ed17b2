"""`superworkflow generate`: random graphs of any size, to try capacity."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.progress import Progress
from superworkflow.tasks.lib.generators.communities import generate_communities, generate_csbm
from superworkflow.tasks.lib.generators.edge_lists import generate
from superworkflow.tasks.lib.generators.mag import generate_mag

_COMMUNITIES = ("communities", "width")
_EXTRA = {"communities": _COMMUNITIES, "csbm": (*_COMMUNITIES, "homophily", "signal")}
"""Options of a model besides its size, which have defaults."""


def add_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--model", choices=["er", "chung-lu", "communities", "csbm", "mag"], required=True,
        help="Erdős–Rényi, power-law degrees, these with communities and classes, planted classes and features "
        "(contextual stochastic block model), or the typed graph of OGBN-MAG's sizes",
    )  # fmt: skip
    parser.add_argument(
        "--nodes", type=int, metavar="N", help="number of vertices of er, chung-lu, communities and csbm"
    )
    parser.add_argument("--edges", type=int, metavar="M", help="number of edges of er, chung-lu, communities and csbm")
    parser.add_argument("--scale", type=float, metavar="S", help="of mag's counts; 1 for those of the original")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="PATH",
        help="a file, .csv, .tsv, .txt (also .gz) or .parquet; of communities, csbm and mag a folder",
    )  # fmt: skip
    parser.add_argument("--exponent", type=float, default=2.5, help="of the power law of degrees; default 2.5")
    parser.add_argument(
        "--communities", type=int, metavar="C", help="of communities, and of csbm its classes: how many; default 50"
    )
    parser.add_argument(
        "--width", type=int, metavar="D", help="of communities and csbm, numbers of each node; default 100"
    )
    parser.add_argument(
        "--homophily", type=float, metavar="H", help="of csbm, share that is within a class; default 0.7"
    )
    parser.add_argument(
        "--signal", type=float, metavar="S",
        help="of csbm, distance of a class's mean from 0 in each column, noise having a standard deviation of 1; "
        "default 0.1",
    )  # fmt: skip
    parser.add_argument("--prefix", default="", help="text in front of each vertex number, for string labels")
    parser.add_argument("--seed", type=int, default=42, help="default 42")


def run(options: argparse.Namespace) -> int:
    """Write the file, or mag's folder."""
    progress = Progress("generate")
    needed = ("scale",) if options.model == "mag" else ("nodes", "edges")
    extra = _EXTRA.get(options.model, ())
    for name in (*("nodes", "edges"), "scale", *_EXTRA["csbm"]):
        if name not in extra and (getattr(options, name) is None) == (name in needed):
            raise UserError(
                "this model needs it" if name in needed else "this model does not take it",
                where=f"--{name} with --model", value=options.model,
                remedy=f"Give {' and '.join(f'--{each}' for each in needed)}",
            )  # fmt: skip

    def update(done: int, total: int) -> None:
        progress.update(done, total, "rows")

    sizes = {name: getattr(options, name) for name in extra if getattr(options, name) is not None}
    if options.model == "mag":
        generate_mag(options.scale, options.out, options.seed, progress=update)
    elif options.model == "communities":
        generate_communities(
            options.nodes, options.edges, options.out, options.seed, exponent=options.exponent, **sizes,
            progress=update,
        )  # fmt: skip
    elif options.model == "csbm":
        generate_csbm(
            options.nodes, options.edges, options.out, options.seed, **sizes, progress=update
        )  # fmt: skip
    else:
        generate(
            options.model, options.nodes, options.edges, options.out, seed=options.seed, exponent=options.exponent,
            prefix=options.prefix, progress=lambda done, total: progress.update(done, total, "edges"),
        )  # fmt: skip
    print(options.out)
    return 0
