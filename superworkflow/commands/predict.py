"""`superworkflow predict`: a registered model applied to new data, as a run of stages."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from superworkflow.arguments import add_settings_arguments, add_source_arguments, sources_of, tables_from
from superworkflow.commands.models import registry_of
from superworkflow.commands.run import start
from superworkflow.flows import known_names, load_superworkflow, superworkflow_names
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.extras import require_extra
from superworkflow.infra.config.request import Request, build_request
from superworkflow.infra.contract.superworkflow import Superworkflow
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.store import Store
from superworkflow.infra.tracking.model_versions import CHALLENGER, CURRENT, Version
from superworkflow.infra.tracking.records import RunRecord
from superworkflow.parser import asks_for_help, describe_parameters

_REGISTERED = "models:/"


def add_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "model", metavar="MODEL",
        help="a registered model: NAME (the version in use), NAME/VERSION or NAME@ALIAS; or the URI of the dataset "
        "that its run trained",
    )  # fmt: skip
    found = applying()
    chosen = found[0] if len(found) == 1 else None
    declared: set[str] = set()
    for each in found:
        add_source_arguments(parser, each, declared | each.applies.keys())
        declared |= each.sources.keys()
    if chosen is not None and asks_for_help(given):
        describe_parameters(parser, "Parameters for --set and --config", chosen.models())
    parser.add_argument("--out", type=Path, metavar="FILE", help="also copy the result to this file (Parquet)")
    add_settings_arguments(parser, chosen)
    parser.add_argument("--name", help="name of the run in Prefect and MLflow")
    parser.add_argument("--no-tracking", action="store_true", help="record nothing in MLflow")
    parser.add_argument("--json", action="store_true", help="print one JSON document on standard output at the end")
    parser.set_defaults(export=[])


def run(options: argparse.Namespace) -> int:
    """Predict; the exit status is 0, 1 (a stage failed) or 2 (bad input)."""
    require_extra("flow")
    _check_out(options.out)
    request = request_of(options)
    done = start(request, options)
    if done.record is not None and options.out is not None:
        _copy(request.superworkflow, done.record, options.out)
    return done.exit_code


def request_of(options: argparse.Namespace) -> Request:
    """The request that applies the model.

    Raises:
        UserError: there is no such model, or the first invalid argument.
    """
    superworkflow, source, uri = _resolved(options)
    given = argparse.Namespace(**{**vars(options), source: uri})
    return build_request(
        superworkflow, sources=sources_of(superworkflow, given), config=options.config,
        assignments=options.set, profile=options.profile, store=options.store, prices=options.prices,
        rehash=options.rehash, registered=known_names, tables_from=tables_from(options), as_of=options.as_of,
    )  # fmt: skip


def applying() -> list[Superworkflow]:
    """Superworkflows that apply models to new data."""
    return [found for name in superworkflow_names() if (found := load_superworkflow(name)).applies]


def _resolved(options: argparse.Namespace) -> tuple[Superworkflow, str, str]:
    """The superworkflow that applies the model, its source that takes the model's dataset, and the dataset's URI.

    Raises:
        UserError: there is no such model, or none of them applies it.
    """
    text, store = options.model, Store(options.store)
    dataset = None if text.startswith(_REGISTERED) else Dataset.find(text)
    for superworkflow in applying():
        for source, makers in superworkflow.applies.items():
            if dataset is not None and dataset.manifest.stage in makers:
                return superworkflow, source, dataset.uri
    if dataset is not None:
        stages = ", ".join(stage for each in applying() for makers in each.applies.values() for stage in makers)
        raise UserError("this dataset is no model that can be applied", where=dataset.uri, value=dataset.manifest.stage,
                        remedy=f"Give a dataset of stage {stages}, or the name of a registered model")  # fmt: skip
    version = _version(options)
    for superworkflow in applying():
        for source, stage in ((name, each) for name, makers in superworkflow.applies.items() for each in makers):
            if (digest := version.datasets.get(stage)) is None:
                continue
            found = store.find(stage, digest)
            if found is None:
                raise UserError(
                    f"the dataset of {stage} of version {version.version} is not in this store", where=version.name,
                    value=digest, remedy="Name the store of its run with --store",
                )  # fmt: skip
            return superworkflow, source, found.uri
    raise UserError(f"version {version.version} of this model cannot be applied to new data", where=version.name,
                    value=", ".join(version.datasets) or "no datasets",
                    remedy="Name a model of a superworkflow that trains a network")  # fmt: skip


def _version(options: argparse.Namespace) -> Version:
    """The version of a registered model that `NAME`, `NAME/VERSION` or `NAME@ALIAS` names.

    A name alone is the version in use; if none is, the challenger or else the newest.

    Raises:
        UserError: there is none.
    """
    text = options.model.removeprefix(_REGISTERED)
    name, slash, number = text.partition("/")
    name, _, alias = name.partition("@")
    registry = registry_of(options)
    if slash:
        if not number.isdecimal():
            raise UserError("no version of a model, nor the URI of a dataset", where="MODEL", value=options.model,
                            remedy="Write NAME/3, NAME@current, or the folder of a dataset")  # fmt: skip
        return registry.version(name, int(number))
    versions = registry.versions(name)
    for wanted in [alias] if alias else [CURRENT, CHALLENGER]:
        for version in versions:
            if wanted in version.aliases:
                return version
    if alias or not versions:
        aliases = sorted({each for version in versions for each in version.aliases})
        raise UserError("no version of the model has this alias", where=name, value=alias,
                        remedy=f"It has: {', '.join(aliases) or 'none'}")  # fmt: skip
    return versions[0]


def _check_out(out: Path | None) -> None:
    """Refuse a file that could not be written, before anything runs."""
    if out is not None and (out.is_dir() or not out.absolute().parent.is_dir()):
        what = "is a folder" if out.is_dir() else "its folder does not exist"
        raise UserError(f"{what}, and the result is a file", where="--out", value=str(out), remedy="Name a file")


def _copy(superworkflow: Superworkflow, record: RunRecord, out: Path) -> None:
    """Copy the first output of a run."""
    made = {stage.name: stage.output for stage in record.stages}
    (node, name), *_ = filter(None, (superworkflow.output(title, made) for title in superworkflow.outputs))
    dataset = Dataset.open(made[node])
    try:
        shutil.copyfile(dataset.local(name), out)
    finally:
        dataset.close()
