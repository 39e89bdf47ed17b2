"""Superworkflows of users: definitions in their files, and checks that their stages can be found by name."""

from __future__ import annotations

from typing import Any

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.import_strings import check_import
from superworkflow.infra.base.suggest import nearest
from superworkflow.infra.contract.code_file import INPUT, CodeFile, imported_names, run_code
from superworkflow.infra.contract.params import StageParams, parse_params
from superworkflow.infra.contract.stage import Stage
from superworkflow.infra.contract.superworkflow import Superworkflow
from superworkflow.infra.storage.safe_names import is_word
from superworkflow.tasks import load_stage, stage_names, stage_origins


def check_stages(superworkflow: Superworkflow, origin: str) -> None:
    """Refuse a superworkflow with a stage that other processes could not find by name.

    Args:
        superworkflow: of an installed package.
        origin: the package, for the error.

    Raises:
        UserError: names the stage, and the other package that defines one of that name.
    """
    for stage in _stages_of(superworkflow):
        where = f"stage {stage.name} of {origin}"
        if stage.name not in stage_names():
            raise UserError(
                "has no entry point, so its own process would not find it", where=where,
                remedy=f"Add the entry point `{stage.name} = MODULE` to the group superworkflow.stages of that package",
            )  # fmt: skip
        if load_stage(stage.name) is not stage:
            raise _taken(stage, where)


def stages_of_file(code: CodeFile) -> dict[str, Stage[Any]]:
    """The stages that a user's file defines, by name.

    Raises:
        UserError: the file fails, defines no superworkflow or several, or defines an invalid stage.
    """
    own = {stage.name: stage for stage in _stages_of(superworkflow_in(code)) if not _is_installed(stage, code.uri)}
    for stage in own.values():
        _check_params(stage, f"{code.uri}: stage {stage.name}")
        # A vertex program is the same object on all engines, and its workers get the file's text.
        if any(run != stage.run_path for run in stage.engines.values()):
            raise UserError("a stage in a file runs in process: other engines would not find its functions",
                            where=f"{code.uri}: stage {stage.name}", value=", ".join(stage.engines),
                            remedy="Leave engines out, or make an installed package")  # fmt: skip
        for text in filter(None, [stage.run_path, stage.check]):
            check_import(text, f"{code.uri}: stage {stage.name}")
    return own


def stage_of_file(name: str, code: CodeFile) -> Stage[Any]:
    """A stage that a user's file defines.

    Raises:
        UserError: as in `stages_of_file`, or no stage has this name.
    """
    stages = stages_of_file(code)
    if name not in stages:
        raise UserError("defines no such stage", where=code.uri, value=name, remedy=nearest(name, list(stages)))
    return stages[name]


def superworkflow_in(code: CodeFile) -> Superworkflow:
    """Load the `SUPERWORKFLOW` of a file.

    Raises:
        UserError: the file fails, or defines none or several.
    """
    names = vars(run_code(code))
    own = names.keys() - imported_names(code)
    found = {id(names[name]): name for name in sorted(own) if isinstance(names[name], Superworkflow)}
    if len(found) > 1:
        raise UserError(f"defines several superworkflows: {', '.join(sorted(found.values()))}", where=code.uri,
                        remedy="Give each a file of its own")  # fmt: skip
    superworkflow = names.get("SUPERWORKFLOW")
    if superworkflow is None and "PROGRAM" in own:
        superworkflow = _of_program(names["PROGRAM"], code)
    if not isinstance(superworkflow, Superworkflow):
        raise UserError("defines no superworkflow", where=code.uri,
                        remedy="Write SUPERWORKFLOW = Superworkflow(…), docs/your-own.md has an example; or PROGRAM = "
                        "VertexProgram(…), as docs/vertex-programs.md says")  # fmt: skip
    if not is_word(superworkflow.name):
        raise _not_a_name(f"{code.uri}: superworkflow", superworkflow.name)
    if INPUT in superworkflow.sources:
        raise UserError(f"a source of a superworkflow in a file cannot be called {INPUT}, as the file is",
                        where=code.uri, remedy="Give it another name")  # fmt: skip
    for model in superworkflow.registered:
        if model.code.partition(":")[0] == code.module:
            raise UserError(
                "the code that serves a model is kept with the model and runs without this project, so it cannot be the"
                " file that defines the superworkflow", where=f"{code.uri}: {model.title}",
                remedy="Name a module of an installed package",
            )  # fmt: skip
    return superworkflow


_made: dict[str, Superworkflow] = {}
"""Superworkflows of vertex programs by the module of their file: the same object whenever it is asked for."""


def _of_program(program: object, code: CodeFile) -> Superworkflow | None:
    """The superworkflow of a file's vertex program; None for any other object."""
    # Files of other superworkflows, and those of this project, do without these modules.
    from superworkflow.flows.vertex_program import vertex_superworkflow
    from superworkflow.tasks.lib.vertex.program import VertexProgram
    from superworkflow.tasks.lib.vertex.stage import program_stage

    if not isinstance(program, VertexProgram):
        return None
    if code.module not in _made:
        _made[code.module] = vertex_superworkflow(program, program_stage(program, f"{code.module}:PROGRAM"))
    return _made[code.module]


def _stages_of(superworkflow: Superworkflow) -> list[Stage[Any]]:
    return [*superworkflow.stages, *superworkflow.prefixes.values()]


def _is_installed(stage: Stage[Any], where: str) -> bool:
    """True if a stage that a file uses is installed, False if the file defines it.

    Raises:
        UserError: another stage of its name is installed, or the name is invalid.
    """
    if stage.name in stage_names():
        if load_stage(stage.name) is not stage:
            raise _taken(stage, f"stage {stage.name} of {where}")
        return True
    if not is_word(stage.name):
        raise _not_a_name(f"{where}: stage", stage.name)
    if INPUT in stage.inputs:
        raise UserError(f"no input of a stage in a file can be called {INPUT}, as the file itself is",
                        where=f"{where}: stage {stage.name}", remedy="Give it another name")  # fmt: skip
    return False


def _check_params(stage: Stage[Any], where: str) -> None:
    """Refuse parameters that are no model, or whose defaults their own fields would refuse."""
    if not (isinstance(stage.params, type) and issubclass(stage.params, StageParams)):
        raise UserError("the parameters are no StageParams", where=where, value=stage.params,
                        remedy="Write class Params(StageParams), and give params=Params")  # fmt: skip
    fields = stage.params.model_fields
    if not any(each.is_required() for each in fields.values()):
        defaults = {name: each.get_default(call_default_factory=True) for name, each in fields.items()}
        parse_params(stage.params, defaults, f"{where}, defaults: {stage.name}")


def _taken(stage: Stage[Any], where: str) -> UserError:
    others = " and by ".join(stage_origins(stage.name))
    return UserError(f"another stage of this name is defined by {others}", where=where, remedy="Give it another name")


def _not_a_name(where: str, name: str) -> UserError:
    return UserError("not a name", where=where, value=name, remedy="Give a word of small letters, digits and _")
