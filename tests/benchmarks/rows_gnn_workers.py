"""Mini-batch training by worker groups, of one thread each: 1, 2 and 4 workers, and 2 against DistDGL.

Three SAGE layers of 256 on a graph with communities, in parts by METIS, batch 1024 over all workers; no dropout. What
is compared of 1, 2 and 4 workers are CPU seconds of the slowest for the same steps, and wall seconds where there is a
core for each. Workers stay between rounds, so that opening the graph is not in the figures; the notes have it.

Of DistDGL two servers, each with a part by METIS, and two trainers go through as many steps with half of the batch
each. The figures have CPU seconds of servers and trainers together, and of both our workers.
"""

import os
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from tests.benchmarks.gnn_graphs import METHODS, communities, communities_in_parts
from tests.benchmarks.graphs import short
from tests.benchmarks.measure import PeerFailed, Worker, alternate, median
from tests.benchmarks.report import Row
from tests.benchmarks.rows_gnn import DRAWN, OUTERMOST
from tests.benchmarks.rows_gnn import SAGE as NETWORK
from tests.benchmarks.setting import Setting

SAGE: dict[str, Any] = {**NETWORK, "batch": 1024}
CASES = (("", DRAWN), (", all neighbours outermost", OUTERMOST))
QUICK, SMALL, LARGE = (20_000, 170_000), (200_000, 2_000_000), (1_000_000, 10_000_000)
STEPS = 8
"""Of a round; a multiple of the window that stage train prepares ahead."""
WARM_UP = 32
"""Steps until a process gets hardly any memory anew from the system."""
WORKERS = {2: 1.7, 4: 1 / 0.3}
"""Least ratio of the CPU seconds of one worker to those of the slowest, by number of workers."""
HALF = 2.0
"""Bytes of `contiguous` over those of METIS, at least."""
PEER = "DistDGL"


def workers(setting: Setting) -> list[Row]:
    """The same steps by 1, 2 and 4 workers."""
    size = QUICK if setting.quick else LARGE
    name, rows = f"communities {short(size[0])}/{short(2 * size[1])}", []
    folder = communities_in_parts(setting, *size)
    with ExitStack() as stack:
        counts, paths = (1, *WORKERS), (folder / "graph", folder / "shards-metis", folder / "means")
        groups = {count: stack.enter_context(setting.own("gnn_workers", *paths, count)) for count in counts}
        for more, fanouts in CASES:
            request = {"work": "train", "params": {**SAGE, "fanouts": fanouts}, "steps": STEPS}
            first = {count: each.ask(**request) for count, each in groups.items()}
            for each in groups.values():
                each.ask(**{**request, "steps": WARM_UP})
            sides = {
                str(count): lambda each=each, request=request: each.ask(**request) for count, each in groups.items()
            }  # type: ignore[misc]
            answers = alternate(sides, setting.rounds)
            cost = {count: median([max(each["cpu_s"]) / STEPS for each in answers[str(count)]]) for count in counts}
            wall = {count: median([max(each["wall_s"]) / STEPS for each in answers[str(count)]]) for count in counts}
            for count, target in WORKERS.items():
                apart = _apart(first[1]["losses"], first[count]["losses"])
                note = (
                    f"a step takes {cost[1]:.3f} CPU s of one worker, {cost[count]:.3f} of the slowest of {count}, and "
                    f"{wall[1]:.3f} and {wall[count]:.3f} s; opened in {max(first[1]['open_cpu_s']):.1f} and "
                    f"{max(first[count]['open_cpu_s']):.1f} CPU s; losses differ by {apart:.1g} in the first 5 steps; "
                    f"load {os.getloadavg()[0]:.1f}"
                )
                what = f"steps by {count} workers, slowest, {name}{more}"
                rows.append(Row(what, "one worker", "CPU s", setting.target(target), cost[count], cost[1], note=note))
                setting.say(f"{what}: {note}")
    return rows


def sent(setting: Setting) -> list[Row]:
    """Bytes that 2 and 4 workers send in the same steps, with parts by METIS and of nodes in the order of their ids."""
    size = QUICK if setting.quick else LARGE
    folder, rows = communities_in_parts(setting, *size), []
    for count in WORKERS:
        with ExitStack() as stack:
            groups = {}
            for method in METHODS:
                paths = folder / "graph", folder / f"shards-{method}", folder / "means"
                groups[method] = stack.enter_context(setting.own("gnn_workers", *paths, count))
            for more, fanouts in CASES:
                request = {"work": "train", "params": {**SAGE, "fanouts": fanouts}, "steps": 3 * STEPS}
                for each in groups.values():
                    each.ask(**request)  # what the first request has prepared ahead comes on top of its own steps
                bytes_of = {method: _sent(each.ask(**request)["sent"]) for method, each in groups.items()}
                metis, contiguous = (bytes_of[method] for method in METHODS)
                ours, theirs = (sum(each[kind] for kind in each if kind != "gradients") for each in (metis, contiguous))
                kinds = "; ".join(f"{kind} {metis[kind] / 1e6:.1f} MB ({contiguous[kind] / 1e6:.1f})" for kind in metis)
                name = f"bytes of {3 * STEPS} steps by {count} workers, {short(size[0])}/{short(2 * size[1])}{more}"
                row = Row(name, "parts by contiguous", "bytes", setting.target(HALF), ours, theirs, note=kinds)
                setting.say(f"{row.name}: {theirs / ours:.2f} times fewer: {kinds}")
                rows.append(row)
    return rows


def distributed(setting: Setting) -> list[Row]:
    """Batches ready and steps by two workers, and by DistDGL's servers and trainers."""
    size = QUICK if setting.quick else SMALL
    graph, folder = communities(setting, *size, 1024), communities_in_parts(setting, *size)
    cases: list[tuple[str, str, str, float | None, Mapping[str, str]]] = [
        ("batches", ", all neighbours outermost", OUTERMOST, 10, {}),
        ("train", ", all neighbours outermost", OUTERMOST, 4, {}),
        ("train", ", all neighbours outermost, products of bfloat16", OUTERMOST, 4, {"products": "bfloat16"}),
        ("batches", "", DRAWN, None, {}),
        ("train", "", DRAWN, None, {}),
    ]
    names = {"batches": "batches ready", "train": "training"}
    rows = [
        Row(f"{names[work]}, 2 workers, {graph.name}{more}", PEER, f"{'steps' if work == 'train' else work}/CPU s",
            target and setting.target(target))
        for work, more, _, target, _ in cases
    ]  # fmt: skip
    paths = folder / "graph", folder / "shards-metis", folder / "means", 2
    try:
        python = setting.set_up_apart("dgl")
        parts = setting.data / f"{graph.folder.name}-dgl"
        with ExitStack() as stack:
            own = stack.enter_context(setting.own("gnn_workers", *paths))
            peer = stack.enter_context(setting.peer("dist_dgl", graph.folder, parts, python=python))
            return [
                _against(setting, row, own, peer, work, {**SAGE, "fanouts": fanouts}, more)
                for row, (work, _, fanouts, _, more) in zip(rows, cases, strict=True)
            ]
    except PeerFailed as error:
        return [replace(row, note=f"no figure of the peer: {error}") for row in rows]


def _against(
    setting: Setting, row: Row, own: Worker, peer: Worker, work: str, params: dict[str, Any], more: Mapping[str, str]
) -> Row:
    calls = {"own": (own, {**params, **more}, STEPS), "peer": (peer, params, STEPS // 2)}
    for side, given, _ in calls.values():
        side.ask(work=work, params=given, steps=4)
    sides = {
        name: lambda side=side, given=given, steps=steps: side.ask(work=work, params=given, steps=steps)  # type: ignore[misc]
        for name, (side, given, steps) in calls.items()
    }
    answers = alternate(sides, setting.rounds)
    steps = {name: call[2] for name, call in calls.items()}
    cost = {
        name: median([sum(each["cpu_s"]) + sum(each.get("servers_cpu_s", ())) for each in found]) / steps[name]
        for name, found in answers.items()
    }
    wall = {name: median([max(each["wall_s"]) for each in found]) / steps[name] for name, found in answers.items()}
    edges = {name: median([sum(each["edges"]) for each in found]) / steps[name] for name, found in answers.items()}
    servers = median([sum(each["servers_cpu_s"]) for each in answers["peer"]]) / steps["peer"]
    note = (
        f"CPU seconds of a step, all processes: {cost['own']:.3f} and {cost['peer']:.3f}, of which servers "
        f"{servers:.3f}; {wall['own']:.3f} and {wall['peer']:.3f} s on the clock; {edges['own']:.0f} and "
        f"{edges['peer']:.0f} edges drawn; load {os.getloadavg()[0]:.1f}"
    )
    setting.say(f"{row.name}: {cost['peer'] / cost['own']:.2f}: {note}")
    return replace(row, ours=1 / cost["own"], peer=1 / cost["peer"], cpu=(cost["own"], cost["peer"]), note=note)


def _sent(by_rank: list[dict[str, int]]) -> Counter[str]:
    """Bytes of all workers, by what they are."""
    whole: Counter[str] = Counter()
    for each in by_rank:
        whole.update({kind: size for kind, size in each.items() if size})
    return whole


def _apart(one: list[float], other: list[float]) -> float:
    """The largest difference of a loss in the first steps: later ones differ as Adam enlarges the order of sums."""
    return max(abs(a - b) for a, b in zip(one[:5], other[:5], strict=True))


ROWS: dict[str, Callable[[Setting], list[Row]]] = {
    "gnn-workers": workers, "gnn-sent": sent, "gnn-distributed": distributed,
}  # fmt: skip
