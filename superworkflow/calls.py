"""Sweeps, deployments and predictions as functions: the commands of these names, with the same options.

Options of a command are keywords with `_` for `-`: `parallel=4` is `--parallel 4`, `when_changed=True` is
`--when-changed`, a list is an option that is given several times.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.extras import require_extra
from superworkflow.infra.contract.superworkflow import Superworkflow
from superworkflow.interface import Params, chosen_superworkflow, given_sources, open_store
from superworkflow.parser import Parser
from superworkflow.results import Run, Study

if TYPE_CHECKING:
    from superworkflow.infra.orchestration.deployment import Registered


def sweep(
    superworkflow: str | Superworkflow, *, trials: int | None = None, objective: str | None = None,
    params: Params | None = None, store: str | None = None, **sources_and_options: Any,
) -> Study:  # fmt: skip
    """Run a study of a superworkflow as `superworkflow sweep` does, or resume the one that the same call began.

    Args:
        superworkflow: name of one, path of a file that defines one, or the object.
        trials: in total; 20 by default.
        objective: `quality` (the default), `cost`, `seconds` or `NODE.METRIC`.
        params: values that all trials share.
        store: folder or URI of the store.
        sources_and_options: sources as `superworkflow.run` takes them; options of the command, such as `parallel`,
            `space`, `sampler`, `seed`, `budget_usd`.

    Raises:
        UserError: bad input.
        KeyboardInterrupt: interrupted; finished trials are kept.

    >>> study = sw.sweep(pipeline, **data, trials=40)  # doctest: +SKIP
    >>> run = sw.run(pipeline, **data, params=study.best)  # doctest: +SKIP
    """
    from superworkflow.commands import sweep as command

    require_extra("sweep")
    chosen = chosen_superworkflow(superworkflow)
    given = {"trials": trials, "objective": objective, **sources_and_options}
    options = _options(command, [_name(chosen)], chosen, params, store, given)
    last_words = "Finished trials are kept: the same call resumes from there."
    return Study(command.carry_out(options, *command.new_study(options), last_words))


def deploy(
    superworkflow: str | Superworkflow, name: str, *, params: Params | None = None, store: str | None = None,
    **sources_and_options: Any,
) -> Registered:  # fmt: skip
    """Register a deployment with Prefect as `superworkflow deploy` does.

    Args:
        superworkflow: name of one, path of a file that defines one, or the object.
        name: of the deployment.
        params: values by `stage.parameter`, or by stage and parameter.
        store: folder or URI of the store.
        sources_and_options: sources; values in memory are written to the store now. Options of the command, such as
            `cron`, `when_changed`, `profile`, `pool`.

    Returns:
        The deployment as the server has it: `id`, `url`.

    Raises:
        UserError: bad input, or what the server refuses.

    >>> sw.deploy(pipeline, "example", **data, cron="0 2 * * *", type="process", pause=True).created
    True
    """
    from superworkflow.commands import deploy as command

    require_extra("flow")
    chosen = chosen_superworkflow(superworkflow)
    given = {"name": name, **sources_and_options}
    return command.register_deployment(chosen, _options(command, [_name(chosen)], chosen, params, store, given))[1]


def predict(
    model: str, *, params: Params | None = None, store: str | None = None, name: str | None = None,
    tracking: bool = True, **sources_and_options: Any,
) -> Run:  # fmt: skip
    """Apply a registered model to new data as `superworkflow predict` does; `run["predictions"]` has the result.

    Args:
        model: `NAME` (the version in use), `NAME/VERSION`, `NAME@ALIAS`, or the URI of the dataset that a run trained.
        params: values by `stage.parameter`, or by stage and parameter.
        store: folder or URI of the store.
        name: of the run.
        tracking: record the run in MLflow.
        sources_and_options: sources as `superworkflow.run` takes them; options of the command, such as `profile`.

    Raises:
        UserError: there is no such model, or bad input.
        StageFailed: a stage failed; the stages before it are kept.

    >>> sw.predict("teams", **data)["predictions"].to_pandas()  # doctest: +SKIP
    """
    from functools import partial

    from superworkflow.commands import predict as command
    from superworkflow.execution import Execution
    from superworkflow.handle import RunHandle

    require_extra("flow")
    (chosen, *_) = command.applying()
    request = command.request_of(_options(command, [model], chosen, params, store, sources_and_options))
    return RunHandle(request, partial(Execution, request, name, (), tracking)).here()


def _name(superworkflow: Superworkflow) -> str:
    """By which the command loads it."""
    return str(superworkflow.code.path) if superworkflow.code is not None else superworkflow.name


def _options(
    command: ModuleType, words: list[str], superworkflow: Superworkflow, params: Params | None, store: str | None,
    given: Mapping[str, Any],
) -> argparse.Namespace:  # fmt: skip
    """Options of a command, as they are parsed from its words.

    Raises:
        UserError: a word that it does not take.
    """
    where = open_store(store)
    sources = {name: value for name, value in given.items() if name in superworkflow.sources and value is not None}
    uris, values = given_sources(superworkflow, sources, params, where)
    words = [*words, "--store", where.uri]
    for name, uri in uris.items():
        words += [f"--{name}", uri]
    for prefix, entries in values.items():
        for name, value in entries.items():
            words += ["--set", f"{prefix}.{name}={json.dumps(value)}"]
    for name, value in given.items():
        if name not in superworkflow.sources:
            words += _words(name, value)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parser = Parser(prog=command.__name__.rpartition(".")[2])
            parser.given = words
            command.add_arguments(parser, words)
            options: argparse.Namespace = parser.parse_args(words)
            return options
    except SystemExit:  # how the command line refuses a word
        raise UserError(said.getvalue().rpartition("error: ")[2].strip().rstrip(".")) from None


def _words(name: str, value: Any) -> Iterator[str]:
    option = f"--{name.replace('_', '-')}"
    if value is None or value is False:
        return
    if isinstance(value, Mapping):
        raise UserError("is no value of an option", where=option, value=value, remedy="Give a text, number or list")
    for each in value if isinstance(value, list | tuple) else [value]:
        yield option
        if each is not True:
            yield str(each)
