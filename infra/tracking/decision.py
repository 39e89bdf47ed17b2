"""Decision whether a challenger replaces the champion."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Literal

from superworkflow.infra.contract.metrics import Metric, find_metric
from superworkflow.infra.contract.registration import Registration

Verdict = Literal["promoted", "rejected", "waits", "current"]
"""Verdict on a run's model: promoted to champion; not good enough; good enough, but a challenger until a person
promotes it; or the champion's own dataset."""


Basis = Literal["rescored", "recorded", "none"]
"""Basis of the champion's figure: scored again on this run's data; as its own run recorded it; none."""


@dataclass(frozen=True)
class Scored:
    """Figures of the champion, to compare with.

    Args:
        version: its number.
        metrics: `node.metric` as the run that challenges it names them; empty where there are none.
        basis: where they are from.
        fault: why it cannot be scored; no challenger is promoted then.
        own: figures of the challenger by the same evaluation, where those of its run are by another one.
    """

    version: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    basis: Basis = "recorded"
    fault: str = ""
    own: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Decision:
    """Decision on a run's model, and its figures.

    Args:
        name: registered name.
        version: of the run's model.
        verdict: see `Verdict`.
        why: one sentence.
        metric: by which the two were compared; empty when they were not.
        quality: of the run's model.
        champion: version of the champion that it was compared with; None when there was none.
        champion_quality: by the evaluation that `basis` says.
        tolerance: how much worse the quality might have been.
        basis: see `Basis`.
        gates: each gate and limit of drift, and whether it was passed.
    """

    name: str
    version: int
    verdict: Verdict
    why: str
    metric: str = ""
    quality: float | None = None
    champion: int | None = None
    champion_quality: float | None = None
    tolerance: float | None = None
    basis: Basis = "none"
    gates: Mapping[str, bool] = field(default_factory=dict)

    @property
    def figures(self) -> dict[str, float]:
        """Its numbers by name, for records."""
        named = {"quality": self.quality, "champion_quality": self.champion_quality, "tolerance": self.tolerance}
        return {name: value for name, value in named.items() if value is not None}

    def document(self) -> dict[str, Any]:
        """As in a run's JSON document and in the registry."""
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in vars(self).items()}

    def __str__(self) -> str:
        return f"{self.name} version {self.version}: {self.why}"


def decide(
    name: str,
    version: int,
    metrics: Mapping[str, float],
    declared: Sequence[Metric],
    champion: Scored | None,
    registration: Registration,
    drift: Mapping[str, float] | None = None,
) -> Decision:
    """Decide by the figures alone: `promoted` or `rejected`. Who may promote is not checked here.

    Args:
        name: registered name.
        version: of the challenger.
        metrics: of its run, by `node.metric`.
        declared: the superworkflow's metrics; the first headline that both have is the quality, those that promote
            before others.
        champion: with its figures; None when no model is in use yet.
        registration: gates, limits of drift, and tolerance.
        drift: figures of the run against the champion.
    """
    faults = {str(gate): gate.check(metrics) for gate in registration.parsed_gates()}
    faults |= {f"drift {each}": each.check(drift or {}, champion is None) for each in registration.parsed_limits()}
    gates = {text: not fault for text, fault in faults.items()}
    failed = "; ".join(filter(None, faults.values()))
    places = [(place, each) for each in declared if (place := each.precedence(metrics)) is not None]
    headlines = [each for _, each in sorted(places, key=itemgetter(0))]
    if champion is not None and champion.own is not None:
        metrics = champion.own
    own = [(metric, found) for metric in headlines if (found := find_metric(metric.full_name, metrics)) is not None]
    lacking = f"this run has none of the figures to compare by ({', '.join(each.full_name for each in headlines)})"
    if champion is None:
        first = own[0][1] if own else ""
        why = f"rejected: {failed}" if failed else "promoted: the first model under this name"
        if headlines and not own:
            why += f"; {lacking}, so that a person has to promote the next"
        return Decision(name, version, "rejected" if failed else "promoted", why, metric=first,
                        quality=metrics.get(first), gates=gates)  # fmt: skip
    common = [pair for pair in own if pair[1] in champion.metrics]
    if champion.fault or (headlines and not common):
        none = "the champion has none of this run's figures to compare by" if own else lacking
        fault = champion.fault or none
        why = f"rejected: {'; '.join(filter(None, [failed, fault]))}; a person may promote it"
        return Decision(name, version, "rejected", why, champion=champion.version, gates=gates)
    if not common:
        why = f"rejected: {failed}" if failed else "promoted: the superworkflow declares no metric to compare by"
        return Decision(name, version, "rejected" if failed else "promoted", why, champion=champion.version,
                        gates=gates)  # fmt: skip
    metric, found = common[0]
    quality, other = metrics[found], champion.metrics[found]
    tolerance = registration.tolerance
    if tolerance is None:
        spread = champion.metrics.get(metric.uncertainty_of(found), 0.0)
        tolerance = spread if math.isfinite(spread) else 0.0
    gain = quality - other if metric.direction == "maximize" else other - quality
    good = gain >= -tolerance  # false for figures that are no numbers
    basis = "scored again on the same data" if champion.basis == "rescored" else "as its own run recorded it"
    comparison = (
        f"{found} {quality:.4f} against {other:.4f} of version {champion.version} ({basis}), tolerance {tolerance:.4f}"
    )
    if good and not failed:
        verdict: Verdict = "promoted"
        why = f"promoted: {comparison}"
    else:
        verdict = "rejected"
        why = f"rejected: {'; '.join(filter(None, [failed, '' if good else comparison]))}"
    return Decision(
        name, version, verdict, why, found, quality, champion.version, other, tolerance, champion.basis, gates
    )
