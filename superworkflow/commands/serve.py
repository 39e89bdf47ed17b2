"""`superworkflow serve`: server from which a launcher forks its stages (`infra.launch.local.fork_server`)."""

from __future__ import annotations

import argparse
import importlib
import socket
import sys
from collections.abc import Iterator, Sequence

import threadpoolctl  # type: ignore[import-untyped]  # noqa: F401  # children need it

import superworkflow.commands.stage  # noqa: F401
from superworkflow.__main__ import main
from superworkflow.infra.launch.local.fork_server import serve
from superworkflow.infra.launch.run_stage import software_versions
from superworkflow.infra.process.arrow_without_pandas import leave_out_pandas
from superworkflow.infra.storage.location import import_client
from superworkflow.tasks import load_stage, stage_names


def add_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--control", type=int, required=True, help="descriptor of the socket to the launcher")
    parser.add_argument("--stages", default="", help="names of stages, comma-separated, in the order of their imports")
    parser.add_argument("--remote", default="", help="protocol of a remote store, whose client is imported")
    parser.add_argument("room", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Serve until the launcher closes its end."""
    control = socket.socket(fileno=options.control)
    return serve(control, preload([name for name in options.stages.split(",") if name], options.remote), main)


def preload(stages: Sequence[str], remote: str) -> Iterator[None]:
    """Import what the stages will: first all that is sure to be needed, then what some parameters need."""
    if remote:
        import_client(remote)
        yield
    leave_out_pandas()
    loaded = [load_stage(name) for name in dict.fromkeys(stages)]
    compiled = False
    for stage in loaded:
        importlib.import_module(stage.run_path.partition(":")[0])
        if "numba" in sys.modules and not compiled:
            compiled = True
            _warm_numba()
        yield
    for stage in loaded:
        for module in stage.late:
            importlib.import_module(module)
            yield
    importlib.import_module("superworkflow.flows.user_file")
    stage_names()
    software_versions()
    yield


def _warm_numba() -> None:
    from superworkflow.tasks.lib.kernels.numba_cache import prepare

    prepare()
