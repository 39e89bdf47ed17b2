"""Digest of the code and parameters that made a cached graph; the name of its folder ends in it.

Otherwise a graph that older code made could hide that the current code makes another one, or fails.
"""

import ast
import hashlib
import importlib.metadata
import importlib.util
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from superworkflow.tasks import load_stage
from tests.benchmarks.measure import ROOT

_LIBRARIES = ("numpy", "numba", "pyarrow", "duckdb", "scipy")
_KEY_LENGTH = 12


def key(modules: tuple[str, ...], **parameters: Any) -> str:
    """Names what these modules, and all of this project that they import, make from these parameters.

    Args:
        modules: dotted names.
        parameters: JSON values.
    """
    digest = hashlib.sha256(json.dumps([_versions(), parameters], sort_keys=True).encode())
    for name, path in sorted(sources(modules).items()):
        digest.update(f"\n{name}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:_KEY_LENGTH]


def stage_module(name: str) -> str:
    """The module that does a stage's work in process."""
    return load_stage(name).run.partition(":")[0]


def kept_folder(parent: Path, name: str, key: str) -> Path:
    """`<parent>/<name>-<key>`; folders of the same name with another key, or none, are stale and removed."""
    stale = re.compile(rf"{re.escape(name)}(-[0-9a-f]{{{_KEY_LENGTH}}})?")
    for path in parent.iterdir() if parent.is_dir() else ():
        if stale.fullmatch(path.name) and path.name != f"{name}-{key}":
            shutil.rmtree(path)
    return parent / f"{name}-{key}"


def sources(modules: tuple[str, ...]) -> dict[str, Path]:
    """Files of these modules and of all of this project that they import, at the top or inside functions, by name."""
    found: dict[str, Path] = {}
    wanted = list(modules)
    while wanted:
        name = wanted.pop()
        path = _source(name)
        if path is None or name in found:
            continue
        found[name] = path
        wanted += _imported(path, name if path.name == "__init__.py" else name.rpartition(".")[0])
        wanted.append(name.rpartition(".")[0])  # its package is imported before it
    return found


@cache
def _source(name: str) -> Path | None:
    """The file of a module of this project; None for what is none, or of a library."""
    path = ROOT.joinpath(*name.split("."))
    if not name:
        return None
    return next((each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()), None)


def _imported(path: Path, package: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            name = "." * node.level + (node.module or "")
            name = importlib.util.resolve_name(name, package) if node.level else name
            yield name
            yield from (f"{name}.{alias.name}" for alias in node.names)  # one of them may be a module


def _versions() -> Mapping[str, str]:
    return {name: importlib.metadata.version(name) for name in _LIBRARIES}
