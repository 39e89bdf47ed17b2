"""A pass of Numba's compiler over a program's functions: no float is written to a field of whole numbers.

Numba would cut the fraction off without a word, such as that of a distance declared as int32.
"""

# mypy: ignore-errors, since Numba's compiler API has no types.

from __future__ import annotations

from typing import Any

from numba.core import ir, types
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import AnalysisPass, register_pass
from numba.core.errors import TypingError
from numba.core.typed_passes import NopythonTypeInference


@register_pass(mutates_CFG=False, analysis_only=True)
class _FieldWrites(AnalysisPass):
    _name = "field_writes"

    def __init__(self) -> None:
        AnalysisPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        for block in state.func_ir.blocks.values():
            for write in block.find_insts(ir.SetAttr):
                field, value = state.calltypes[write].args[1], state.typemap[write.value.name]
                if isinstance(field, types.Integer) and isinstance(value, types.Float):
                    raise TypingError(f"the {field} {write.attr} would lose the fraction", loc=write.loc)
        return False


class FieldCompiler(CompilerBase):
    """Numba's compiler with this pass, after that of types."""

    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_FieldWrites, NopythonTypeInference)
        passes.finalize()
        return [passes]
