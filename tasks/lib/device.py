"""Check of the device of training and inference, made before upstream stages run."""

from __future__ import annotations

from typing import Protocol

from superworkflow.infra.base.errors import UserError


class OnDevice(Protocol):
    """Parameters that name a device."""

    @property
    def device(self) -> str:
        """`cpu` or `cuda`."""


def check_device(params: OnDevice, where: str = "device") -> None:
    """Refuse a device that is not there.

    Raises:
        UserError: no CUDA device is available to this process.
    """
    if params.device == "cpu":
        return
    import torch

    if not torch.cuda.is_available():
        raise UserError(
            "no CUDA device is available to this process", where=where, value=params.device,
            remedy=f"Set {where}=cpu, or run the stage where there is a GPU, with a CUDA build of torch",
        )  # fmt: skip
