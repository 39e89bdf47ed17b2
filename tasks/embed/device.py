"""Check of the device and precision of training, made before upstream stages run."""

from __future__ import annotations

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.embed import EmbedParams
from superworkflow.tasks.lib import device


def check_device(params: EmbedParams) -> None:
    """Refuse a device, or a precision, that cannot be used.

    Raises:
        UserError: the kernel cannot use it, or this machine does not have it.
    """
    if params.engine == "numba" and params.products != "bfloat16":
        raise UserError(
            "the numba kernel multiplies in bfloat16", where="embed.products", value=params.products,
            remedy="Leave it at bfloat16, or set embed.kernel=torch",
        )  # fmt: skip
    if params.device == "cpu":
        return
    if params.kernel == "numba":
        raise UserError(
            "this kernel trains on the cpu only", where="embed.kernel", value="numba",
            remedy="Set embed.kernel=torch, or embed.device=cpu",
        )  # fmt: skip
    device.check_device(params, where="embed.device")
