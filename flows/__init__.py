"""Superworkflows: one file each, short enough to read as its diagram.

Installed packages add superworkflows by entry points of the group `superworkflow.flows`, and users by files (see
`infra.contract.code_file`).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path

from superworkflow.flows.user_file import check_stages, stages_of_file, superworkflow_in
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.profile_names import ProfileNames, node_names
from superworkflow.infra.contract.code_file import CodeFile, code_of_text, is_code_file, read_code
from superworkflow.infra.contract.registry import Registry
from superworkflow.infra.contract.superworkflow import Superworkflow
from superworkflow.tasks import stage_names

_FLOWS: Registry[Superworkflow] = Registry(
    "superworkflow",
    Superworkflow,
    __name__,
    __path__,
    "SUPERWORKFLOW",
    "superworkflow.flows",
    ("user_file", "vertex_program", "linear_model", "ratings", "node_rescoring"),
)


@dataclass(frozen=True)
class Listed:
    """Entry of the list of superworkflows.

    Args:
        name: of the superworkflow.
        origin: the package that defines it.
        help: one line; the error, if it cannot be used.
    """

    name: str
    origin: str
    help: str


def superworkflow_names() -> list[str]:
    """Names of all installed superworkflows; none is imported."""
    return _FLOWS.names()


def listed_superworkflows() -> list[Listed]:
    """All installed superworkflows, including those that cannot be used."""
    found = []
    for name in superworkflow_names():
        try:
            text = load_superworkflow(name).help
        except UserError as error:
            text = f"cannot be used: {error}"
        found.append(Listed(name, " and ".join(_FLOWS.origins(name)), text))
    return found


def load_superworkflow(name: str) -> Superworkflow:
    """The superworkflow of this name, or the one that a file defines.

    Args:
        name: of an installed one, also with - between its words; the path of a file, or a reference to one
            (`infra.contract.code_file.read_code`).

    Raises:
        UserError: none exists (the message names the nearest one), several packages define it, or its definition is
            wrong.
    """
    if is_code_file(name):
        return _of_file(read_code(name))
    if name not in superworkflow_names() and Path(f"{name}.py").is_file():
        raise UserError("no such superworkflow", where=name, remedy=f"Did you mean {name}.py?")
    name = name.replace("-", "_")
    found = _FLOWS.load(name)
    if name not in _FLOWS.shipped():
        check_stages(found, *_FLOWS.origins(name))
    return found


def superworkflow_of_text(name: str, text: str) -> Superworkflow:
    """The superworkflow that a file of this name and text defines.

    Raises:
        UserError: as `load_superworkflow`.
    """
    return _of_file(code_of_text(name, text))


def known_names() -> ProfileNames:
    """Names that profiles may use: all stages, and the nodes and variants of all superworkflows."""
    entries, variants = set(stage_names()), set[str]()
    for name in superworkflow_names():
        with contextlib.suppress(UserError):  # one that cannot be used does not concern this run
            found = load_superworkflow(name)
            entries |= node_names(found)
            variants |= found.variants.keys()
    return ProfileNames(entries, variants)


def _of_file(code: CodeFile) -> Superworkflow:
    found, own = superworkflow_in(code), stages_of_file(code)
    if found.name in superworkflow_names():
        others = " and by ".join(_FLOWS.origins(found.name))
        raise UserError(f"another superworkflow of this name is defined by {others}", where=code.uri, value=found.name,
                        remedy="Give it another name")  # fmt: skip
    return replace(found, code=code, own=frozenset(own))
