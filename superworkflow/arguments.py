"""Arguments that commands share: the superworkflow, its sources and its settings."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from superworkflow.earlier_runs import find_datasets
from superworkflow.flows import known_names, listed_superworkflows, load_superworkflow, superworkflow_names
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.suggest import nearest
from superworkflow.infra.config.profile import profile_names
from superworkflow.infra.config.request import DEFAULT_STORE, Request, build_request, default_store
from superworkflow.infra.contract.code_file import is_code_file
from superworkflow.infra.contract.params import parse_params
from superworkflow.infra.contract.registration import Registration, check_gates, check_limits
from superworkflow.infra.contract.superworkflow import Superworkflow
from superworkflow.infra.storage.location import Location
from superworkflow.parser import asks_for_help, describe_parameters, describe_rows


def add_request_arguments(
    parser: argparse.ArgumentParser, given: Sequence[str], instead: Iterable[str] = (), reads: bool = True
) -> Superworkflow | None:
    """Declare the shared arguments, with the sources and flags of the superworkflow that `given` names.

    Args:
        parser: of the command.
        given: the words after the command.
        instead: words that the command accepts in place of a superworkflow, suggested for one that is neither.
        reads: the command reads the sources.

    Returns:
        The named superworkflow, if any.
    """

    names = superworkflow_names()

    def checked(name: str) -> str:
        if name not in names and "?" in (hint := nearest(name, list(instead))):
            raise UserError("neither a superworkflow nor an action", where=name, remedy=hint)
        load_superworkflow(name)
        return name

    # Checked while parsing: an unknown one has no source files, which would be reported first.
    parser.add_argument(
        "superworkflow", type=checked, help=f"one of: {', '.join(names)}, or the path of a file: ./mine.py"
    )
    name = _named(given, names)
    chosen = load_superworkflow(name) if name is not None else None
    if chosen is not None:
        add_source_arguments(parser, chosen)
        for flag, definition in chosen.flags.items():
            takes: Any = {"metavar": definition.metavar} if definition.metavar else {"action": "store_true"}
            parser.add_argument(f"--{flag}", help=definition.help.replace("%", "%%"), **takes)
        if asks_for_help(given):
            parser.description = f"{parser.description} {chosen.name}: {chosen.help}."
            describe_parameters(parser, "Parameters for --set and --config", chosen.models())
    else:
        epilog = [
            *filter(None, [parser.epilog]),
            f"`{parser.prog} NAME --help` shows the parameters of a superworkflow.",
        ]
        parser.epilog = ". ".join(epilog)
        if asks_for_help(given):
            rows = [(each.name, [each.help, f"from {each.origin}"]) for each in listed_superworkflows()]
            describe_rows(parser, "Superworkflows", rows)
        elif not given:
            raise _which(parser.prog)
    add_settings_arguments(parser, chosen, reads)
    return chosen


def add_source_arguments(
    parser: argparse.ArgumentParser, chosen: Superworkflow, apart_from: Iterable[str] = ()
) -> None:
    """Declare the sources of a superworkflow, apart from those that the command finds by itself."""
    for source, text in chosen.sources.items():
        if source not in apart_from:
            metavar = "RUN" if source in chosen.datasets else "FILE"
            need = "optional" if source in chosen.optional else "required"
            parser.add_argument(f"--{source}", metavar=metavar, help=f"{text} ({need})".replace("%", "%%"))


def add_settings_arguments(parser: argparse.ArgumentParser, chosen: Superworkflow | None, reads: bool = True) -> None:
    """Declare the arguments about parameters, profile and store.

    Args:
        parser: of the command.
        chosen: the superworkflow, if it is named.
        reads: the command reads the sources.
    """
    parser.add_argument("--config", metavar="FILE", help="YAML file of parameters: `train: {epochs: 3}`")
    parser.add_argument(
        "--set", metavar="STAGE.PARAMETER=VALUE", action="append", default=[],
        help="one or more parameters; overrides --config",
    )  # fmt: skip
    parser.add_argument(
        "--profile", default="laptop",
        help=f"engines and resources: {', '.join(profile_names())} or a file; default laptop",
    )  # fmt: skip
    parser.add_argument(
        "--store", default=default_store(), metavar="URI",
        help=f"where datasets are kept, a folder or s3://bucket/prefix; default {DEFAULT_STORE}",
    )  # fmt: skip
    parser.add_argument("--prices", metavar="NAME|FILE", help="price table; the newest by default")
    if chosen is None or any(each.tables for stage in chosen.stages for each in stage.inputs.values()):
        parser.add_argument(
            "--tables-from", metavar="PREFIX", action="append", default=[],
            help="path or URI below which a description may name tables; without it, a description that is not a local "
            "file may name only tables in its own folder; may be repeated",
        )  # fmt: skip
    if reads:
        parser.add_argument(
            "--as-of", metavar="VERSION|TIME", default="",
            help="read tables of Delta Lake and Iceberg as they were in this version, or at this time (ISO, UTC)",
        )  # fmt: skip
        parser.add_argument(
            "--rehash", action="store_true", help="read all sources again, even those that seem unchanged"
        )


def _which(command: str) -> UserError:
    """Error of a command that names no superworkflow, with a list of them."""
    rows = [f"    {each.name}  {each.help} (from {each.origin})\n" for each in listed_superworkflows()]
    return UserError(f"{command} needs the name of a superworkflow. Available:\n{''.join(rows)}"
                     "Or the path of a file that defines one: see docs/your-own.md")  # fmt: skip


def _named(given: Sequence[str], names: Sequence[str]) -> str | None:
    """The first name or file, preferring one that is not an option's value."""
    found = [place for place, text in enumerate(given) if text.replace("-", "_") in names or is_code_file(text)]
    free = [place for place in found if place == 0 or not given[place - 1].startswith("-")]
    return given[(free or found)[0]] if found else None


def request_from(
    options: argparse.Namespace, registration: Callable[[Superworkflow], Registration] | None = None
) -> tuple[Superworkflow, Request]:
    """Validate the arguments.

    Args:
        options: with those of `add_request_arguments`.
        registration: of the superworkflow's models.

    Raises:
        UserError: the first invalid argument.
    """
    superworkflow = load_superworkflow(options.superworkflow)
    request = build_request(
        superworkflow, sources=sources_of(superworkflow, options), config=options.config,
        assignments=assignments_of(superworkflow, options),
        profile=options.profile, store=options.store, prices=options.prices, rehash=options.rehash,
        registered=known_names, registration=registration(superworkflow) if registration is not None else None,
        tables_from=tables_from(options), as_of=getattr(options, "as_of", ""),
    )  # fmt: skip
    return superworkflow, request


def tables_from(options: argparse.Namespace) -> list[str]:
    """Prefixes below which descriptions may name tables; those of this machine as absolute paths.

    Raises:
        UserError: one is neither a path nor a URI.
    """
    return [Location.of(prefix).uri for prefix in getattr(options, "tables_from", [])]


def add_promotion_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that control promotion."""
    parser.add_argument(
        "--gate", metavar="METRIC>=NUMBER", action="append", default=[],
        help="limit that a model must keep to be promoted, such as evaluate.macro_f1>=0.4; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--max-drift", metavar="FIGURE=NUMBER", action="append", default=[],
        help="largest drift from the champion that still allows promotion, such as degree_psi=0.25; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--tolerance", type=float, metavar="X",
        help="by how much a promoted model may be worse than the champion; default: the uncertainty of the "
        "champion's evaluation",
    )  # fmt: skip
    parser.add_argument(
        "--no-promote", action="store_true", help="register models as challengers only; `promote` puts one into use"
    )
    parser.add_argument("--warm-start", action="store_true", help="start training from the champion")


def registration_from(options: argparse.Namespace, superworkflow: Superworkflow, name: str | None) -> Registration:
    """Registration of models, from the arguments; see `registration_of`.

    Args:
        options: with those of `add_promotion_arguments`.
        superworkflow: whose models are registered.
        name: to register them under; None for the default, or for no registration.
    """
    return registration_of(
        superworkflow, name, gates=options.gate, max_drift=options.max_drift, tolerance=options.tolerance,
        promote=not options.no_promote, warm_start=options.warm_start,
    )  # fmt: skip


def registration_of(
    superworkflow: Superworkflow,
    name: str | None,
    *,
    gates: Sequence[str] = (),
    max_drift: Sequence[str] = (),
    tolerance: float | None = None,
    promote: bool = True,
    warm_start: bool = False,
) -> Registration:
    """Registration of a superworkflow's models under a name; for the terms see `Registration`.

    Raises:
        UserError: the first invalid argument.
    """
    given = name is not None or gates or max_drift or tolerance is not None or not promote or warm_start
    if given and not superworkflow.registered:
        raise UserError(f"{superworkflow.name} registers no model", where=superworkflow.name,
                        remedy="Leave out the options of registration and promotion")  # fmt: skip
    if warm_start and not any(model.warm_start for model in superworkflow.registered):
        raise UserError(f"{superworkflow.name} does not say how to start from an earlier model", where="--warm-start")
    check_gates(gates, superworkflow.metrics)
    check_limits(max_drift, superworkflow.drift_names)
    values = {"name": name or "", "gates": gates, "max_drift": max_drift, "tolerance": tolerance,
              "promote": promote, "warm_start": warm_start}  # fmt: skip
    return parse_params(Registration, values, "registration")


def check_registered(registration: Registration, tracked: bool) -> Registration:
    """The registration of one run, which names the model where it sets terms, and is recorded.

    Raises:
        UserError: it is not so.
    """
    if registration.name and not tracked:
        raise UserError("not together with --no-tracking: models are kept in MLflow", where="--register",
                        value=registration.name)  # fmt: skip
    if registration != Registration() and not registration.name:
        where = "--gate, --max-drift, --tolerance, --no-promote, --warm-start"
        raise UserError("this run registers no model", where=where, remedy="Name one with --register NAME")
    return registration


def sources_of(superworkflow: Superworkflow, options: argparse.Namespace) -> dict[str, str]:
    """URIs of the given sources; a dataset may be given as the run that made it."""
    given = {name: getattr(options, name) for name in superworkflow.sources if getattr(options, name) is not None}
    return find_datasets(superworkflow, given, options.store)


def assignments_of(superworkflow: Superworkflow, options: argparse.Namespace) -> list[str]:
    """Assignments of `--set` and of the superworkflow's flags."""
    given = {flag.parameter: getattr(options, name) for name, flag in superworkflow.flags.items()}
    # JSON, so that no text is taken for a number or a list.
    flags = [f"{name}={json.dumps(value)}" for name, value in given.items() if value not in (None, False)]
    return [*flags, *options.set]
