"""The engine's functions, compiled for one program and kept between runs."""

from __future__ import annotations

import dis
import hashlib
import inspect
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, get_args

import numpy as np

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.checksum_cache import cache_folder
from superworkflow.infra.storage.location import Location
from superworkflow.tasks.lib.kernels import atomic, random
from superworkflow.tasks.lib.vertex.helpers import files_of, generator_of
from superworkflow.tasks.lib.vertex.program import FieldKind, ProgramParams, VertexProgram, length_of
from superworkflow.tasks.lib.vertex.scope import INIT, Schema

_OF_SCOPES = "vertex, degree, neighbour(i), weight(i), signal(neighbour, priority), random(k), step"
_CALLS = "neighbour|in_neighbour|weight|in_weight|signal|random|edge|in_edge"
_FOLDER = Path(__file__).parent
_KINDS = "biuf"
_REASON = r"Untyped|Invalid use|Unknown|No implementation|[Uu]nsupported|not supported|Cannot unify|[Nn]o conversion"


def schema_of(
    program: VertexProgram, params: ProgramParams, directed: bool, weighted: bool, sizes: Mapping[str, int]
) -> Schema:
    """Names and types of a program's scopes.

    Args:
        program: declares them.
        params: have the lengths that are named after a parameter.
        directed: edges have a direction.
        weighted: edges have weights.
        sizes: the lengths that the graph has.

    Raises:
        UserError: a field's type is none of NumPy's numbers, its length is nowhere, or its name is another's; or there
            is no such scheduler or execution.
    """
    for name in ("scheduler", "execution"):  # a program that declares them anew may let them be any text
        own, choices = (get_args(each.model_fields[name].annotation) for each in (program.params, ProgramParams))
        if (value := getattr(params, name)) not in (own or choices):
            raise UserError(f"no such {name}", where=f"{program.name}.{name}", value=value,
                            remedy=f"Set it to one of: {', '.join(choices)}")  # fmt: skip
    lengths = {**sizes, **params.model_dump()}
    given = {**program.graph_rows, **program.arc_fields}
    fields, edges, messages, rows = (
        tuple(_field(program, name, kind, lengths) for name, kind in group.items())
        for group in (program.fields, program.edge_fields, program.messages, given)
    )
    names = [name for name, _, _ in (*fields, *edges, *messages, *rows)]
    if taken := next((name for name in names if names.count(name) > 1), None):
        raise UserError("two fields have one name", where=f"program {program.name}", value=taken,
                        remedy="Give each a name of its own")  # fmt: skip
    lengths_of = tuple(sync.sizes_of(lengths)[1] for sync in program.syncs.values())
    checked = params.execution if params.verify else ""
    return Schema(
        fields,
        tuple(program.syncs),
        program.consistency,
        directed,
        weighted,
        edges,
        messages,
        rows,
        lengths_of,
        checked,
        (*program.given, *program.graph_fields),
    )


def _field(program: VertexProgram, name: str, kind: FieldKind, sizes: Mapping[str, Any]) -> tuple[str, str, int]:
    """Name, NumPy type and length of a field."""
    dtype, length = kind if isinstance(kind, tuple) else (kind, 0)
    where = f"program {program.name}: field {name}"
    if isinstance(length, str):
        if not (found := length_of(length, sizes)):
            raise UserError("its length is neither a parameter nor a fact of the graph", where=where, value=length,
                            remedy="Name an integer parameter from 1 on, or give a graph that has it")  # fmt: skip
        length = found
    try:
        made = np.dtype(dtype)
    except TypeError:
        made = np.dtype(object)
    vector = isinstance(kind, tuple)
    if made.kind not in _KINDS or not isinstance(length, int | np.integer) or (vector and length < 1):
        raise UserError("no type of a field", where=where, value=kind,
                        remedy="Give a NumPy type such as float32, or a pair of type and length > 0")  # fmt: skip
    return name, made.name, int(length)


class Functions(NamedTuple):
    """Compiled functions of a program.

    Args:
        steps: module of `tasks.lib.vertex.steps`.
        folds: modules of `tasks.lib.vertex.folds`, one for each sync.
        settings: the numeric parameters, and the nodes that others name, as programs read them: `params.damping`.
    """

    steps: ModuleType
    folds: tuple[ModuleType, ...]
    settings: Any


def functions_of(
    program: VertexProgram, schema: Schema, params: ProgramParams, nodes: Mapping[str, int],
    lengths: Sequence[int] = (),
) -> Functions:  # fmt: skip
    """The functions of a program, which are compiled when they are first called.

    Numba keeps compiled functions next to a file. Here it is one in the user's cache, named by the texts of the
    program's file and of the engine, so that another text never meets what was compiled for this one.

    Raises:
        UserError: residuals are to end the run, and updates return none; a part returns no number; or a function draws
            random numbers that are others in each run.
    """
    if params.tolerance > 0 and _returns_nothing(program.apply or program.update):
        raise UserError("updates return no residual, whose sum would end the run", where=f"program {program.name}",
                        value=f"tolerance {params.tolerance:g}",
                        remedy="Return how much the vertex has changed, or set tolerance to 0")  # fmt: skip
    for part in ("gather", "scatter"):
        if (function := getattr(program, part)) and _returns_nothing(function):
            raise UserError(f"{part} returns no number", where=f"program {program.name}",
                            remedy="End it with return and the number, such as a priority of 0 for none")  # fmt: skip
    folds = [sync.fold for sync in program.syncs.values()]
    for function in (program.update, program.init, program.gather, program.apply, program.scatter, *folds):
        if drawn := generator_of(function):
            raise UserError("random numbers of its own are others in each run and thread",
                            where=f"program {program.name}", value=drawn,
                            remedy="Draw by scope.random(k), which depends on seed, step, vertex and k")  # fmt: skip
    texts = [Path(file).read_bytes() for file in (atomic.__file__, random.__file__)]
    texts += [path.read_bytes() for path in sorted(_FOLDER.glob("*.py"))]
    texts += [Path(file).read_bytes() for file in files_of(program.update) or [__file__]]
    numbers = {each: value for each, value in params.model_dump().items() if isinstance(value, bool | int | float)}
    numbers |= nodes
    lengths = lengths or [0] * len(program.syncs)
    texts += [repr((schema, program.name, program.update.__qualname__, list(numbers), list(lengths))).encode()]
    digest = hashlib.sha256(b"\0".join(texts)).hexdigest()[:24]
    name = f"superworkflow_program_{re.sub('[^a-z0-9]', '_', program.name)}_{digest}"
    steps = _module(name, "steps.py", PROGRAM=program, SCHEMA=schema, SETTINGS=tuple(numbers))
    sums = [
        _module(f"{name}_{number}", "folds.py", FOLD=sync.fold, LENGTH=lengths[number], SCHEMA=schema,
                LARGEST=sync.merge == "max" and not lengths[number])
        for number, sync in enumerate(program.syncs.values())
    ]  # fmt: skip
    return Functions(steps, tuple(sums), steps.Settings(**numbers))


def _returns_nothing(function: Callable[..., Any]) -> bool:
    """True if no `return` of a function has a value."""
    steps = list(dis.get_instructions(function))
    returned = [step for step, after in pairwise(steps) if after.opname == "RETURN_VALUE"]
    returned += [step for step in steps if step.opname == "RETURN_CONST"]
    return all(step.opname in ("LOAD_CONST", "RETURN_CONST") and step.argval is None for step in returned)


def _module(name: str, text: str, **names: Any) -> ModuleType:
    """A module of one of the engine's texts, with names that are set before it runs."""
    if name in sys.modules:
        return sys.modules[name]
    content = (_FOLDER / text).read_text(encoding="utf-8")
    path = (cache_folder() or Path(tempfile.mkdtemp())) / "programs" / f"{name}.py"
    if not path.is_file() or path.read_text(encoding="utf-8") != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        Location.of(path).write_atomic(content)
    module = ModuleType(name)
    module.__dict__.update(__file__=str(path), **names)
    exec(compile(content, str(path), "exec"), module.__dict__)
    sys.modules[name] = module
    return module


def explained(error: Exception, program: VertexProgram) -> UserError:
    """Error for people of a program that Numba cannot compile, in one sentence with the program's own line."""
    words = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    written = program.apply or program.update
    file = inspect.getsourcefile(written) or program.name
    name = re.escape(Path(file).name)
    lines = re.findall(rf'File "[^"]*{name}", line (\d+)|{name} \((\d+)\)', words)
    where = f"{Path(file).name}:{lines[-1][0] or lines[-1][1]}" if lines else Path(file).name
    where = f"program {program.name}, {where}"
    if field := re.search(r"the (\w+) (\w+) would lose the fraction", words):
        return UserError(f"{field[2]} is {field[1]}, and what is written may have a fraction", where=where,
                         remedy=f"Declare {field[2]} as float64, or write int(…), which cuts it off")  # fmt: skip
    if field := re.search(r"this (scope|edge) may not write (\w+)", words):
        what = "vertex" if field[1] == "scope" else "edge"
        return _forbidden(f"{field[2]} of this {what}", program, where, what)
    if re.search(r"Cannot modify readonly array", words):
        return _forbidden("this vector", program, where, "vertex" if program.consistency == "edge" else "edge")
    if lacking := re.search(r"Unknown attribute '(\w+)' of type (scope|neighbour|edge)", words):
        own = lacking[2] != "neighbour"
        at_first = not own and f"consistency={INIT!r}" in words
        hint = "" if own or program.consistency != "vertex" else "; under vertex consistency neighbours cannot be read"
        if at_first:
            hint = "; init reads of neighbours what is given. Read the rest in update, if scope.step == 1"
        article = "an" if lacking[2] == "edge" else "a"
        has = {"scope": f"{_OF_SCOPES}, or a sync", "neighbour": "vertex, out_degree, in_degree", "edge": "edge fields"}
        return UserError(f"{article} {lacking[2]} has no attribute of this name{hint}", where=where, value=lacking[1],
                         remedy=f"Name a field ({', '.join(program.fields)}), or {has[lacking[2]]}")  # fmt: skip
    if lacking := re.search(r"Cannot resolve setattr: \(scope.*\)\.(\w+) = ", words):
        return UserError("a scope has no field of this name", where=where, value=lacking[1],
                         remedy=f"Write one of the program's fields: {', '.join(program.fields)}")  # fmt: skip
    if lacking := re.search(r"Unknown attribute '(\w+)' of type Settings", words):
        return UserError("params has no number of this name, and updates read no others", where=where, value=lacking[1],
                         remedy="Name a parameter of the program that is a number or a truth value")  # fmt: skip
    if re.search(r">>> _note\(.*OptionalType", words):
        return UserError("the update returns a residual on one way and nothing on another", where=where,
                         remedy="Return a number on every way, 0.0 for no change")  # fmt: skip
    if returned := re.search(r">>> _note\(array.*?, int64, (.*)\)", words):
        return UserError("the update returns something else than one number, its residual", where=where,
                         value=returned[1], remedy="Return how much the vertex has changed, or nothing")  # fmt: skip
    if call := re.search(rf"<function _({_CALLS}) at|Function\(.*ScopeType'>, '({_CALLS})'\)", words):
        return UserError("a function of a scope is called with other arguments, or not called", where=where,
                         value=call[1] or call[2], remedy=f"Write {_OF_SCOPES}")  # fmt: skip
    words = re.sub(r"\(Schema\(.*?given=\(.*?\)\)\)", "", words)
    said = [line for each in words.splitlines() if (line := each.strip()) and not line.startswith("Failed in nopython")]
    first = next((line for line in said if re.search(_REASON, line)), said[0] if said else "")
    if first.endswith("signature:"):
        first += next((line.removeprefix(">>>") for line in said if line.startswith(">>>")), "")
    return UserError(f"the program cannot be compiled: {first[:300]}", where=where,
                     remedy="Use Python that Numba compiles: https://numba.readthedocs.io")  # fmt: skip


def _forbidden(what: str, program: VertexProgram, where: str, written: str) -> UserError:
    """Error for a write that the program's consistency forbids, to a field of a vertex or an edge."""
    remedy = "Write fields of the vertex itself, or declare consistency='full'"
    if written == "edge":
        remedy = "Messages to a vertex are written by its neighbours; fields of edges under edge or full consistency"
    return UserError(f"{what} cannot be written under {program.consistency} consistency", where=where, remedy=remedy)
