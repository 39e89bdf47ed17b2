"""Machine code of compiled kernels for 64-bit Arm, from the instructions that LLVM optimized for this processor."""

import gc
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import llvmlite.binding as llvm
from numba.core.dispatcher import Dispatcher

TRIPLE = "aarch64-unknown-linux-gnu"
_ELF_MACHINE, _AARCH64 = slice(18, 20), b"\xb7\x00"


@cache
def _target() -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(TRIPLE).create_target_machine(cpu="neoverse-n1", opt=0)


def dispatchers() -> list[Any]:
    """Those of all kernels of the project that this process has imported."""
    gc.unfreeze()  # frozen objects, as before a fork, are not listed
    found = [each for each in gc.get_objects() if isinstance(each, Dispatcher)]
    return [each for each in found if each.py_func.__module__.startswith("superworkflow.")]


def compiled_kernels() -> Iterator[tuple[str, Any]]:
    """Name and library of every kernel of the project that this process has compiled or loaded."""
    for dispatcher in dispatchers():
        for result in dispatcher.overloads.values():
            yield f"{dispatcher.py_func.__module__}.{dispatcher.py_func.__qualname__}", result.library


_COUNTED_DOWN = """
define private i8 @"counted_down"(i32 %condition, ptr %place, i64 %count) {
  %before = atomicrmw sub ptr %place, i64 %count monotonic
  %done = icmp eq i64 %before, %count
  %flag = zext i1 %done to i8
  ret i8 %flag
}
"""
"""What LLVM has made of Numba's reference counts for x86: a subtraction, and whether 0 is left."""
_DECLARATION, _CALLED = (
    re.compile(r"^declare .*@llvm\.x86\.atomic\.sub\.cc\.i64\(.*$", re.MULTILINE),
    "@llvm.x86.atomic.sub.cc.i64(",
)


def _instructions(library: Any) -> str:
    text = str(library._get_module_for_linking())
    if _CALLED in text:
        text = _DECLARATION.sub(_COUNTED_DOWN, text).replace(_CALLED, '@"counted_down"(')
    return text


def of_another_processor(library: Any) -> list[str]:
    """Instructions of x86 that a kernel asks for by name; on Arm another one stands in for it."""
    return sorted(set(re.findall(r"@(llvm\.x86\.[\w.]+)", _instructions(library))))


def arm_code(library: Any) -> bytes:
    """The object file of a kernel for Arm."""
    text = re.sub(r"^target (triple|datalayout) = .*$", "", _instructions(library), flags=re.MULTILINE)
    module = llvm.parse_assembly(f'target datalayout = "{_target().target_data}"\ntarget triple = "{TRIPLE}"\n{text}')
    code: bytes = _target().emit_object(module)
    assert code[_ELF_MACHINE] == _AARCH64
    return code
