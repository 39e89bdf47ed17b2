"""Times of an edge list: rows between two times, on every engine; see also `test_heterograph_times`."""

import random
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.index import STAGE, IndexParams
from tests.tasks.index_helpers import read, run_stage

FIRST, LAST = 1_082_000_000, 1_098_000_000
FORMS = {
    "seconds": str,
    "milliseconds": lambda time: f"{time}000",
    "fractions": lambda time: f"{time}.75",
    "dates": lambda time: datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    "zones": lambda time: datetime.fromtimestamp(time + 7200, UTC).strftime("%Y-%m-%d %H:%M:%S.5+02:00"),
    "local": lambda time: datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S"),
}
CUT = (1_085_000_000, 1_095_000_000)
BOUNDS = {"numbers": tuple(map(str, CUT)), "instants": ("2004-05-19T20:53:20Z", "2004-09-12T16:40+02:00")}


def rows_of(count: int = 400) -> list[tuple[str, str, int, int]]:
    """Rows of source, target, weight and time, of which some have exactly the time of a bound."""
    chance = random.Random(7)
    rows = [
        (f"n{chance.randrange(30)}", f"n{chance.randrange(30)}", chance.randrange(1, 9), chance.randrange(FIRST, LAST))
        for _ in range(count)
    ]
    return [*rows, ("a", "b", 1, CUT[0]), ("a", "c", 1, CUT[1]), ("c", "b", 1, CUT[0] - 1), ("d", "b", 2, CUT[1] - 1)]


def write(path: Path, form: str, rows: list[tuple[str, str, int, int]]) -> Path:
    times = [FORMS[form](time) for *_, time in rows]
    columns = [*map(list, list(zip(*rows, strict=True))[:3]), times]
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns, ["source", "target", "weight", "time"]), path, row_group_size=100)
        return path
    lines = [f"{u},{v},{w},{t}\n" for u, v, w, t in zip(*columns, strict=True)]
    path.write_text("source,target,weight,time\n" + "".join(lines))
    return path


def expected(folder: Path) -> dict[tuple[str, str], float]:
    inside = [row for row in rows_of() if CUT[0] <= row[3] < CUT[1]]
    path = folder / "inside.csv"
    path.write_text("source,target,weight\n" + "".join(f"{u},{v},{w}\n" for u, v, w, _ in inside))
    return read(run_stage(STAGE, {"engine": "compiled"}, {"edges": str(path)}, folder / "inside")).arcs()


@pytest.mark.parametrize("engine", ["compiled", "relational"])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("form", sorted(FORMS))
def test_rows_between_two_times(tmp_path: Path, form: str, kind: str, engine: str) -> None:
    path, wanted = write(tmp_path / f"edges.{kind}", form, rows_of()), expected(tmp_path)
    for name, (first, until) in BOUNDS.items():
        params = {"engine": engine, "from_time": first, "until": until}
        made = read(run_stage(STAGE, params, {"edges": str(path)}, tmp_path / name))
        assert made.arcs() == wanted
        assert not any("warning" in key for key in made.stats)


def test_types_of_parquet_and_a_file_without_header(tmp_path: Path) -> None:
    rows, wanted = rows_of(), expected(tmp_path)
    ends = [[row[place] for row in rows] for place in range(3)]
    for name, times in {
        "whole": pa.array([time for *_, time in rows]),
        "instant": pa.array([time * 1_000_000_000 + 5 for *_, time in rows], pa.timestamp("ns")),
        "zoned": pa.array([time * 1000 for *_, time in rows], pa.timestamp("ms", "Asia/Tokyo")),
    }.items():
        path = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table([*ends, times], ["source", "target", "weight", "seen"]), path)
        params = {"engine": "compiled", "time": "seen", "from_time": CUT[0], "until": CUT[1]}
        assert read(run_stage(STAGE, params, {"edges": str(path)}, tmp_path / name)).arcs() == wanted, name
    text = tmp_path / "plain.txt"
    text.write_text("".join(f"{u} {v} {time}\n" for u, v, _, time in rows))
    made = read(run_stage(STAGE, {"from_time": CUT[0], "until": CUT[1]}, {"edges": str(text)}, tmp_path / "plain"))
    assert set(made.arcs()) == set(wanted)
    assert not made.stats["weighted"]


def test_numbers_that_are_no_unix_times(tmp_path: Path) -> None:
    path = tmp_path / "edges.csv"
    path.write_text("source,target,timestamp\n" + "".join(f"a,n{time},{time}.0\n" for time in range(9)))
    made = read(run_stage(STAGE, {"from_time": 3, "until": 6}, {"edges": str(path)}, tmp_path / "out"))
    assert sorted(made.labels) == ["a", "n3", "n4", "n5"]
    with pytest.raises(UserError, match=r"the bound does not fit the times, which are numbers that are no Unix times"):
        run_stage(STAGE, {"from_time": "2004-05-01"}, {"edges": str(path)}, tmp_path / "date")


@pytest.mark.parametrize(
    ("text", "params", "message"),
    [
        ("a b 1082040961\nb c soon\n", {"time": 3, "from_time": 5}, r"neither a number nor a date.*soon"),
        ("a b x\nb c y\n", {"until": "2004-01-01"}, r"no column of times is found"),
        ("a b 1082040961\nb c 1082040962\n", {"until": "2001-01-01"}, r"no row is between from_time and until"),
        ("a b 1082040961\nb c 1082040962\n", {"until": 2004}, r"bound does not fit the times.*2004"),
        ("a b 1082040961\nb c 1082040962\n", {"time": 2, "until": 2004}, r"one column is used twice"),
        ("a b 1082040961\nb c 1082040962\n", {"time": 4, "until": 2004}, r"no such column"),
    ],
    ids=["bad-value", "no-column", "nothing-left", "year", "twice", "absent"],
)
def test_refusals(tmp_path: Path, text: str, params: dict, message: str) -> None:
    path = tmp_path / "edges.txt"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        run_stage(STAGE, params, {"edges": str(path)}, tmp_path / "out")


@pytest.mark.parametrize("engine", ["compiled", "relational"])
def test_a_late_bad_time_is_named_and_faults_of_other_times_are_not(tmp_path: Path, engine: str) -> None:
    rows = "".join(f"a,n{number},{number + 1}\n" for number in range(2000))
    path = tmp_path / "edges.csv"
    path.write_text(f"source,target,time\n{rows}b,c,late\n")
    with pytest.raises(UserError, match=r"edges.csv, line 2002.*neither a number nor a date"):
        run_stage(STAGE, {"engine": engine, "from_time": 5}, {"edges": str(path)}, tmp_path / "bad")
    path.write_text(f"source,target,time\n{rows},c,1\n")
    made = read(run_stage(STAGE, {"engine": engine, "from_time": 1990}, {"edges": str(path)}, tmp_path / "good"))
    assert len(made.labels) == 12
    with pytest.raises(UserError, match=r"line 2002.*empty node"):
        run_stage(STAGE, {"engine": engine, "until": 1990}, {"edges": str(path)}, tmp_path / "empty")


def test_bounds_are_dates_or_numbers() -> None:
    with pytest.raises(ValueError, match=r"'1.5.2004' is no date such as 2004-05-01"):
        IndexParams(until="1.5.2004")
    assert IndexParams(until=datetime(2004, 5, 1)).until == "2004-05-01T00:00:00"
