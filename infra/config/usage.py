"""Resources held by a stage, by role and time, from which its cost is computed: groups vary in size as it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import BaseModel, Field, model_validator

from superworkflow.infra.contract.resources import Resources

LONGEST_S = 366 * 86_400
MOST = 10_000
"""More holdings of one stage are not read from a store."""

Second = Annotated[float, Field(ge=0, le=LONGEST_S, allow_inf_nan=False)]


class Holding(BaseModel, frozen=True, extra="ignore"):
    """A number of members of one size, held for one span of time.

    Times are in seconds after the stage's own process or pod was given its resources, so that the clocks of machines
    need not agree.

    Args:
        role: of members; empty for the stage's own process or pod.
        resources: of each.
        begin_s, end_s: from when to when.
        count: how many.
        requests: calls of a function that each of them was, and so how it is priced; 0 for processes and pods.
    """

    role: Annotated[str, Field(pattern=r"^[a-z0-9_-]{0,63}$")] = ""
    resources: Resources
    begin_s: Second = 0.0
    end_s: Second
    count: int = Field(default=1, ge=1, le=100_000)
    requests: int = Field(default=0, ge=0, le=10**12)

    @model_validator(mode="after")
    def _forward(self) -> Holding:
        if self.end_s < self.begin_s:
            raise ValueError("a holding cannot end before it begins")
        return self

    @property
    def seconds(self) -> float:
        """For how long each was held."""
        return self.end_s - self.begin_s


def held(resources: Resources, seconds: float) -> tuple[Holding, ...]:
    """All of these resources, members included, for the whole time."""
    end_s = min(max(0.0, seconds), float(LONGEST_S))
    members = tuple(
        Holding(role=role, resources=group.each, end_s=end_s, count=group.count)
        for role, group in resources.groups.items()
    )
    return (Holding(resources=resources.only(), end_s=end_s), *members)


def held_while_scaled(
    resources: Resources, seconds: float, changes: Sequence[tuple[float, str, int]]
) -> tuple[Holding, ...]:
    """Like `held` with a changing number of members; the last to join are the first to leave.

    Args:
        resources: as they were at the start.
        seconds: until the end of all.
        changes: in the order of time, seconds since the start, role, and how many members there are from then on.
    """
    whole = held(resources, seconds)
    found = [each for each in whole if each.role not in {role for _, role, _ in changes}]
    for each in whole:
        moves = [(time_s, count) for time_s, role, count in changes if role == each.role]
        begins = [0.0] * each.count
        spans: Counter[tuple[float, float]] = Counter()
        for time_s, count in [*moves, (each.end_s, 0)] if moves else ():
            time_s = min(max(0.0, time_s), each.end_s)
            while len(begins) > count:
                spans[begins.pop(), time_s] += 1
            begins += [time_s] * (count - len(begins))
        found += [
            each.model_copy(update={"begin_s": begin_s, "end_s": end_s, "count": count})
            for (begin_s, end_s), count in sorted(spans.items())
            if end_s > begin_s
        ]
    return tuple(found)


def span_s(holdings: Iterable[Holding]) -> float:
    """Seconds until the last of them ended."""
    return max((each.end_s for each in holdings), default=0.0)


def shortened(holdings: Sequence[Holding], seconds: float) -> tuple[Holding, ...]:
    """Holdings without their last `seconds`, in which all of them did work that is not charged."""
    if not seconds:
        return tuple(holdings)
    return tuple(each.model_copy(update={"end_s": max(each.begin_s, each.end_s - seconds)}) for each in holdings)


def consecutive(parts: Iterable[Sequence[Holding]]) -> tuple[Holding, ...]:
    """Several lists of holdings as one, each beginning where the one before it ended."""
    joined: list[Holding] = []
    for part in parts:
        start = span_s(joined)
        for each in part:
            times = {"begin_s": start + each.begin_s, "end_s": start + each.end_s}
            joined.append(each.model_copy(update=times))
    return tuple(joined)


def widest(holdings: Sequence[Holding]) -> tuple[Holding, ...]:
    """Those that were held at the moment with the most vCPUs, of the moments with as many that with the most memory."""
    lasting = [each for each in holdings if each.seconds > 0]
    changes = [(each.begin_s, 1, each) for each in lasting] + [(each.end_s, -1, each) for each in lasting]
    cpu, memory, most, best = 0.0, 0, (-1.0, -1), 0.0
    for moment, sign, each in sorted(changes, key=lambda change: change[:2]):  # what ends gives way to what begins
        cpu += sign * each.count * each.resources.cpu
        memory += sign * each.count * each.resources.memory
        if sign > 0 and (round(cpu, 6), memory) > most:
            most, best = (round(cpu, 6), memory), moment
    return tuple(each for each in lasting if each.begin_s <= best < each.end_s)
