"""Superworkflows defined in a notebook's cell: `%load_ext superworkflow`, then `%%superworkflow` above the definition.

The cell is a file (`docs/your-own.md`): its text is in the digests of its stages, and processes and pods of these run a
copy of it. So all that its stages use is in the cell, or in installed packages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from superworkflow.flows import superworkflow_of_text
from superworkflow.infra.contract.stage import Input, Output, Stage, StageRun
from superworkflow.infra.contract.superworkflow import Superworkflow


def stage(
    *, inputs: Mapping[str, Input], name: str = "", **definition: Any
) -> Callable[[Callable[[StageRun[Any]], Output]], Stage[Any]]:
    """Decorator that makes a stage of the function that does its work.

    Args:
        inputs: input datasets and files by name.
        name: of the stage; the function's by default.
        definition: further arguments of `Stage`, such as `params`, `metrics`, `version`.

    The first line of the function's docstring is the stage's help.

    >>> @sw.stage(inputs={"table": sw.Input("a table")}, metrics=("rows",))
    ... def count(job):
    ...     "Number of rows."
    ...     rows = job.inputs["table"].parquet("rows.parquet").metadata.num_rows
    ...     return sw.Output(rows=rows, metrics={"rows": float(rows)})
    >>> count.name, count.help
    ('count', 'Number of rows')
    """

    def made(function: Callable[[StageRun[Any]], Output]) -> Stage[Any]:
        title = (function.__doc__ or "").strip().partition("\n")[0].rstrip(".")
        return Stage(
            **{"name": name or function.__name__, "run": function, "inputs": inputs, "help": title, **definition}
        )

    return made


def define(text: str, name: str = "cell") -> Superworkflow:
    """The superworkflow that a text defines, as a file of this text would.

    Args:
        text: Python, with a `SUPERWORKFLOW` or a `PROGRAM`.
        name: of the file, for messages and tracebacks.

    Raises:
        UserError: it fails, or defines none; with its line.

    >>> sw.define("SUPERWORKFLOW = 3")
    Traceback (most recent call last):
    superworkflow.infra.base.errors.UserError: ...
    """
    return superworkflow_of_text(f"{re.sub(r'[^A-Za-z0-9_]', '_', name)}.py", text)


def load_magic(shell: Any) -> None:
    """Register the cell magic `%%superworkflow [VARIABLE]` with IPython.

    Args:
        shell: the running shell; it gets a variable of the superworkflow's name, or the one that is given.
    """

    def superworkflow(line: str, cell: str) -> Superworkflow:
        found = define(cell, line.strip() or "cell")
        shell.user_ns[line.strip() or found.name] = found
        return found

    shell.register_magic_function(superworkflow, "cell")
