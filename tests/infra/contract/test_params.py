"""Stage parameters and the errors that bad ones give."""

from __future__ import annotations

import pytest
from pydantic import Field, ValidationError, model_validator

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.suggest import nearest
from superworkflow.infra.contract.params import StageParams, parse_params


class WalkLike(StageParams):
    """Parameters such as stages have."""

    p: float = Field(default=1.0, gt=0, description="Return parameter, greater than 0.")
    walk_length: int = Field(default=80, ge=1, description="Vertices of a walk, 1 or more.")
    ratios: tuple[float, ...] = Field(default=(0.5,), description="Train ratios.")
    colour: str = Field(default="red", description="Colour.", json_schema_extra={"affects_result": False})

    @model_validator(mode="after")
    def _short_when_even(self) -> WalkLike:
        if self.walk_length > 1000 and self.p == 7:
            raise ValueError("walk_length above 1000 does not go with p = 7")
        return self


def test_identity_leaves_out_what_does_not_affect_the_result() -> None:
    assert WalkLike(colour="blue", p=2).identity() == {"p": 2.0, "walk_length": 80, "ratios": [0.5]}
    assert WalkLike(colour="blue").identity() == WalkLike().identity()


def test_a_retired_parameter_stays_in_the_digest_and_nowhere_else() -> None:
    class Shorter(WalkLike):
        retired = {"alias": True}  # noqa: RUF012  (a ClassVar of the base)

    assert Shorter().identity() == WalkLike().identity() | {"alias": True}
    assert "alias" not in Shorter().model_dump()
    with pytest.raises(UserError, match=r"walk\.alias: unknown parameter"):
        parse_params(Shorter, {"alias": True}, "walk")
    with pytest.raises(TypeError, match="Both: p cannot be both"):
        type("Both", (WalkLike,), {"retired": {"p": 1.0}, "__module__": __name__})


def test_integer_and_float_are_the_same_value() -> None:
    assert WalkLike(p=2).identity() == WalkLike(p=2.0).identity()
    assert type(WalkLike(p=2).identity()["p"]) is float


def test_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        WalkLike().p = 2.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"p": 0}, "walk.p: input should be greater than 0 (got 0). Return parameter, greater than 0."),
        ({"p": "x"}, "walk.p: input should be a valid number, unable to parse string as a number (got 'x')."),
        ({"p": float("inf")}, "walk.p: input should be a finite number (got inf)."),
        ({"p": float("nan")}, "walk.p: input should be"),
        ({"p": None}, "walk.p: input should be a valid number (got None)."),
        ({"walk_length": 1.5}, "walk.walk_length: input should be a valid integer"),
        ({"ratios": [0.5, "x"]}, "walk.ratios.1: input should be a valid number"),
        ({"walk_lenght": 40}, "walk.walk_lenght: unknown parameter. Did you mean walk.walk_length?"),
        ({"zzz": 40}, "walk.zzz: unknown parameter. Valid: walk.colour, walk.p, walk.ratios, walk.walk_length"),
        ({"p": 7, "walk_length": 2000}, "walk: walk_length above 1000 does not go with p = 7"),
        ({1: 2}, "walk.1: keys should be strings"),
    ],
)  # fmt: skip
def test_error_names_path_value_and_remedy(values: dict[str, object], message: str) -> None:
    with pytest.raises(UserError) as raised:
        parse_params(WalkLike, values, "walk")
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)
    assert not str(raised.value).endswith("?.")


def test_defaults_fill_the_rest() -> None:
    assert parse_params(WalkLike, {"p": "0.5"}, "walk") == WalkLike(p=0.5)


def test_nearest() -> None:
    assert nearest("wlak", ["walk", "index"]) == "Did you mean walk?"
    assert nearest("xyz", ["walk", "index"]) == "Valid: index, walk"


def test_user_error_reads_as_sentences() -> None:
    error = UserError("the weight is no positive number", where="edges.csv:17", value="-1", remedy="Correct the row")
    assert str(error) == "edges.csv:17: the weight is no positive number (got '-1'). Correct the row."
    assert str(UserError("is missing.")) == "is missing."
    assert str(UserError("is empty", value=None)) == "is empty (got None)."
    assert error.exit_code == 2
