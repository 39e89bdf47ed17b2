"""S3 server of the tests: `SUPERWORKFLOW_TEST_S3`, by default moto's.

moto                 a server in Python, started for the tests (tests/s3_server.py)
ceph, seaweedfs      a real one, started for the tests (tests/real_s3.py)
http://host:port     one that runs; credentials are in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY
"""

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fsspec

from tests.real_s3 import PROGRAMS, free_ports, is_open

ROOT = Path(__file__).parent.parent
KIND = os.environ.get("SUPERWORKFLOW_TEST_S3", "moto")


@contextmanager
def s3_access(folder: Path, host: str = "127.0.0.1") -> Iterator[dict[str, str]]:
    """The environment that leads to the S3 server, for as long as it runs.

    Args:
        folder: an empty folder for what it writes.
        host: the address at which it listens if it is started.
    """
    if KIND == "moto":
        started = _moto(folder, host)
    elif KIND in PROGRAMS:
        started = _real(folder, host)
    else:
        given = {name: os.environ[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
        yield {"AWS_ENDPOINT_URL": KIND.rstrip("/"), "AWS_DEFAULT_REGION": _region(), **given}
        return
    with started as environment:
        yield environment | {"AWS_DEFAULT_REGION": _region()}


def make_bucket(name: str) -> None:
    """Make a bucket where there is none, on the server of the environment."""
    files = fsspec.filesystem("s3", skip_instance_cache=True)
    if not files.exists(name):
        files.mkdir(name)


def _region() -> str:
    return os.environ.get("AWS_DEFAULT_REGION", "us-east-1")


@contextmanager
def _moto(folder: Path, host: str) -> Iterator[dict[str, str]]:
    port, secret = free_ports(host, 1)[0], secrets.token_hex(16)
    with (folder / "server.log").open("w") as log:
        command = [sys.executable, "-m", "tests.s3_server", str(port), host]
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)
        try:
            for _ in range(600):
                assert server.poll() is None, "the S3 server ended"
                if is_open(host, port):
                    break
                time.sleep(0.05)
            yield _environment(f"http://{host}:{port}", "tester", secret)
        finally:
            server.kill()
            server.wait()


@contextmanager
def _real(folder: Path, host: str) -> Iterator[dict[str, str]]:
    command = [sys.executable, "-m", "tests.real_s3", KIND, str(folder), host]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        assert server.stdout is not None
        said = server.stdout.readline()  # leaving the block ends its standard input, and so the server
        assert said, f"no {KIND}: see {folder}"
        access = json.loads(said)
        yield _environment(access["endpoint"], access["access_key"], access["secret_key"])


def _environment(endpoint: str, key: str, secret: str) -> dict[str, str]:
    return {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}
