"""Studies: who may run a trial, what becomes of the trials of the dead, and that none is counted twice or lost."""

import subprocess
import sys
import threading
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from optuna.trial import TrialState, create_trial

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.process.identity import ProcessIdentity
from superworkflow.sweeps.owner import Watch
from superworkflow.sweeps.storage import StudyStorage
from superworkflow.sweeps.study import ClaimedTrial, SweepStudy
from tests.sweeps import worker
from tests.sweeps.conftest import Postgres


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/studies.db"
    server = request.getfixturevalue("postgres")
    assert isinstance(server, Postgres)
    return server.url


@pytest.fixture
def name() -> str:
    return f"study-{uuid.uuid4().hex[:8]}"


def _study(url: str, name: str, watch: Watch | None = None, **more: object) -> SweepStudy:
    created = SweepStudy.create(StudyStorage(url), name, worker.spec(**more), frozenset())  # type: ignore[arg-type]
    return SweepStudy(created.storage, name, created.spec, watch)


def _finish(study: SweepStudy, claim: ClaimedTrial) -> bool:
    return study.finish(claim, TrialState.COMPLETE, [worker.value(claim.params)], {"paid_usd": 1.0}, {})


def _start(url: str, name: str, trials: int, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.sweeps.worker", url, name, str(trials), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _numbers(outputs: list[str]) -> Counter[int]:
    return Counter(int(line.split()[1]) for out in outputs for line in out.splitlines())


@pytest.mark.parametrize("url", [pytest.param("sqlite", marks=pytest.mark.slow), "postgresql"], indirect=True)
def test_several_processes_make_each_trial_once(url: str, name: str) -> None:
    workers = [_start(url, name, 20, 0.0) for _ in range(3)]
    outputs = [process.communicate(timeout=120) for process in workers]
    assert [process.returncode for process in workers] == [0, 0, 0], outputs
    assert _numbers([out for out, _ in outputs]) == Counter(range(20))
    trials = _study(url, name).trials()
    assert [trial.number for trial in trials] == list(range(20))
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}


@pytest.mark.parametrize("url", [pytest.param("sqlite", marks=pytest.mark.slow), "postgresql"], indirect=True)
def test_killed_process_leaves_its_trial_to_another(url: str, name: str) -> None:
    killed = _start(url, name, 6, 600.0)
    assert killed.stdout is not None
    assert killed.stdout.readline() == "claimed 0\n"
    study = _study(url, name)
    params = study.trials()[0].params
    assert study.reconcile() == [], "its owner is alive"
    killed.kill()
    killed.communicate()
    others = [_start(url, name, 6, 0.1) for _ in range(2)]
    outputs = [process.communicate(timeout=120) for process in others]
    assert [process.returncode for process in others] == [0, 0], outputs
    assert _numbers([out for out, _ in outputs]) == Counter(range(6)), "each once, the killed one's too"
    trials = study.trials()
    assert len(trials) == 6
    assert trials[0].params == params
    assert trials[0].user_attrs["attempts"] == 1


@pytest.mark.slow
def test_trial_that_kills_its_process_is_given_up(tmp_path: Path, name: str) -> None:
    url = f"sqlite:///{tmp_path}/studies.db"
    for _ in range(3):
        process = _start(url, name, 1, 600.0)
        assert process.stdout is not None
        assert process.stdout.readline() == "claimed 0\n"
        process.kill()
        process.communicate()
    study = _study(url, name)
    assert study.reconcile() == [0]
    (trial,) = study.trials()
    assert trial.state == TrialState.FAIL
    assert "died 3 times" in trial.user_attrs["outcome"]["reason"]


def test_owner_elsewhere_is_judged_by_its_beats() -> None:
    now = 0.0
    watch = Watch(ProcessIdentity.here(), grace_s=60, clock=lambda: now)
    other = str(replace(ProcessIdentity.here(), host="elsewhere"))
    assert watch.alive(1, other, [1, 0.0])
    now = 50.0
    assert watch.alive(1, other, [2, 0.0])
    now = 109.0
    assert watch.alive(1, other, [2, 0.0])
    now = 111.0
    assert not watch.alive(1, other, [2, 0.0])
    assert watch.alive(1, other, [3, 0.0]), "it was only cut off"


def test_owner_here_is_judged_by_its_process() -> None:
    own = ProcessIdentity.here()
    watch = Watch(own)
    assert watch.alive(1, str(own), None)
    assert not watch.alive(1, str(replace(own, started="1")), None), "another process under the same id"
    child = subprocess.Popen(["true"])
    child.wait()
    assert not watch.alive(1, str(replace(own, pid=child.pid)), None)


def test_attempt_that_was_taken_over_does_not_count(url: str, name: str) -> None:
    first = _study(url, name, Watch(replace(ProcessIdentity.here(), host="elsewhere")))
    claim = first.claim(1)
    assert claim is not None
    assert first.beat(claim, 1, 0.25)
    now = 0.0
    second = _study(url, name, Watch(ProcessIdentity.here(), clock=lambda: now))
    assert second.reconcile() == []
    now = 100.0
    assert second.reconcile() == [0]
    assert second.reconcile() == []
    assert not first.beat(claim, 2, 0.5)
    taken = second.claim(1)
    assert taken is not None
    assert (taken.params, taken.lost_usd, taken.attempt) == (claim.params, 0.25, 2)
    assert not _finish(first, claim)
    assert _finish(second, taken)
    assert _finish(second, taken), "finishing it again, as after an outage, changes nothing"
    assert len(second.trials()) == 1


def test_released_trial_is_gone_on_with(url: str, name: str) -> None:
    study = _study(url, name)
    claim = study.claim(2)
    assert claim is not None
    study.release(claim, 0.5)
    again = study.claim(2)
    assert again is not None
    assert (again.number, again.params, again.lost_usd) == (claim.number, claim.params, 0.5)


def test_same_seed_same_trials_however_often_restarted(tmp_path: Path) -> None:
    def params(file: str, restart: bool) -> list[dict[str, object]]:
        study = _study(f"sqlite:///{tmp_path}/{file}.db", "same")
        for _ in range(14):  # TPE has learned something from the eleventh on
            if restart:
                study = _study(f"sqlite:///{tmp_path}/{file}.db", "same")
            claim = study.claim(14)
            assert claim is not None
            _finish(study, claim)
        return [trial.params for trial in study.trials()]

    first = params("a", restart=False)
    assert first == params("b", restart=True)
    assert len({str(each) for each in first}) == 14


def _run(study: SweepStudy, steps: int, *values: float) -> int:
    """Run a trial that reports these values; returns the step after which it was pruned, 0 if it was not."""
    claim = study.claim(len(study.trials()) + 1)
    assert claim is not None
    for step, value in enumerate(values, 1):
        if study.should_prune(claim, step, steps, value):
            study.finish(claim, TrialState.PRUNED, None, {}, {})
            return step
    study.finish(claim, TrialState.COMPLETE, [values[-1]], {}, {})
    return 0


@pytest.mark.parametrize("recorded", [True, False], ids=["steps recorded", "older study"])
def test_median_pruner_compares_equal_shares_of_trials(tmp_path: Path, name: str, recorded: bool) -> None:
    spec = replace(worker.spec(), pruner="median", steps=12)
    study = SweepStudy.create(StudyStorage(f"sqlite:///{tmp_path}/studies.db"), name, spec, frozenset())
    for _ in range(5):
        if recorded:
            assert _run(study, 4, 0.5, 0.6, 0.7) == 0
        else:
            study.optuna.add_trial(create_trial(value=0.7, intermediate_values={1: 0.5, 2: 0.6, 3: 0.7}))
    rising = (0.1, 0.2, 0.52, 0.53, 0.54, 0.61, 0.62, 0.63)
    assert _run(study, 12, *rising) == 0, "at equal steps it would have been pruned after the first"
    assert _run(study, 12, *rising, 0.65) == 9, "three quarters of 12 steps are compared with those of 4"
    assert _run(study, 2, 0.55) == 1, "a half of 2 steps is compared with a half of 4, not with a quarter"
    assert _run(study, 12, float("nan")) == 1
    assert [trial.state for trial in study.trials()[-3:]] == [TrialState.PRUNED] * 3


def test_group_shares_the_early_parameters(tmp_path: Path) -> None:
    study = _study(f"sqlite:///{tmp_path}/studies.db", "group", shared=["walk.p"], group=3)
    claims = [study.claim(9) for _ in range(9)]
    groups = [{c.params["walk.p"] for c in claims[i : i + 3] if c} for i in (0, 3, 6)]
    assert [len(group) for group in groups] == [1, 1, 1]
    assert len({claim.params["embed.learning_rate"] for claim in claims if claim}) == 9


def test_grid_has_each_point_once(tmp_path: Path) -> None:
    space = {"walk.p": worker.SPACE["walk.p"], "embed.window": {"type": "int", "low": 2, "high": 3}}
    spec = replace(worker.spec("grid"), space=space)
    study = SweepStudy.create(StudyStorage(f"sqlite:///{tmp_path}/studies.db"), "grid", spec, frozenset())
    assert study.set_target(1000) == 10
    while claim := study.claim(10):
        study.finish(claim, TrialState.FAIL, None, {}, {})
    points = {tuple(trial.params.values()) for trial in study.trials()}
    assert len(points) == len(study.trials()) == 10


def test_constraint_on_cost(tmp_path: Path) -> None:
    study = _study(f"sqlite:///{tmp_path}/studies.db", "constraint")
    claim = study.claim(1)
    assert claim is not None
    assert study.finish(claim, TrialState.COMPLETE, [1.0], {}, {"cost_usd": 0.5})
    assert study.trials()[0].constraints == {"cost_usd": 0.5}


def test_another_search_under_the_same_name(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/studies.db"
    _study(url, "taken")
    other = replace(worker.spec(), space={"walk.p": {"type": "categorical", "choices": [1.0]}})
    with pytest.raises(UserError, match=r"study taken: .*searches something else: space\.walk\.p"):
        SweepStudy.create(StudyStorage(url), "taken", other, frozenset())
    with pytest.raises(UserError, match="exists with sampler tpe"):
        SweepStudy.create(StudyStorage(url), "taken", worker.spec("random"), frozenset({"sampler"}))
    assert SweepStudy.create(StudyStorage(url), "taken", worker.spec("random"), frozenset()).spec.sampler == "tpe"
    with pytest.raises(UserError, match=r"no such study.*Studies there: taken"):
        SweepStudy.open(StudyStorage(url), "tkaen")


@pytest.mark.parametrize("text", ["mysql://host/db", "studies.db", "postgresql://u:secret@127.0.0.1:1/nothing"])
def test_bad_storage(text: str) -> None:
    with pytest.raises(UserError) as raised:
        StudyStorage(text)
    assert "--storage" in str(raised.value)
    assert "secret" not in str(raised.value)


def test_outage_of_the_database_is_waited_out(postgres: Postgres, name: str) -> None:
    process = _start(postgres.url, name, 8, 0.2)
    assert process.stdout is not None
    seen = [process.stdout.readline() for _ in range(2)]
    postgres.stop()
    try:
        noticed = threading.Event()
        errors: list[str] = []

        def read() -> None:
            assert process.stderr is not None
            for line in process.stderr:
                errors.append(line)
                if "unreachable" in line:
                    noticed.set()

        threading.Thread(target=read, daemon=True).start()
        assert noticed.wait(60), errors
        assert process.poll() is None
    finally:
        postgres.start()
    rest = process.stdout.read()
    assert process.wait(60) == 0, errors
    assert any("back" in line for line in errors)
    numbers = _numbers(["".join(seen), rest])
    assert set(numbers) == set(range(8))
    trials = _study(postgres.url, name).trials()
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 8


def test_the_first_trial_has_the_defaults(tmp_path: Path, name: str) -> None:
    """The sampler draws what they leave open, and all of later trials; a grid has its own order."""
    url = f"sqlite:///{tmp_path}/studies.db"
    study = _study(url, name, defaults={"walk.p": 4.0})
    claims = [study.claim(9) for _ in range(9)]
    found = [claim.params["walk.p"] for claim in claims if claim is not None]
    assert found[0] == 4.0
    assert len(set(found)) > 1
    assert len({claim.params["embed.learning_rate"] for claim in claims if claim is not None}) == 9
