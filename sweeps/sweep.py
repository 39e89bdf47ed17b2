"""Sweep loop: claims trials, runs several at once, and watches the budget and the failures."""

from __future__ import annotations

import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from datetime import datetime

from optuna.trial import TrialState

from superworkflow.infra.base.errors import SuperworkflowError, UserError
from superworkflow.infra.config.request import Request
from superworkflow.infra.orchestration.trial_host import TrialHost
from superworkflow.infra.tracking.sweeps import BEST_TAG, SWEEP_TAG, SweepRecord
from superworkflow.sweeps.owner import BEAT_SECONDS
from superworkflow.sweeps.storage import announce
from superworkflow.sweeps.study import ClaimedTrial, SweepStudy
from superworkflow.sweeps.summary import TrialRow, best_rows, trial_row
from superworkflow.sweeps.trial import Outcome, TrialRun, trial_request

POLL_SECONDS = 0.25
IDLE_SECONDS = 1.0
"""Seconds between reads of the study while other processes run its last trials."""
TABLE_ROWS = 50
_END = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}


@dataclass(frozen=True)
class SweepLimits:
    """Limits that end a sweep.

    Args:
        trials: number of trials.
        parallel: trials that this process runs at once.
        budget_usd: cost of all trials.
        max_failures: failed trials in a row.
    """

    trials: int
    parallel: int = 1
    budget_usd: float | None = None
    max_failures: int = 5


@dataclass
class _Active:
    claim: ClaimedTrial
    run: TrialRun
    future: Future[Outcome]


class Sweep:
    """One process's part in a study.

    Args:
        study: shared with other processes.
        request: the base request, whose profile is divided among parallel trials already.
        limits: of the sweep.
        record: the sweep's record, opened.
        host: runs its trials, and shows the sweep.
    """

    def __init__(
        self,
        study: SweepStudy,
        request: Request,
        limits: SweepLimits,
        record: SweepRecord,
        host: TrialHost,
    ):
        self.study, self.request, self.limits = study, request, limits
        self._record, self._host = record, host
        self._active: list[_Active] = []
        self._beats = 0
        self._started = datetime.now()

    def run(self) -> str:
        """Run until all trials have ended or a limit is reached; returns why it stopped early, empty otherwise.

        Raises:
            KeyboardInterrupt and the like: after its trials were stopped and released.
        """
        end = threading.Event()
        pulse = threading.Thread(target=self._pulse, args=(end,), name="sweep-beat", daemon=True)
        pulse.start()
        note = ""
        with ThreadPoolExecutor(self.limits.parallel, thread_name_prefix="trial") as pool:
            try:
                while not (note := self._limit_reached()):
                    while len(self._active) < self.limits.parallel and self._begin(pool):
                        pass
                    if not self._active and self._all_ended():
                        break
                    self._collect(IDLE_SECONDS if not self._active else POLL_SECONDS)
            except KeyboardInterrupt as error:
                self._stop_all(str(error) or "interrupted", interrupted=True)
                raise
            except BaseException:
                self._stop_all("the sweep was stopped")
                raise
            finally:
                if note:
                    self._stop_all(note)
                end.set()
        self._show()
        return note

    def _begin(self, pool: ThreadPoolExecutor) -> bool:
        """Begin one trial; False if there is none."""
        freed = self.study.reconcile()
        for number in freed:
            announce(f"trial {number:>4} resumes: the process that ran it has died")
        claim = self.study.claim(self.limits.trials)
        if claim is None:
            return False
        name = f"{self.study.name}-{claim.number:04d}"
        try:
            request = trial_request(self.request, claim.params, self.study.objectives)
        except UserError as error:
            self._finish(claim, Outcome("failed", None, 0.0, 0.0, 0.0, 0.0, reason=str(error)))
            return True
        run = TrialRun(
            request, name, self.study.objectives, self._record.trial, self._host,
            lambda *report: self.study.should_prune(claim, *report),
        )  # fmt: skip
        self._active.append(_Active(claim, run, pool.submit(self._host.in_context(run))))
        return True

    def _collect(self, seconds: float) -> None:
        """Wait a little, and finish the trials that have ended."""
        if not self._active:
            time.sleep(seconds)
            return
        wait([active.future for active in self._active], timeout=seconds, return_when=FIRST_COMPLETED)
        for active in [active for active in self._active if active.future.done()]:
            outcome = active.future.result()  # raises what no trial may cause
            self._active.remove(active)
            if outcome.state == "interrupted":
                self._release(active.claim, outcome)
            else:
                self._finish(active.claim, outcome)

    def _release(self, claim: ClaimedTrial, outcome: Outcome) -> None:
        """Release a trial that was stopped before its end."""
        self.study.release(claim, outcome.paid_usd)
        if outcome.run_id:
            self._record.stopped(outcome.run_id, outcome.reason)

    def _finish(self, claim: ClaimedTrial, outcome: Outcome) -> None:
        """Record the end of a trial in the study, in the tracker and where the host shows it."""
        constraints: dict[str, float] = {}
        budget = self.study.spec.trial_budget_usd
        if budget is not None and outcome.state == "complete":
            constraints["cost_usd"] = outcome.full_usd - budget
        kept = asdict(outcome) | {"paid_usd": claim.lost_usd + outcome.paid_usd}
        counts = self.study.finish(claim, _END[outcome.state], outcome.values, kept, constraints)
        if not counts:
            announce(f"trial {claim.number:>4} was taken over by another process; this attempt does not count")
            return
        if outcome.run_id:
            params = {f"superworkflow.param.{name}": str(value) for name, value in claim.params.items()}
            tags = {SWEEP_TAG: self.study.name, "superworkflow.trial": str(claim.number), **params}
            tags["superworkflow.trial_state"] = outcome.state
            figures = {"sweep/paid_usd": kept["paid_usd"], "sweep/reused_usd": outcome.reused_usd}
            self._record.annotate(outcome.run_id, figures, tags)
        announce(_line(claim, outcome))
        self._show()

    def _show(self) -> None:
        rows = [trial_row(trial) for trial in self.study.trials()]
        best = {row.number for row in best_rows(rows, self.study.objectives)}
        names = [objective.name for objective in self.study.objectives]
        shown = [_table_row(row, names, row.number in best) for row in rows[-TABLE_ROWS:]]
        paid, reused = sum(row.paid_usd for row in rows), sum(row.reused_usd for row in rows)
        ended = sum(row.state in _END for row in rows)
        self._host.table(
            shown, f"{ended} of {self.limits.trials} trials, paid ${paid:.6f}, saved by reuse ${reused:.6f}"
        )

    def _limit_reached(self) -> str:
        """The limit that is reached, as a message; empty if none is."""
        rows = [trial_row(trial) for trial in self.study.trials()]
        budget = self.limits.budget_usd
        if budget is not None:
            own = {active.claim.number: active for active in self._active}
            spent = sum(
                own[row.number].claim.lost_usd + own[row.number].run.spent()[0] if row.number in own else row.paid_usd
                for row in rows
            )
            if spent >= budget and not self._done(rows):
                return f"the budget of ${budget:g} is spent (${spent:.6f})"
        since = [(t.datetime_complete, t) for t in self.study.trials() if t.state.is_finished() and t.datetime_complete]
        since = sorted(((when, t) for when, t in since if when >= self._started), key=lambda pair: pair[0])
        last = [trial for _, trial in since[-self.limits.max_failures :]]
        if len(last) == self.limits.max_failures and all(trial.state == TrialState.FAIL for trial in last):
            if self._done(rows):
                return ""
            return f"{len(last)} trials in a row have failed, the last one because: {trial_row(last[-1]).reason}"
        return ""

    def _done(self, rows: list[TrialRow]) -> bool:
        return sum(row.state in _END for row in rows) >= self.limits.trials

    def _all_ended(self) -> bool:
        return self._done([trial_row(trial) for trial in self.study.trials()])

    def _stop_all(self, reason: str, *, interrupted: bool = False) -> None:
        """Stop the trials of this process at once and release them.

        Args:
            reason: shown with each trial.
            interrupted: by a signal. Stages may have received it too, so a trial that fails now was interrupted.
        """
        for active in self._active:
            active.run.stop(reason)
        for active in self._active:
            try:
                outcome = active.future.result()
            except BaseException:  # what stopped the sweep is raised already
                self.study.release(active.claim, active.run.spent()[0])
                continue
            if outcome.state == "interrupted" or (interrupted and outcome.state == "failed"):
                self._release(active.claim, replace(outcome, reason=reason))
            else:  # it ended just before
                self._finish(active.claim, outcome)
        self._active.clear()
        if not any(trial.state == TrialState.RUNNING for trial in self.study.trials()):  # no other process runs trials
            self._record.stop(reason)

    def _pulse(self, end: threading.Event) -> None:
        """Record heartbeats of this process's trials; stop those that another process has taken over."""
        while not end.wait(BEAT_SECONDS):
            self._beats += 1
            for active in list(self._active):
                try:
                    held = self.study.beat(active.claim, self._beats, active.run.spent()[0])
                except SuperworkflowError:  # the database was unreachable for too long, which ends the sweep itself
                    return
                except Exception:  # the trial has just ended
                    continue
                if not held and not active.future.done():
                    active.run.stop("another process has taken the trial over")


def tag_best(record: SweepRecord, rows: list[TrialRow], best: list[TrialRow]) -> None:
    """Tag the best trials' runs, and no others."""
    numbers = {row.number for row in best}
    for row in rows:
        if row.run_id and row.values is not None:
            record.annotate(row.run_id, {}, {BEST_TAG: str(row.number in numbers).lower()})


def _line(claim: ClaimedTrial, outcome: Outcome) -> str:
    ran = [name for name, stage in outcome.stages.items() if stage["state"] == "ran"]
    values = "  ".join(f"{value:.6g}" for value in outcome.values or ())
    what = values if outcome.state == "complete" else outcome.reason.splitlines()[0][:160]
    computed = ", ".join(ran) if ran else "nothing"
    return (
        f"trial {claim.number:>4} {outcome.state:<9} {what}  paid ${outcome.paid_usd:.6f}, "
        f"reused ${outcome.reused_usd:.6f}, computed {computed}"
    )


def _table_row(row: TrialRow, names: list[str], best: bool) -> dict[str, object]:
    values = dict(zip(names, (f"{value:.6g}" for value in row.values), strict=True)) if row.values else {}
    return {
        "trial": row.number, "state": f"{row.state}{' (best)' if best else ''}",
        **{name: values.get(name, "") for name in names}, "paid (USD)": round(row.paid_usd, 6),
        "reused (USD)": round(row.reused_usd, 6),
        **{name: value if not isinstance(value, float) else round(value, 6) for name, value in row.params.items()},
        "reason": row.reason[:200],
    }  # fmt: skip
