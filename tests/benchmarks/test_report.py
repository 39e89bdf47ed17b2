"""The report's arithmetic and forms."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.benchmarks.report import Report, Row, figure, rounded, times

RATE = Row("walks", "slow", "steps/s", 40, 80e6, 1e6, cpu=(1e-8, 5e-7))
COST = Row("index", "lean", "s", 1 / 3, 6.0, 1.5)
NONE = Row("walks", "absent", "steps/s", 2, note="does not install")
JUDGED = Row(
    "training", "even", "CPU s", 10, 2.0, 30.0,
    quality_ours={"micro_f1": 0.3811, "macro_f1": 0.2256}, quality_peer={"micro_f1": 0.3795, "macro_f1": 0.2226},
)  # fmt: skip


def test_ratio_of_rates_and_of_costs() -> None:
    """More steps a second and fewer seconds are both better."""
    assert (RATE.ratio, RATE.met) == (80, True)
    assert (COST.ratio, COST.met) == (0.25, False)
    assert RATE.ratio_cpu == pytest.approx(50)
    assert (JUDGED.ratio, JUDGED.met) == (15, True)


def test_missing_peer_has_no_ratio_and_misses() -> None:
    assert (NONE.ratio, NONE.ratio_cpu, NONE.met) == (None, None, False)
    assert NONE.document()["ratio"] is None
    assert NONE.document()["failed"] is True
    assert NONE.document()["note"] == "does not install"
    assert RATE.document()["failed"] is False


def test_without_a_target_nothing_is_met_or_missed() -> None:
    row = replace(RATE, target=None)
    assert (row.ratio, row.met, row.failed) == (80, None, False)
    assert "| 80× | 50× | – |" in Report("bench", [row]).table()


def test_document_has_the_promised_fields() -> None:
    report = Report("bench", [RATE, COST, NONE, JUDGED])
    document = json.loads(json.dumps(report.document(), allow_nan=False))
    promised = {"name", "ours", "peer", "unit", "ratio", "target", "quality_ours", "quality_peer"}
    assert all(promised <= set(row) for row in document["rows"])
    assert document["rows"][0]["name"] == "walks / slow"
    assert document["rows"][3]["quality_peer"] == {"micro_f1": 0.3795, "macro_f1": 0.2226}
    assert {"date", "machine", "versions", "command"} <= set(document)


def test_table_marks_misses_and_tells_notes() -> None:
    lines = Report("bench", [RATE, COST, NONE, JUDGED]).table().splitlines()
    assert "| 80M steps/s | 1M steps/s | 80× | 50× | 40× |" in lines[2]
    assert "0.25× ✗" in lines[3]
    assert "✗" not in lines[2] + lines[5]
    assert "| – | – | failed | – | 2× |" in lines[4]
    assert "0.381 / 0.226 vs 0.380 / 0.223" in lines[5]
    assert lines[-1] == "- walks / absent: does not install"
    assert {line.count("|") for line in lines[:6]} == {9}


def test_picture_is_drawn(tmp_path: Path) -> None:
    Report("bench", [RATE, COST, NONE, replace(RATE, target=None)]).picture(tmp_path / "bars.png")
    assert (tmp_path / "bars.png").read_bytes().startswith(b"\x89PNG")


def test_figures_for_people() -> None:
    assert [times(ratio) for ratio in (None, 0.25, 3.14159, 41.7)] == ["–", "0.25×", "3.1×", "42×"]
    assert [figure(value, "s") for value in (None, 0.5, 1234.0)] == ["–", "0.5 s", "1.23k s"]
    assert [rounded(value) for value in (None, 3.14159, float("inf"))] == [None, 3.142, None]
