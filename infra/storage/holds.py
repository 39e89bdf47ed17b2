"""Holds: a run says which datasets of a store it uses, so that pruning leaves them.

A run writes its hold first and reads the list of condemned datasets afterwards; a pruning writes that list first and
reads the holds afterwards. So at least one of the two sees the other: either the dataset stays, or the run waits until
the pruning has ended and then finds the dataset gone.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.process.heartbeat import GRACE_SECONDS, Heartbeat, is_dead, sign, signature
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.lock import exclusive

FOLDER = ".holds"
CONDEMNED = ".condemned.json"
"""File of a store: the datasets that a pruning in progress is about to remove."""
PRUNING = "pruning"
"""Name whose lock a pruning has, next to the datasets."""


class Hold:
    """The hold of one run.

    Args:
        root: of the store.
        name: that no other run has.
    """

    def __init__(self, root: Location, name: str):
        self._root, self._name = root, name
        self._marks = signature()
        self._held: set[str] = set()
        self._turn = threading.Lock()

    def add(self, datasets: Iterable[str]) -> None:
        """Hold further datasets, by `<stage>/<digest>`; waits for a pruning that is about to remove one of them."""
        with self._turn:
            new = set(datasets) - self._held
            if not new:
                return
            self._held |= new
            self._write()
        if new & read_condemned(self._root):
            with exclusive(self._root.join(PRUNING)):
                self._root.join(CONDEMNED).delete()  # of a pruning that was killed

    def renew(self) -> None:
        """Show that the run lives."""
        with self._turn:
            self._marks |= sign()
            self._write()

    def end(self) -> None:
        """Let all of them go."""
        self._root.join(FOLDER, f"{self._name}.json").delete()

    def _write(self) -> None:
        self._root.join(FOLDER).make()
        text = json.dumps({"marks": self._marks, "datasets": sorted(self._held)})
        self._root.join(FOLDER, f"{self._name}.json").write_atomic(text)


@contextmanager
def holding(root: Location, name: str) -> Iterator[Hold]:
    """A hold for the time of a block."""
    hold = Hold(root, name)
    heart = Heartbeat(hold.renew)
    try:
        yield hold
    finally:
        heart.stop()
        with contextlib.suppress(Exception):  # of a store that does not answer: the hold of a dead run holds nothing
            hold.end()


def held_datasets(root: Location) -> set[str]:
    """Datasets that living runs hold, by `<stage>/<digest>`. Holds of dead ones are removed.

    Raises:
        UserError: a hold that was written a moment ago cannot be read.
    """
    found: set[str] = set()
    for name, state in root.join(FOLDER).entries().items():
        place = root.join(FOLDER, name)
        if state is None or not name.endswith(".json"):
            continue
        try:
            document = json.loads(place.read_text())
            marks, datasets = dict(document["marks"]), [str(each) for each in document["datasets"]]
        except FileNotFoundError:
            continue
        except (ValueError, KeyError, TypeError):
            if time.time() - state.written_s < GRACE_SECONDS:
                raise UserError("the hold of a run cannot be read, so nothing is removed", where=place.uri,
                                remedy="Delete it if no such run is in progress") from None  # fmt: skip
            marks, datasets = {}, []
        if not marks or is_dead(marks):
            place.delete()
        else:
            found.update(datasets)
    return found


def read_condemned(root: Location) -> set[str]:
    """Datasets that a pruning is about to remove, by `<stage>/<digest>`; empty where none is in progress."""
    try:
        return {str(each) for each in json.loads(root.join(CONDEMNED).read_text())}
    except (FileNotFoundError, ValueError, TypeError):
        return set()


@contextmanager
def condemning(root: Location) -> Iterator[Location]:
    """The right to prune a store, which one process has at a time; yields the place of the list of the condemned.

    Raises:
        UserError: another process prunes it.
    """

    def busy() -> None:
        raise UserError("another process prunes this store", where=root.uri, remedy="Wait until it has ended")

    with exclusive(root.join(PRUNING), on_wait=busy):
        place = root.join(CONDEMNED)
        try:
            yield place
        finally:
            place.delete()
