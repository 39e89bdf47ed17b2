"""The command line. A command's module is imported only when it runs: a stage image contains no orchestrator."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from superworkflow.infra.base.errors import SuperworkflowError, UserError, unwritable
from superworkflow.infra.base.masking import mask_tracebacks
from superworkflow.infra.process.gc_pause import not_collecting
from superworkflow.infra.process.kernel_cache import bring_kernels
from superworkflow.infra.process.threads import sleep_soon
from superworkflow.parser import Parser
from superworkflow.version import __version__

COMMANDS = {
    "run": "run a superworkflow",
    "plan": "show what would run, what is cached, and what it would take",
    "predict": "apply a registered model to new data",
    "explain": "show for each stage whether it is cached, or why not",
    "sweep": "search parameters in parallel, without repeating work",
    "deploy": "register a superworkflow with a Prefect server, optionally on a schedule",
    "stage": "run a single stage",
    "check": "check that a cluster can run what a profile asks for",
    "jobs": "list or remove the Jobs of stages",
    "generate": "write a random graph of any size",
    "schema": "describe tables of nodes and edges, for superworkflows that read typed graphs",
    "runs": "list recorded runs",
    "note": "write a note and tags of a recorded run",
    "compare": "compare two runs side by side",
    "export": "write a table of a recorded run to a database or a file",
    "dashboard": "show runs, deployments and sweeps in a browser",
    "models": "list registered models: which version is in use, and why",
    "prune": "remove datasets, checkpoints and records that nothing kept refers to",
    "promote": "put a version of a model into use",
    "rollback": "return to an earlier version of a model, and keep it until the next `promote`",
}
INTERNAL = {
    "serve": "fork server of a launcher: a process that has already imported the libraries of the stages",
    "probe": "run by `check` in a pod: writes to the store from there",
}
"""Commands that the platform itself starts; `--help` does not list them."""
WITHOUT_SERVERS = ("stage", "generate", "schema")
"""Commands that use no server."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status: 0 success, 1 a stage failed, 2 bad input, 130 interrupted."""
    mask_tracebacks()
    status = _run(list(sys.argv[1:] if arguments is None else arguments))
    if status > 128:
        from superworkflow.infra.process.interrupt import ignore_signals

        ignore_signals()
    return status


def _run(given: list[str]) -> int:
    try:
        bring_kernels()
        sleep_soon()
        with not_collecting(given[:1] == ["stage"]):
            named = _take_servers(given)
            options = build_parser(given).parse_args(given)
            if getattr(options, "servers", None) != named:
                raise UserError("write this option in full", where="--servers", value=options.servers)
            return int(_module(options.command).run(options))
    except SuperworkflowError as error:
        return _report(error)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0
    except Exception as error:
        from superworkflow.infra.base.extras import missing_package
        from superworkflow.infra.contract.code_file import fault_of

        if (reason := missing_package(error) or fault_of(error) or unwritable(error)) is None:
            raise
        return _report(reason)


def build_parser(given: Sequence[str]) -> argparse.ArgumentParser:
    """The parser for these arguments; only the command that they name declares its options.

    Raises:
        UserError: no such command, or an error in the command's own arguments.
    """
    members: dict[str, str] = {}
    if given and not given[0].startswith("-") and given[0] not in {**COMMANDS, **INTERNAL}:
        from superworkflow.infra.engines import member_commands

        members = dict.fromkeys(member_commands(), "run by members of an engine")
        if given[0] not in members:
            from superworkflow.infra.base.suggest import nearest

            raise UserError("no such command", where=given[0], remedy=nearest(given[0], list(COMMANDS)))
    parser = Parser(
        prog="superworkflow",
        description="Graph-learning pipelines in which every stage chooses its own engine and resources.",
        epilog="`superworkflow COMMAND --help` shows the options of a command.",
    )
    parser.given = given[:1]
    parser.add_argument("--version", action="version", version=f"superworkflow {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in {**COMMANDS, **INTERNAL, **members}.items():
        sub = commands.add_parser(name, help=text) if name in COMMANDS else commands.add_parser(name)
        sub.description = text[0].upper() + text[1:] + "."
        if given and given[0] == name:
            sub.given = given[1:]
            parser.chosen = sub
            _module(name).add_arguments(sub, given[1:])
            if name in COMMANDS and name not in WITHOUT_SERVERS:
                sub.add_argument(
                    "--servers", metavar="compose|FILE",
                    help="servers of a team: a file of environment variables; `compose` is the .env next to the "
                    "nearest docker-compose.yml",
                )  # fmt: skip
    return parser


def _take_servers(given: Sequence[str]) -> str | None:
    """Set the variables of `--servers` for this process and its children; returns the option's value.

    This comes before parsing, because defaults and libraries read the variables.
    """
    words = list(given[: given.index("--")] if "--" in given else given)
    for place, text in enumerate(words):
        option, equals, value = text.partition("=")
        if option == "--servers" and (equals or place + 1 < len(words)):
            from superworkflow.infra.base.dotenv import read_environment, servers_file

            name = value if equals else words[place + 1]
            os.environ.update(read_environment(servers_file(name)))
            return name
    return None


def _report(error: SuperworkflowError) -> int:
    print(f"error: {error}", file=sys.stderr)
    return error.exit_code


def _module(command: str) -> ModuleType:
    found = command if command in {**COMMANDS, **INTERNAL} else "member"
    return importlib.import_module(f"superworkflow.commands.{found}")


if __name__ == "__main__":
    sys.exit(main())
