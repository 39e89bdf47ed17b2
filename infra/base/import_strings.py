"""Import strings `module:function`: definitions name functions by them, so that only a caller imports them."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
from pathlib import Path
from typing import Any

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.suggest import nearest


def imported(text: str) -> Any:
    """Import the object that `module:name` names."""
    module, _, name = text.partition(":")
    return getattr(importlib.import_module(module), name)


def module_file(module: str) -> Path | None:
    """File of a module, which is not imported (its packages are); None when there is none."""
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    return Path(found.origin) if found is not None and found.origin and Path(found.origin).is_file() else None


def check_import(text: str, where: str) -> None:
    """Refuse an import string that names nothing, without importing what it names.

    Args:
        text: `module:name`, or `module`.
        where: who names it, for the error.

    Raises:
        UserError: there is no such module, it is not valid Python, or there is no such name in it.
    """
    module, _, name = text.partition(":")
    path = module_file(module)
    if path is None:
        raise UserError("no such module", where=where, value=module, remedy="Check the import string")
    names = _defined(path)
    if name and names and name not in names:
        raise UserError(f"module {module} does not define this", where=where, value=name,
                        remedy=nearest(name, list(names)))  # fmt: skip


@functools.cache
def _defined(path: Path) -> tuple[str, ...]:
    """Names at the top of a Python file; empty where only an import can find them."""
    if path.suffix != ".py":
        return ()
    try:
        top = ast.parse(path.read_bytes()).body
    except SyntaxError as error:
        raise UserError(f"not valid Python: {error.msg}", where=f"{path}:{error.lineno}") from None
    names: list[str] = []
    for each in top:
        match each:
            case ast.FunctionDef() | ast.ClassDef():
                names.append(each.name)
            case ast.ImportFrom() | ast.Import():
                names += [alias.asname or alias.name for alias in each.names]
            case ast.Assign():
                names += [target.id for target in each.targets if isinstance(target, ast.Name)]
            case ast.If() | ast.Try():
                return ()
    return () if "*" in names else tuple(names)
