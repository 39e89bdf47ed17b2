"""Progress as people read it and as launchers parse it."""

import io

import pytest

from superworkflow.infra.contract.progress import (
    EVENT_PREFIX,
    MOST_POINTS,
    Course,
    Progress,
    output_events,
    parse_event,
    progress_text,
)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"done": 4.2e6, "total": 1e7, "unit": "walks", "facts": {"loss": 0.41}}, " 42%  4.2M/10M walks  loss 0.41"),
        ({"done": 0, "total": 9999, "unit": "edges", "facts": {}}, "  0%  0/9999 edges"),
        ({"done": 12345, "total": 2e9, "unit": "pairs", "facts": {}}, "  0%  12.3k/2G pairs"),
        ({"done": 0, "total": 0, "unit": "edges", "facts": {}}, "100%  0/0 edges"),
        ({"done": 1500, "total": 0, "unit": "steps", "facts": {"residual": 0.5}}, "1500 steps  residual 0.5"),
        (
            {"done": 1, "total": 1, "unit": "epochs", "facts": {"tokens_per_s": 2.14e6, "device": "cpu"}},
            "100%  1/1 epochs  tokens 2.14M/s  device cpu",
        ),
    ],
)
def test_text(fields: dict[str, object], text: str) -> None:
    assert progress_text(fields) == text


def test_events_come_back_as_they_were_told() -> None:
    stream = io.StringIO()
    progress = Progress("walk", events=True, stream=stream)
    progress.update(3, 10, "walks", loss=0.5)
    progress.log("Grüße,\nzwei Zeilen")
    progress.emit("done", reused=False, measured={"rows": 3})
    assert [parse_event(line) for line in stream.getvalue().splitlines(keepends=True)] == [
        {"event": "progress", "stage": "walk", "done": 3, "total": 10, "unit": "walks", "facts": {"loss": 0.5}},
        {"event": "log", "stage": "walk", "message": "Grüße,\nzwei Zeilen"},
        {"event": "done", "stage": "walk", "reused": False, "measured": {"rows": 3}},
    ]


def test_an_event_after_a_text_without_an_end_of_line() -> None:
    """As progress bars and `print(…, end="")` leave it: the event `done` was lost, and the run failed."""
    stream = io.StringIO()
    stream.write("40%")
    Progress("walk", events=True, stream=stream).emit("done", reused=False)
    log, done = output_events(stream.getvalue(), "walk")
    assert log == {"event": "log", "stage": "walk", "message": "40%"}
    assert done == {"event": "done", "stage": "walk", "reused": False}
    assert output_events("see @superworkflow {\n", "walk") == [
        {"event": "log", "stage": "walk", "message": "see @superworkflow {"}
    ]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "a warning\n",
        f"{EVENT_PREFIX}no json\n",
        f"{EVENT_PREFIX}[1]\n",
        f'{EVENT_PREFIX}{{"a": 1}}\n',
        ' @superworkflow {"event": "log"}',
    ],
)
def test_other_lines_are_no_events(line: str) -> None:
    assert parse_event(line) is None


def test_thinned_but_the_last_is_told() -> None:
    stream = io.StringIO()
    progress = Progress("walk", events=True, stream=stream)
    for done in range(1, 1001):
        progress.update(done, 1000, "walks")
    lines = stream.getvalue().splitlines()
    assert len(lines) < 100
    last = parse_event(lines[-1])
    assert last is not None
    assert last["done"] == 1000


def test_lines_for_people() -> None:
    stream = io.StringIO()
    progress = Progress("walk", stream=stream)
    progress.update(1, 2, "walks")
    progress.log("trimmed 3 hubs")
    progress.emit("done", reused=False)
    assert stream.getvalue() == "walk        50%  1/2 walks\nwalk       trimmed 3 hubs\n"


def test_a_long_course_is_thinned_and_keeps_its_ends() -> None:
    course = Course()
    for done in range(5 * MOST_POINTS):
        course.add({"event": "progress", "done": done, "facts": {"loss": 1 / (1 + done), "tokens_per_s": 1e6}})
    course.add({"event": "progress", "done": 1, "facts": {"device": "cpu", "loss": float("nan")}})
    course.add({"event": "log", "message": "done"})
    (points,) = course.points.values()
    assert MOST_POINTS // 2 <= len(points) <= MOST_POINTS
    steps = [step for step, _ in points]
    assert steps == sorted(steps)
    assert (steps[0], steps[-1]) == (0, 5 * MOST_POINTS - 1)
    assert all(value == 1 / (1 + step) for step, value in points)


def test_figures_of_parts_are_all_kept_and_take_the_place_of_others() -> None:
    stream, course = io.StringIO(), Course()
    progress = Progress("train", events=True, stream=stream)
    for part in range(1, 9):
        progress.update(10 * part, 80, "steps", loss=1 / part, accuracy=0.1)
        progress.report(part, 8, 0.5, epoch_loss=2 / part, accuracy=part / 10)
    for line in stream.getvalue().splitlines():
        event = parse_event(line)
        assert event is not None
        course.add(event)
    assert course.points["epoch_loss"] == tuple((part, 2 / part) for part in range(1, 9))
    assert course.points["accuracy"] == tuple((part, part / 10) for part in range(1, 9))
    assert course.points["loss"][-1] == (80, 1 / 8)
    course.add({"event": "report", "step": 1, "steps": 2, "value": 0.5})  # of a stage without figures
