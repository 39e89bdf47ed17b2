"""`superworkflow check --machine` names the variants of kernels and the ceilings of this machine."""

import json

import pytest

from superworkflow.__main__ import main
from superworkflow.tasks.lib.kernels.prefetch import LEVEL
from superworkflow.tasks.lib.kernels.products import PRODUCTS
from superworkflow.tasks.lib.kernels.rows_ahead import DISTANCE


def checked(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["check", "--machine", *arguments]) == 0
    return capsys.readouterr().out


def test_machine(capsys):
    lines = {line.split()[0]: line for line in checked(capsys).splitlines() if line.strip()}
    assert list(lines) == ["processor", "prefetch", "products", "distance", "arithmetic", "memory"]
    assert lines["prefetch"].split()[1] == LEVEL.value
    assert lines["products"].split()[1] == PRODUCTS.value
    assert lines["distance"].split()[1] == DISTANCE.value
    assert "FLOP/s" in lines["arithmetic"]
    assert "reads/s" in lines["memory"]
    facts = json.loads(checked(capsys, "--json"))
    assert [set(choice["rates"]) for choice in facts["choices"]] == [
        set(each.available) for each in (LEVEL, PRODUCTS, DISTANCE)
    ]
    assert facts["arithmetic"] == max(facts["choices"][1]["rates"].values()) > 1e8
    assert facts["memory"] == max(facts["choices"][0]["rates"].values()) > 1e5
