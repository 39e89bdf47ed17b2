"""Base of all stage parameters, and the errors that bad ones give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.suggest import nearest


class StageParams(BaseModel):
    """Frozen parameters of one stage; every field has a description with its unit and range, and a default.

    A field that cannot change the result (a display setting, say) is marked
    `json_schema_extra={"affects_result": False}` and stays out of the digest. A field that is worth tuning
    declares its search range: `json_schema_extra={"search": {"type": "float", "low": ..., "high": ...}}`;
    `sweeps.space` lists the keys.

    A parameter that was removed can stay in the digest with the default that it had, `retired = {"name": default}`:
    the datasets made with that default keep their names, and those made with another value keep theirs to themselves.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    retired: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        if again := cls.retired.keys() & cls.model_fields.keys():
            raise TypeError(f"{cls.__name__}: {', '.join(sorted(again))} cannot be both a parameter and a retired one")

    def identity(self) -> dict[str, Any]:
        """The parameters that affect the result, as JSON values, and the defaults of retired ones."""
        values = {**self.retired, **self.model_dump(mode="json")}
        for name, field in type(self).model_fields.items():
            extra = field.json_schema_extra
            if isinstance(extra, dict) and extra.get("affects_result") is False:
                del values[name]
        return values


P = TypeVar("P", bound=StageParams)
M = TypeVar("M", bound=BaseModel)


def parse_params(model: type[M], values: Mapping[str, Any], where: str) -> M:
    """Validate values that a user gave.

    Args:
        model: their model, such as a stage's parameters.
        values: by name.
        where: dotted prefix that errors name, such as the stage's name.

    Raises:
        UserError: names the dotted path, the value, and the valid range or the nearest valid name.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join([where, *(str(part) for part in first["loc"])])
        if first["type"] == "extra_forbidden":
            # Without the prefix, which would make all names similar.
            remedy = nearest(str(first["loc"][-1]), list(model.model_fields), f"{where}.")
            raise UserError("unknown parameter", where=path, remedy=remedy) from None
        field = model.model_fields.get(str(first["loc"][0])) if first["loc"] else None
        message = first["msg"].removeprefix("Value error, ")
        raise UserError(
            message[:1].lower() + message[1:],
            where=path,
            value=first.get("input"),
            remedy=field.description if field and field.description else None,
        ) from None
