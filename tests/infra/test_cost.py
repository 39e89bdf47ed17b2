"""Prices and costs, against sums done by hand."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from superworkflow.infra.cost import FOLDER, PriceTable, Usage, largest, load_prices, unified_cost
from superworkflow.infra.errors import UserError
from superworkflow.infra.resources import Executors, Gpu, Resources

GIB = 1 << 30
PRICES = PriceTable(
    name="hand", date=date(2026, 1, 1), source="by hand", vcpu_hour=0.04, gib_hour=0.005,
    gpu_hour={"T4": 0.3, "A100": 2.0},
)  # fmt: skip


def test_cost_of_one_stage() -> None:
    # 4 × 0.04 + 16 × 0.005 = 0.24 USD an hour; 90 s of it
    assert PRICES.cost(Resources(cpu=4, memory=16 * GIB), 90) == pytest.approx(0.006)


def test_cost_with_gpus() -> None:
    # 8 × 0.04 + 32 × 0.005 + 2 × 0.3 = 1.08 USD an hour
    assert PRICES.rate(Resources(cpu=8, memory=32 * GIB, gpu=Gpu(count=2, type="T4"))) == pytest.approx(1.08)


def test_cost_with_executors() -> None:
    # driver 1 × 0.04 + 2 × 0.005; executors 10 × (4 × 0.04 + 8 × 0.005) = 2.0
    resources = Resources(cpu=1, memory=2 * GIB, executors=Executors(count=10, cpu=4, memory=8 * GIB))
    assert PRICES.rate(resources) == pytest.approx(2.05)


def test_unpriced_gpu() -> None:
    with pytest.raises(
        UserError, match=r"gpu.type: the price table hand has no price .*\(got 'A10'\). Did you mean A100\?"
    ):
        PRICES.rate(Resources(gpu=Gpu(count=1, type="A10")))
    with pytest.raises(UserError, match="Valid: A100, T4"):
        PRICES.rate(Resources(gpu=Gpu(count=1)))


def test_smallest_allocation_that_holds_all() -> None:
    sizes = [
        Resources(cpu=2, memory=64 * GIB),
        Resources(cpu=16, memory=GIB, executors=Executors(count=2, cpu=4, memory=GIB)),
        Resources(cpu=1, memory=GIB, gpu=Gpu(count=1, type="T4")),
        Resources(cpu=1, memory=GIB, executors=Executors(count=5, cpu=4, memory=GIB)),
    ]
    found = largest(sizes)
    assert (found.cpu, found.memory) == (16, 64 * GIB)
    assert found.gpu == Gpu(count=1, type="T4")
    assert found.executors == Executors(count=5, cpu=4, memory=GIB)


def test_unified_cluster_is_kept_for_the_whole_run() -> None:
    usages = [
        Usage(Resources(cpu=100, memory=0), 600),
        Usage(Resources(cpu=1, memory=40 * GIB, gpu=Gpu(count=1, type="T4")), 3000),
    ]
    # 100 × 0.04 + 40 × 0.005 + 0.3 = 4.5 USD an hour for one hour
    assert unified_cost(usages, PRICES) == pytest.approx(4.5)
    # each with its own: 4.0 / 6 + (0.04 + 0.2 + 0.3) × 5 / 6 = 1.11667
    own = sum(PRICES.cost(usage.resources, usage.seconds) for usage in usages)
    assert own == pytest.approx(1.1166667)
    assert unified_cost([], PRICES) == 0


def test_unified_costs_no_less() -> None:
    usages = [Usage(Resources(cpu=cpu, memory=cpu * GIB), 10.0 * cpu) for cpu in (1, 2, 5)]
    assert unified_cost(usages, PRICES) >= sum(PRICES.cost(usage.resources, usage.seconds) for usage in usages)
    assert unified_cost(usages[:1], PRICES) == pytest.approx(PRICES.cost(usages[0].resources, 10))


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_tables_are_dated_and_sourced(path: Path) -> None:
    table = load_prices(path.stem)
    assert table.name == path.stem
    assert table.source
    assert path.stem.startswith(f"{table.date:%Y-%m}")
    assert 0 < table.gib_hour < table.vcpu_hour < min(table.gpu_hour.values())


def test_gpu_prices_are_what_the_instances_cost_beyond_the_rest() -> None:
    """The table's header states the instances; the figures follow from them."""
    text = max(FOLDER.glob("*.yaml")).read_text()
    table = load_prices()
    pattern = r"#\s+(\w+)\s+\S+\s+([\d.]+)\s+USD, (\d+) vCPU, (\d+) GiB, (\d+) GPU"
    rows = re.findall(pattern, text)
    assert {row[0] for row in rows} == set(table.gpu_hour)
    for name, usd, vcpu, gib, count in rows:
        rest = int(vcpu) * table.vcpu_hour + int(gib) * table.gib_hour
        assert table.gpu_hour[name] == pytest.approx((float(usd) - rest) / int(count), abs=0.0006)


def test_newest_by_default() -> None:
    assert load_prices().name == max(path.stem for path in FOLDER.glob("*.yaml"))


def test_own_table(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("{date: 2026-02-03, source: us, vcpu_hour: 1, gib_hour: 0}")
    assert load_prices(str(tmp_path / "mine.yaml")).cost(Resources(cpu=2), 1800) == 1.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{date: 2026-02-03, source: us, vcpu_hour: -1, gib_hour: 0}", r"mine.yaml: vcpu_hour: .*\(got -1\)"),
        ("{date: soon, source: us, vcpu_hour: 1, gib_hour: 0}", r"mine.yaml: date: .*\(got 'soon'\)"),
        ("{date: 2026-02-03, vcpu_hour: 1, gib_hour: 0}", r"mine.yaml: source: "),
        ("{date: 2026-02-03, source: us, vcpu_hour: 1, gib_hour: 0, gpu_hour: {T4: x}}", r"mine.yaml: gpu_hour.T4: "),
    ],
)  # fmt: skip
def test_bad_table(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(UserError, match=message):
        load_prices(str(tmp_path / "mine.yaml"))


def test_unknown_table() -> None:
    with pytest.raises(UserError, match=r"--prices: no such price table \(got '2026-11-aws'\). Did you mean"):
        load_prices("2026-11-aws")
