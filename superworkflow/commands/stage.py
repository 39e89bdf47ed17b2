"""`superworkflow stage`: the command of a stage's container. It needs no server and no orchestrator."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from superworkflow.infra.base.errors import SuperworkflowError, UserError
from superworkflow.infra.base.extras import missing_package
from superworkflow.infra.config.config_files import read_yaml
from superworkflow.infra.contract.code_file import CodeFile, read_code
from superworkflow.infra.contract.resources import Resources, parse_bytes
from superworkflow.infra.contract.stage import IN_PROCESS, Input, Progress, Stage
from superworkflow.infra.engines import engine_names
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.process import shutdown
from superworkflow.infra.process.arrow_without_pandas import leave_out_pandas
from superworkflow.infra.process.resource_usage import out_of_memory_kills
from superworkflow.infra.process.threads import available_cpus, numba_threads
from superworkflow.infra.storage import retry
from superworkflow.infra.storage.lease import LeaseClaim
from superworkflow.infra.storage.lock import LeaseLost
from superworkflow.parser import asks_for_help, describe_parameters, describe_rows
from superworkflow.tasks import load_stage, stage_names


def add_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    """Declare the command's arguments."""
    # With --events an unknown name is reported as an event, so it is not checked while parsing.
    code = _code(given)
    kind = str if "--events" in given or code else _checked
    names = None if "--events" in given else f"one of: {', '.join(stage_names())}"  # finding them takes a moment
    parser.add_argument("name", type=kind, help=names)
    parser.add_argument("--code", metavar="FILE", help="file that defines the stage, such as ./mine.py")
    if asks_for_help(given) and (stage := _named(given, code)):
        _describe(parser, stage)
    parser.add_argument("--params", metavar="FILE", help="YAML or JSON file of parameters; others keep their defaults")
    parser.add_argument("--params-json", metavar="JSON", help="parameters as JSON; overrides --params")
    parser.add_argument("--input", metavar="NAME=URI", action="append", default=[], help="an input dataset or file")
    parser.add_argument(
        "--tables-from", metavar="PREFIX", action="append", default=[],
        help="path or URI below which a description of tables may name tables outside its own folder",
    )  # fmt: skip
    parser.add_argument("--output", metavar="URI", required=True, help="folder of the new dataset")
    parser.add_argument("--digest", default="", help="fail unless the parameters and inputs give this digest")
    parser.add_argument("--engine", default=IN_PROCESS, help=f"engine: {_engines()}")
    parser.add_argument("--threads", type=int, help="threads to use; all processors by default")
    parser.add_argument("--memory", help="memory to plan with, such as 4Gi")
    parser.add_argument("--resources-json", metavar="JSON", help="all resources as JSON; used by launchers")
    parser.add_argument("--report", metavar="FILE", help="also write the measurements here, as JSON")
    parser.add_argument("--events", action="store_true", help="print JSON events to standard output")
    parser.add_argument("--holder", metavar="NAME", default="", help="name under which the dataset is locked on S3")
    parser.add_argument(
        "--supersedes",
        metavar="NAME",
        action="append",
        default=[],
        help="dead holder of that lock, which this run supersedes",
    )
    parser.add_argument(
        "--end-with-stdin", action="store_true", help="end when standard input closes; used by launchers"
    )


def _engines() -> str:
    *others, last = [f"{IN_PROCESS} (default)", *(name for name in engine_names() if name != IN_PROCESS)]
    return f"{', '.join(others)} or {last}" if others else last


def _checked(name: str) -> str:
    return load_stage(name).name


def _code(given: Sequence[str]) -> str:
    """File that `--code` names."""
    for place, text in enumerate(given):
        if text == "--code" and place + 1 < len(given):
            return given[place + 1]
        if text.startswith("--code="):
            return text.partition("=")[2]
    return ""


def _named(given: Sequence[str], code: str) -> Stage[Any] | None:
    """The named stage, for its help."""
    if code:
        from superworkflow.flows.user_file import stages_of_file

        stages = stages_of_file(read_code(code))
        return next((stages[text] for text in given if text in stages), None)
    return next((load_stage(text) for text in given if text in stage_names()), None)


def _describe(parser: argparse.ArgumentParser, stage: Stage[Any]) -> None:
    """Add the stage's own help: its inputs, and its parameters with values and defaults."""
    if stage.help:
        parser.description = f"{stage.help[:1].upper()}{stage.help[1:].rstrip('.')}."
    inputs = [
        (f"--input {name}={_form(given)}", [f"{given.help} ({'optional' if given.optional else 'required'})"])
        for name, given in stage.inputs.items()
    ]
    describe_rows(parser, "Inputs", inputs)
    describe_parameters(parser, "Parameters for --params and --params-json", {stage.name: stage.params}, dotted=False)


def _form(given: Input) -> str:
    return (
        "|".join(["FILE"] * (given.file or bool(given.tables)) + ["FOLDER"] * (given.folder or bool(given.inside)))
        or "URI"
    )


def run(options: argparse.Namespace) -> int:
    """Run the stage; the exit status is 0, 1 (it failed) or 2 (bad input)."""
    progress = Progress(options.name, events=options.events, stream=sys.stdout if options.events else sys.stderr)
    if options.end_with_stdin:
        _end_with_parent()

    def lost(error: LeaseLost) -> None:
        progress.emit("error", message=str(error), user=False)
        if not options.events:
            print(f"error: {error}", file=sys.stderr, flush=True)
        shutdown.end_process(error.exit_code)

    log_retries = retry.log_to(progress.log, reached=options.events)
    with shutdown.on_signals(), log_retries, _reported(progress, options.events):
        resources = _resources(options)
        code = read_code(options.code) if options.code else None
        leave_out_pandas()
        stage = _stage(options.name, code)
        params = read_yaml(Path(options.params)) if options.params else {}
        params |= _json(options.params_json, "--params-json") if options.params_json else {}
        with numba_threads(min(resources.threads, available_cpus())):
            executed = execute(
                stage, params, _inputs(options.input), options.output, resources, progress, options.engine,
                options.digest, lost, LeaseClaim(options.holder, options.supersedes), code,
                options.tables_from,
            )  # fmt: skip
        measured = executed.manifest.measured.model_dump(exclude_none=True)
        progress.emit("done", measured=measured, reused=executed.reused, output=executed.dataset.uri)
        if options.report:
            Path(options.report).write_text(json.dumps(measured))
        if not options.events:
            print(json.dumps({"output": executed.dataset.uri, "reused": executed.reused, **measured}))
    return 0


def _stage(name: str, code: CodeFile | None) -> Stage[Any]:
    if code is None:
        return load_stage(name)
    from superworkflow.flows.user_file import stage_of_file

    return stage_of_file(name, code)


@contextlib.contextmanager
def _reported(progress: Progress, events: bool) -> Iterator[None]:
    """Report an error as an event too, for launchers."""
    try:
        yield
    except BaseException as raised:
        error = missing_package(raised) or raised
        user = isinstance(error, UserError)
        expected = isinstance(error, SuperworkflowError)
        message = str(error) if expected else _words(error)
        if not expected and not isinstance(error, KeyboardInterrupt):
            traceback.print_exc(file=progress.stream)
        if isinstance(error, MemoryError):
            message = "out of memory; `superworkflow plan` shows what the stage needs"
        kills = out_of_memory_kills() if os.environ.get("SUPERWORKFLOW_IN_CONTAINER") else 0
        progress.emit("error", message=message, user=user, **({"out_of_memory_kills": kills} if kills else {}))
        if events or not expected:
            raise SystemExit(2 if user else 1) from None
        raise error from None


def _words(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # an engine may fetch the text from its own process, which may be gone
        return type(error).__name__


def _end_with_parent() -> None:
    """End this process when its standard input closes: a launcher that was killed can no longer end it."""

    def watch() -> None:
        with contextlib.suppress(OSError, ValueError):
            while os.read(0, 4096):
                pass
        shutdown.save_and_end(shutdown.TERMINATED)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def _inputs(texts: Sequence[str]) -> dict[str, str]:
    inputs: dict[str, str] = {}
    for text in texts:
        name, equals, uri = text.partition("=")
        if not (name and equals and uri):
            raise UserError("not of the form NAME=URI", where="--input", value=text, remedy="Write --input graph=URI")
        inputs[name] = uri
    return inputs


def _resources(options: argparse.Namespace) -> Resources:
    values = _json(options.resources_json, "--resources-json") if options.resources_json else {}
    if options.threads is not None:
        if options.threads < 1:
            raise UserError("must be 1 or more", where="--threads", value=options.threads)
        values["cpu"] = options.threads
    if options.memory is not None:
        try:
            values["memory"] = parse_bytes(options.memory)
        except ValueError as error:
            raise UserError(str(error), where="--memory", value=options.memory) from None
    try:
        return Resources.model_validate({"cpu": available_cpus(), **values})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        dotted = ".".join(str(part) for part in first["loc"])
        raise UserError(first["msg"], where=f"--resources-json {dotted}", value=first.get("input")) from None


def _json(text: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"not JSON: {error}", where=where, value=text[:100], remedy="Correct the text") from None
    if not isinstance(value, dict):
        raise UserError("must be a JSON object", where=where, value=text[:100], remedy='Write {"p": 0.5}')
    return value
