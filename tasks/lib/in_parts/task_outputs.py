"""Outputs of tasks on executors for later ones: in the folder of the dataset that is made, or on their own disk."""

from __future__ import annotations

import fcntl
import io
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from superworkflow.infra.engines.shared_dataset import member_folder
from superworkflow.infra.engines.task_writer import TaskWriter
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.manifest import PARTS_FOLDER

_LEAST_MAPPED = 4096


@dataclass(frozen=True)
class TaskOutputs:
    """Outputs of tasks for later tasks, below the folder `output` (URI) of the dataset that is made."""

    output: str

    def write(self, name: str, values: NDArray[Any] | pa.Table | pa.RecordBatch) -> None:
        """Leave an array, as its bytes, or a table."""
        with TaskWriter(self.output).file(f"{PARTS_FOLDER}/{name}") as path:
            if isinstance(values, np.ndarray):
                path.write_bytes(np.ascontiguousarray(values).data)
            else:
                with pa.ipc.new_file(path, values.schema) as stream:
                    stream.write(values)

    def location(self, name: str) -> Location:
        """Location of the outputs."""
        return Location.of(self.output).join(PARTS_FOLDER, name)

    def array(self, name: str, dtype: Any) -> NDArray[Any]:
        """An array that was left."""
        with self.location(name).open() as stream:
            return np.frombuffer(bytearray(stream.read()), dtype)

    def table(self, name: str) -> pa.Table:
        """A table that was left."""
        with self.location(name).open() as stream, pa.ipc.open_file(io.BytesIO(stream.read())) as file:
            return file.read_all()

    def remove(self, folder: str) -> None:
        """Remove what was left in a folder."""
        self.location(folder).delete(recursive=True)


def executor_folder(name: str) -> Path:
    """A folder of this name on the disk of a member, the first one that Spark gives it; an absolute path as it is."""
    own = os.environ.get("SPARK_EXECUTOR_DIRS", "").split(os.pathsep)  # as Spark's own cluster has them
    of_all = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    return Path(own[0] or of_all[0] or member_folder()) / name


def on_this_disk(place: Path, make: Callable[[], Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Arrays that the first process of this machine to ask makes, and all map from then on.

    Args:
        place: folder for them, the same for all processes of the machine and for nothing else.
        make: gives them by name.
    """
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not place.exists():
                unfinished = Path(tempfile.mkdtemp(dir=place.parent))
                for name, values in make().items():
                    np.save(unfinished / f"{name}.npy", values, allow_pickle=False)
                unfinished.rename(place)
    return {path.stem: _mapped(path) for path in place.glob("*.npy")}


def _mapped(path: Path) -> NDArray[Any]:
    values = np.asarray(np.load(path, mmap_mode="r" if path.stat().st_size > _LEAST_MAPPED else None))
    values.flags.writeable = False  # mapped or not: kernels are compiled for one of them
    return values
