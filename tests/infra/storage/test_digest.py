"""Digests: the same name for the same dataset for ever, another name for any other."""

import io
import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superworkflow.infra.storage.digest import (
    DIGEST_LENGTH,
    SummedStream,
    canonical_json,
    dataset_digest,
    file_sha256,
    file_sum,
    new_hash,
    open_stream,
    stream_sha256,
    stream_sum,
)
from superworkflow.infra.storage.direct_io import PIECE
from superworkflow.infra.storage.location import Location

PARAMS = {"p": 0.5, "seed": 42, "start": None, "text": "ü"}
INPUTS = {"graph": "abc"}
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def test_pinned() -> None:
    """`sha256sum` of the canonical text; a change of this value orphans every store there is."""
    assert dataset_digest("walk", "1", PARAMS, INPUTS) == "00d7e54b612115bbbc86cad9daf6d555"


def test_fits_a_kubernetes_label() -> None:
    assert len(dataset_digest("walk", "1", {}, {})) == DIGEST_LENGTH <= 63


@pytest.mark.parametrize(
    ("stage", "version", "params", "inputs"),
    [
        ("walks", "1", PARAMS, INPUTS),
        ("walk", "2", PARAMS, INPUTS),
        ("walk", "1", PARAMS | {"p": 0.25}, INPUTS),
        ("walk", "1", PARAMS | {"p": "0.5"}, INPUTS),
        ("walk", "1", PARAMS | {"start": False}, INPUTS),
        ("walk", "1", PARAMS | {"extra": None}, INPUTS),
        ("walk", "1", PARAMS, {"graph": "abd"}),
        ("walk", "1", PARAMS, {"graphs": "abc"}),
        ("walk", "1", PARAMS, {}),
    ],
)
def test_sensitive_to_everything_that_it_names(
    stage: str, version: str, params: dict[str, object], inputs: dict[str, str]
) -> None:
    assert dataset_digest(stage, version, params, inputs) != dataset_digest("walk", "1", PARAMS, INPUTS)


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=5))
def test_order_does_not_matter(params: dict[str, object]) -> None:
    backwards = dict(reversed(list(params.items())))
    assert dataset_digest("walk", "1", params, {}) == dataset_digest("walk", "1", backwards, {})


@given(VALUES)
def test_canonical_text_is_json_of_the_value(value: object) -> None:
    text = canonical_json(value)
    assert json.loads(text) == value
    assert canonical_json(json.loads(text)) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_no_nan(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(value)


def test_sum_of_a_file_larger_than_a_block(tmp_path: Path) -> None:
    (tmp_path / "zeros").write_bytes(bytes(5_000_000))
    expected = "b39781589c4403fb82174c9647a010464cff38bad976547d339899b00053a545"
    assert file_sha256(tmp_path / "zeros") == expected
    assert stream_sha256(io.BytesIO(bytes(5_000_000))) == expected


@pytest.mark.parametrize("kept", [True, False])
def test_stream_that_knows_its_sum(tmp_path: Path, kept: bool) -> None:
    """By what was written, and by what was put into the memory that it lends."""
    rng, path, memory = random.Random(1), tmp_path / "file", io.BytesIO()
    pieces = [rng.randbytes(size) for size in (1, 4096, PIECE + 1, 3, 5 * PIECE // 2, 700)]
    with open_stream(Location.of(path), kept) as there:
        for stream in (there, here := SummedStream(memory, "sha256" if kept else "blake3")):
            for number, piece in enumerate(pieces):
                if number % 2:
                    stream.write(piece)
                else:
                    stream.room(len(piece))[:] = piece
                    stream.filled()
            assert stream.tell() == sum(map(len, pieces))
    assert path.read_bytes() == memory.getvalue() == b"".join(pieces)
    algorithm, made = there.sum
    assert here.sum == there.sum == ("sha256" if kept else "blake3", file_sum(path, algorithm))
    assert made == stream_sum(io.BytesIO(memory.getvalue()), algorithm)


def test_sums_are_those_of_the_standards() -> None:
    """FIPS 180-4 and the BLAKE3 paper, of no bytes."""
    assert new_hash("sha256").hexdigest().startswith("e3b0c44298fc1c149afbf4c8996fb924")
    assert new_hash("blake3").hexdigest().startswith("af1349b9f5f9a1a6a0404dea36dcc949")
