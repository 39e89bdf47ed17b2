"""Arguments that commands share: which superworkflow, on what, with which settings."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from flows import load_superworkflow, superworkflow_names
from infra.diagram import Superworkflow
from infra.profile import profile_names
from infra.request import DEFAULT_STORE, Request, build_request


def add_request_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    """Declare them; the source files and flags are those of the superworkflow that `given` names."""
    # Checked while parsing: an unknown one has no source files, which would be reported first.
    parser.add_argument("superworkflow", type=_known, help=f"one of: {', '.join(superworkflow_names())}")
    name = next((text for text in given if text in superworkflow_names()), None)
    if name is not None:
        chosen = load_superworkflow(name)
        for source, text in chosen.sources.items():
            parser.add_argument(f"--{source}", metavar="URI" if source in chosen.datasets else "FILE", help=text)
        for flag, definition in chosen.flags.items():
            parser.add_argument(f"--{flag}", action="store_true", help=definition.help)
        parser.epilog = "Parameters for --set and --config: " + ", ".join(
            f"{prefix}.{field}" for prefix, model in chosen.models().items() for field in model.model_fields
        )
    parser.add_argument("--config", metavar="FILE", help="YAML file of parameters: `walk: {walk_length: 40}`")
    parser.add_argument(
        "--set", metavar="STAGE.PARAMETER=VALUE", nargs="+", action="extend", default=[],
        help="one or more parameters, stronger than --config",
    )  # fmt: skip
    parser.add_argument(
        "--profile", default="laptop", help=f"engine and resources: {', '.join(profile_names())} or a file"
    )
    parser.add_argument(
        "--store", default=DEFAULT_STORE, metavar="URI", help="folder or s3://bucket/prefix of all datasets"
    )
    parser.add_argument("--prices", metavar="NAME|FILE", help="price table; the newest by default")


def _known(name: str) -> str:
    return load_superworkflow(name).name


def request_from(options: argparse.Namespace) -> tuple[Superworkflow, Request]:
    """Validate the arguments.

    Raises:
        UserError: the first thing that is wrong.
    """
    superworkflow = load_superworkflow(options.superworkflow)
    request = build_request(
        superworkflow, sources=sources_of(superworkflow, options), config=options.config,
        assignments=assignments_of(superworkflow, options),
        profile=options.profile, store=options.store, prices=options.prices,
    )  # fmt: skip
    return superworkflow, request


def sources_of(superworkflow: Superworkflow, options: argparse.Namespace) -> dict[str, str]:
    """URIs of the sources that were given."""
    return {name: getattr(options, name) for name in superworkflow.sources if getattr(options, name) is not None}


def assignments_of(superworkflow: Superworkflow, options: argparse.Namespace) -> list[str]:
    """The assignments of `--set` and of the superworkflow's flags."""
    flags = [f"{flag.parameter}=true" for name, flag in superworkflow.flags.items() if getattr(options, name)]
    return [*flags, *options.set]
