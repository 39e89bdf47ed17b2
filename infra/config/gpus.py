"""Count of the GPUs that processes on this machine may use, found without opening one."""

from __future__ import annotations

import contextlib
import ctypes
import os

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.profile import Placement
from superworkflow.infra.engines import engine

_LIBRARY = "libnvidia-ml.so.1"
"""NVIDIA's management library, which comes with the driver. It can be queried before a fork."""
_VISIBLE = "CUDA_VISIBLE_DEVICES"


def check_gpus(placement: Placement, where: str) -> None:
    """Refuse a placement on this machine that requests more GPUs than it has.

    Workers are counted together; they and the stage's own process may share.

    Args:
        placement: of a stage.
        where: dotted path of its entry, for the error.

    Raises:
        UserError: there are too few.
    """
    resources = placement.resources
    groups = engine(placement.engine).groups(resources)
    requested = {f"{where}.resources.gpu.count": resources.gpu.count}
    of_groups = sum(group.each.gpu.count * group.count for group in groups.values())
    roles = [role for role, group in groups.items() if group.each.gpu.count]
    requested |= {f"{where}.resources.{resources.path(roles[0])}.gpu.count": of_groups} if roles else {}
    path, most = max(requested.items(), key=lambda each: each[1])
    if not most:
        return
    there = available_gpus()
    if there < most:
        raise UserError(
            f"this machine has {f'only {there} of the GPUs' if there else 'no GPU'} that the stage is to get",
            where=path, value=most, remedy="Leave `gpu` out to run it on processors, or run where there are as many",
        )  # fmt: skip


def available_gpus() -> int:
    """NVIDIA GPUs that the environment does not hide; 0 where there is no driver."""
    return visible(_installed(), os.environ.get(_VISIBLE))


def visible(count: int, listed: str | None) -> int:
    """Number of `count` GPUs that `CUDA_VISIBLE_DEVICES` leaves: those listed before the first invalid one."""
    if listed is None:
        return count
    found: set[str] = set()
    for name in (each.strip() for each in listed.split(",")):
        there = int(name) < count if name.isdigit() else name.startswith(("GPU-", "MIG-"))
        if not there or name in found:
            break
        found.add(name)
    return min(count, len(found))


def _installed() -> int:
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(_LIBRARY)
        if library.nvmlInit_v2() == 0:
            count = ctypes.c_uint(0)
            status = library.nvmlDeviceGetCount_v2(ctypes.byref(count))
            library.nvmlShutdown()
            return count.value if status == 0 else 0
    return 0
