"""Files with modules of one's own: `train.model=./mine.py:MyNet`.

The text of the file is the parameter `code`: it is in the digest, and goes wherever the parameters go.
"""

from __future__ import annotations

import ast
from typing import Any

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.suggest import nearest
from superworkflow.infra.contract.code_file import is_code_file, local_code
from superworkflow.infra.storage.location import Location
from superworkflow.tasks.lib.gnn.model.config import MODELS

MOST_CODE = 1 << 17
"""Most characters of a file."""
WHERE = "train.model"


def with_code(given: dict[str, Any]) -> dict[str, Any]:
    """Parameters with the text of the file that `model` names, and the name of the file without its folder.

    Text that is there already is kept, as the file may be on another machine.

    Raises:
        UserError: there is no such model, file or class, or the file cannot be read.
        ValueError: there is no such model.
    """
    model = given.get("model", "sage")
    file, _, name = model.rpartition(":") if isinstance(model, str) else ("", "", "")
    if not is_code_file(file):
        if isinstance(model, str) and model not in MODELS:
            raise UserError("no such model", where=WHERE, value=model,
                            remedy=f"Give {', '.join(MODELS)}, or FILE.py:CLASS")  # fmt: skip
        return {**given, "code": ""} if "code" in given else given
    if given.get("code") and "/" not in file:
        return given
    code = local_code(Location.of(file))
    text = code.text.decode()
    if len(text) > MOST_CODE:
        raise UserError(f"a file with a module has at most {MOST_CODE} characters", where=code.uri, value=len(text),
                        remedy="Move what is not the module's to an installed package")  # fmt: skip
    _check_class(text, code.uri, name)
    return {**given, "model": f"{code.name}:{name}", "code": text}


def _check_class(text: str, uri: str, name: str) -> None:
    """Refuse a file that defines no class of this name, without running it."""
    try:
        body = ast.parse(text).body
    except SyntaxError as error:
        raise UserError(f"not valid Python: {error.msg}", where=f"{uri}:{error.lineno or 1}",
                        remedy="Correct the file") from None  # fmt: skip
    classes = [each.name for each in body if isinstance(each, ast.ClassDef)]
    if name not in classes:
        raise UserError("the file defines no such class", where=f"{WHERE}: {uri}", value=name,
                        remedy=nearest(name, classes))  # fmt: skip
