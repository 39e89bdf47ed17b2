"""Prices and costs, against sums done by hand."""

import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.prices import FOLDER, FunctionPrices, PriceTable, largest, load_prices, unified_cost
from superworkflow.infra.config.usage import Holding, consecutive, held, shortened, span_s, widest
from superworkflow.infra.contract.resources import Executors, Gpu, Resources

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


def test_members_are_paid_with_their_gpus() -> None:
    alone = Resources(cpu=8, memory=32 * GIB, gpu=Gpu(count=1, type="T4"))
    workers = {"graph": {"count": 3, "cpu": 8, "memory": 32 * GIB, "gpu": {"count": 1, "type": "T4"}}}
    both = Resources.model_validate({"cpu": 8, "memory": 32 * GIB, "gpu": alone.gpu, "workers": workers})
    assert PRICES.rate(both) == pytest.approx(4 * PRICES.rate(alone))


def test_unpriced_gpu() -> None:
    with pytest.raises(
        UserError, match=r"gpu.type: the price table hand has no price .*\(got 'A10'\). Did you mean A100\?"
    ):
        PRICES.rate(Resources(gpu=Gpu(count=1, type="A10")))
    with pytest.raises(UserError, match="Valid: A100, T4"):
        PRICES.rate(Resources(gpu=Gpu(count=1)))


def test_smallest_cluster_that_holds_all() -> None:
    sizes = [
        Resources(cpu=2, memory=64 * GIB),
        Resources(cpu=16, memory=GIB, executors=Executors(count=2, cpu=4, memory=GIB)),
        Resources(cpu=1, memory=GIB, gpu=Gpu(count=1, type="T4")),
        Resources(cpu=1, memory=GIB, executors=Executors(count=5, cpu=4, memory=GIB)),
    ]
    machine, members = largest([held(size, 10) for size in sizes])
    assert machine.resources == Resources(cpu=16, memory=64 * GIB, gpu=Gpu(count=1, type="T4"))
    assert (members.role, members.count, members.resources) == ("executor", 5, Resources(cpu=4, memory=GIB))
    assert largest([]) == ()


def test_unified_cluster_is_kept_for_the_whole_run() -> None:
    stages = [
        held(Resources(cpu=100, memory=0), 600),
        held(Resources(cpu=1, memory=40 * GIB, gpu=Gpu(count=1, type="T4")), 3000),
    ]
    # 100 × 0.04 + 40 × 0.005 + 0.3 = 4.5 USD an hour for one hour
    assert unified_cost(stages, PRICES) == pytest.approx(4.5)
    # each with its own: 4.0 / 6 + (0.04 + 0.2 + 0.3) × 5 / 6 = 1.11667
    assert sum(map(PRICES.price, stages)) == pytest.approx(1.1166667)
    assert unified_cost([], PRICES) == 0


def test_unified_costs_no_less() -> None:
    stages = [held(Resources(cpu=cpu, memory=cpu * GIB), 10.0 * cpu) for cpu in (1, 2, 5)]
    assert unified_cost(stages, PRICES) >= sum(map(PRICES.price, stages))
    assert unified_cost(stages[:1], PRICES) == pytest.approx(PRICES.price(stages[0]))


DRIVER = Holding(resources=Resources(cpu=1, memory=2 * GIB), end_s=600)
SMALL, LARGE = Resources(cpu=4, memory=8 * GIB), Resources(cpu=4, memory=16 * GIB)
GROWING = (
    DRIVER,
    Holding(role="executor", resources=SMALL, begin_s=60, end_s=240, count=2),
    Holding(role="executor", resources=SMALL, begin_s=240, end_s=600),
    Holding(role="executor", resources=LARGE, begin_s=240, end_s=600),
)
"""Two executors a minute after their driver; one of them is replaced by a larger one."""


def test_each_role_is_priced_for_its_own_time() -> None:
    # driver 0.05 for 1/6 h; executors 0.2 × (2 × 0.05 + 0.1) + 0.24 × 0.1
    assert PRICES.price(GROWING) == pytest.approx(0.05 / 6 + 0.2 * (0.1 + 0.1) + 0.24 * 0.1)
    whole = held(Resources(cpu=1, memory=2 * GIB, executors=Executors(count=2, cpu=4, memory=8 * GIB)), 600)
    assert PRICES.price(whole) == pytest.approx((0.05 + 2 * 0.2) / 6)


def test_the_widest_moment() -> None:
    assert widest(GROWING) == (DRIVER, *GROWING[2:])  # as many vCPUs as before, and more memory
    assert widest(GROWING[:2]) == GROWING[:2]
    assert widest([]) == ()
    unified = unified_cost([GROWING, held(Resources(cpu=2, memory=GIB), 3000)], PRICES)
    assert unified == pytest.approx(PRICES.rate(Resources(cpu=2, memory=2 * GIB)) + 0.2 + 0.24)


def test_attempts_one_after_the_other_without_compiling() -> None:
    joined = consecutive([GROWING, held(SMALL, 100)])
    assert (joined[-1].begin_s, joined[-1].end_s) == (600, 700)
    assert span_s(joined) == 700
    assert [each.seconds for each in shortened(GROWING, 100)] == [500, 80, 260, 260]
    assert [each.seconds for each in shortened(held(SMALL, 30), 100)] == [0]


@pytest.mark.parametrize(
    "wrong", [{"end_s": -1}, {"begin_s": 2, "end_s": 1}, {"end_s": "nan"}, {"end_s": 1, "count": 0},
              {"end_s": 1, "role": "../x"}, {"end_s": 1, "resources": {"cpu": -1}}],
)  # fmt: skip
def test_bad_holdings(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Holding.model_validate({"resources": {}, **wrong})


def test_functions_are_paid_for_by_call() -> None:
    prices = PRICES.model_copy(update={"functions": FunctionPrices(gb_second=2e-5, request=2e-7, step_ms=100)})
    # 5 functions of 1000 calls each, which take 0.25 s, paid for as 0.3 s of half a GiB
    calls = Holding(role="tensor", resources=Resources(cpu=0.125, memory=GIB // 2), end_s=250, count=5, requests=1000)
    assert prices.price([calls]) == pytest.approx(5 * 1000 * (2e-7 + 0.3 * 0.5 * 2e-5))
    whole = calls.model_copy(update={"end_s": 300})  # no step more for what floating point leaves over
    assert prices.price([whole]) == pytest.approx(prices.price([calls]))
    # The stage's own pod is paid for by the hour in addition
    assert prices.price([DRIVER, calls]) == pytest.approx(prices.price([DRIVER]) + prices.price([calls]))
    with pytest.raises(UserError, match=r"functions: the price table hand has no price for functions\. Add"):
        PRICES.price([calls])


def test_a_table_with_functions(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    text = "date: 2026-01-01\nsource: mine\nvcpu_hour: 1\ngib_hour: 1\n"
    path.write_text(text + "functions: {gb_second: 0.00002, request: 0.0000002, step_ms: 100}\n")
    assert load_prices(str(path)).functions == FunctionPrices(gb_second=2e-5, request=2e-7, step_ms=100)
    path.write_text(text + "functions: {gb_second: 1, step_ms: 0}\n")
    with pytest.raises(UserError, match=r"mine\.yaml: functions\.step_ms: .*\(got 0\)"):
        load_prices(str(path))


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
