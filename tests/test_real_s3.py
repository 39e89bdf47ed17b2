"""Real S3 servers end with the process that started them."""

import json
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from tests.real_s3 import PROGRAMS, installed, is_open

HERE = [
    kind if kind in installed() else pytest.param(kind, marks=pytest.mark.skip("not installed")) for kind in PROGRAMS
]


@pytest.mark.parametrize("kind", HERE)
@pytest.mark.parametrize("killed", [False, True])
def test_server_ends_with_its_parent(kind: str, killed: bool, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.real_s3", kind, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as script:
        assert script.stdout is not None
        endpoint = urlsplit(json.loads(script.stdout.readline())["endpoint"])
        programs = psutil.Process(script.pid).children(recursive=True)
        assert programs
        assert is_open("127.0.0.1", endpoint.port or 0)
        if killed:
            script.kill()
    until = time.monotonic() + 60
    while any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in programs):
        assert time.monotonic() < until
        time.sleep(0.1)
    assert not is_open("127.0.0.1", endpoint.port or 0)
