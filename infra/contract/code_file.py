"""Files of users that define a superworkflow: `superworkflow run ./mine.py`.

Such a file is a source. Its SHA-256 is the input `code` of every stage that it defines, so that another text is another
dataset. It is read once in each process and run from the bytes that were summed, as a module whose name holds the sum:
two files of one name never meet, and `run=f"{__name__}:work"` means the same everywhere.

Processes and pods of stages, and deployed flows, take it from a copy in the store. What a store holds is not trusted:
the copy is run only if it has the SHA-256 that the process was started with, in its arguments or environment.
"""

from __future__ import annotations

import ast
import atexit
import functools
import hashlib
import importlib.metadata
import importlib.util
import linecache
import re
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.scratch import Scratch

if TYPE_CHECKING:
    from superworkflow.infra.storage.store import Store

INPUT = "code"
"""Name of the file among the inputs of the stages that it defines."""
VARIABLE = "SUPERWORKFLOW_CODE"
"""Environment variable that names a deployed flow's file: a reference, see `read_code`."""
MOST_BYTES = 1 << 20
_REFERENCE = re.compile(r"([0-9a-f]{64})@(.+)", re.DOTALL)


@dataclass(frozen=True)
class CodeFile:
    """The text of a file, as it was read.

    Args:
        uri: where it was read, for people.
        text: its content.
        path: of the same content on this machine, for debuggers and compilers that look at it.
    """

    uri: str
    text: bytes
    path: Path

    @functools.cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.text).hexdigest()

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def module(self) -> str:
        """Name of the module that it is run as."""
        return f"superworkflow_file_{re.sub(r'[^A-Za-z0-9]', '_', self.path.stem)}_{self.sha256[:16]}"

    def keep(self, store: Store) -> str:
        """Copy it into the store; returns the reference by which processes read it."""
        with _keeping:
            return f"{self.sha256}@{store.keep_text(self.text.decode(), self.name)}"


_keeping = threading.Lock()
_read: dict[str, CodeFile] = {}
"""Files by reference or URI: each is read once per process, even if it changes on disk."""
_run: dict[str, CodeFile] = {}
"""Files that were run, by the file name in their tracebacks."""


def is_code_file(name: str) -> bool:
    """True if this is the path of a file rather than the name of what is installed."""
    return name.endswith(".py")


def read_code(name: str) -> CodeFile:
    """Read a file.

    Args:
        name: the path of a file of this machine, or a reference, `<SHA-256>@<URI>`.

    Raises:
        UserError: it cannot be read, is too large or no text, or has another SHA-256 than the reference says.
    """
    match = _REFERENCE.fullmatch(name)
    location = Location.of(match[2] if match else name)
    key = name if match else location.uri
    if key not in _read:
        _read[key] = _verified(location, match[1]) if match else local_code(location)
    return _read[key]


def local_code(location: Location) -> CodeFile:
    """Read a file of this machine, as it is now.

    Raises:
        UserError: it is on another machine, or as in `read_code`.
    """
    if location.local_path is None:
        raise UserError("a file that is run must be on this machine", where=location.uri,
                        remedy="Copy it here, and look at what it does")  # fmt: skip
    code = CodeFile(location.uri, _content(location), location.local_path)
    _check_imports(code)
    return code


def _verified(location: Location, sha256: str) -> CodeFile:
    """The copy that a reference names, in a folder of this process alone."""
    content = _content(location)
    if (found := hashlib.sha256(content).hexdigest()) != sha256:
        raise UserError(f"this copy of the code has been changed: its SHA-256 should be {sha256}; it was not run",
                        where=location.uri, value=found, remedy="Find out who wrote it, and run again")  # fmt: skip
    return _in_scratch(location.uri, location.name, content)


@functools.cache
def code_of_text(name: str, text: str) -> CodeFile:
    """The file that has this name and text, in a folder of this process alone."""
    return _in_scratch(name, name, text.encode())


def _in_scratch(uri: str, name: str, content: bytes) -> CodeFile:
    folder = Scratch("code")
    atexit.register(folder.remove)
    path = folder.path / name
    path.write_bytes(content)
    return CodeFile(uri, content, path)


def _content(location: Location) -> bytes:
    remedy = "Give the path of a Python file"
    try:
        with location.open() as stream:
            content = stream.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise UserError("no such file", where=location.uri, remedy=remedy) from None
    except Exception as error:  # any error of a file system's client
        raise UserError(f"cannot be read: {type(error).__name__}: {error}", where=location.uri, remedy=remedy) from None
    if len(content) > MOST_BYTES:
        raise UserError(f"a file with code has at most {MOST_BYTES} bytes", where=location.uri, remedy=remedy)
    try:
        content.decode()
    except UnicodeDecodeError:
        raise UserError("not a text in UTF-8", where=location.uri, remedy=remedy) from None
    return content


def run_code(code: CodeFile) -> ModuleType:
    """The module of a file, which is run once.

    Raises:
        UserError: it is not valid Python, or fails; with its line.
    """
    if (loaded := sys.modules.get(code.module)) is not None:
        return loaded
    filename = str(code.path)
    try:
        compiled = compile(code.text, filename, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise _not_python(code, error) from None
    spec = importlib.util.spec_from_loader(code.module, loader=None, origin=filename)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = filename
    sys.modules[code.module] = module
    _run[filename] = code
    # What tracebacks show is what runs, also when the file has been edited since.
    linecache.cache[filename] = (len(code.text), None, code.text.decode().splitlines(keepends=True), filename)
    try:
        exec(compiled, module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[code.module]
        if (fault := fault_of(error)) is not None:
            raise fault from error
        raise
    return module


def fault_of(error: BaseException) -> UserError | None:
    """Error for people that was raised in, or below, a file of theirs; None for any other."""
    found = [(code, line) for name, line in _frames(error) if (code := _run.get(name)) is not None]
    if not found:
        return None
    code, line = found[-1]
    what = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    remedy = "Correct the file"
    if isinstance(error, ModuleNotFoundError):
        remedy = "Install it; images of stages need it as well"
    return UserError(what.rstrip("."), where=f"{code.uri}:{line}", remedy=remedy)


def _frames(error: BaseException) -> Iterator[tuple[str, int]]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next


def _not_python(code: CodeFile, error: SyntaxError) -> UserError:
    return UserError(
        f"not valid Python: {error.msg}", where=f"{code.uri}:{error.lineno or 1}", remedy="Correct the file"
    )


def imported_names(code: CodeFile) -> set[str]:
    """Names at the top of a file that are another module's."""
    top = ast.parse(code.text).body
    return {
        alias.asname or alias.name
        for each in top
        if isinstance(each, ast.ImportFrom | ast.Import)
        for alias in each.names
    }


def _check_imports(code: CodeFile) -> None:
    """Refuse modules in the file's own folder, which would be in no digest and in no pod."""
    try:
        tree = ast.parse(code.text)
    except SyntaxError as error:
        raise _not_python(code, error) from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""] if not node.level else ["."]
        else:
            continue
        for name in names:
            if name == "." or _is_neighbour(name.partition(".")[0], code.path.parent):
                raise UserError(
                    "imports a module from its own folder: no digest would cover that, and no pod would have it",
                    where=f"{code.uri}:{node.lineno}", value=name,
                    remedy="Put its text into this file, or make an installed package with entry points of both",
                )  # fmt: skip


def _is_neighbour(name: str, folder: Path) -> bool:
    if name in (*sys.stdlib_module_names, __name__.partition(".")[0]):
        return False
    if not ((folder / f"{name}.py").is_file() or (folder / name).is_dir()):
        return False
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    places = [] if spec is None else [*filter(None, [spec.origin]), *(spec.submodule_search_locations or ())]
    elsewhere = places and not any(folder.resolve() in Path(place).resolve().parents for place in places)
    # An installed package may lie there too, where its owner works on it.
    return not elsewhere and name not in importlib.metadata.packages_distributions()
