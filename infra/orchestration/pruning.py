"""Pruning: removes from store, MLflow and cluster what no record that is kept refers to.

| always stays | because |
| --- | --- |
| what a living run holds or has recorded | it uses it |
| versions with an alias, the version that a rollback returns to, what a hold names, and their runs | people use them |
| the last finished run of each deployment | the next one is compared with it |
| what a deployment on Prefect's server names | its next run reads it |
| what was written within the last hour | a stage that a person started may use it |

Each step can be repeated: a pruning that was killed leaves whole datasets and marked ones, which the next removes.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.profile import Profile
from superworkflow.infra.contract.resources import format_bytes
from superworkflow.infra.launch.kubernetes.job_pruning import OldObjects, old_objects, remove_objects
from superworkflow.infra.storage.holds import condemning, held_datasets
from superworkflow.infra.storage.pruning import (
    Inventory,
    Kept,
    NotRemoved,
    inventory,
    remove_dataset,
    remove_source,
    total,
)
from superworkflow.infra.storage.store import Store
from superworkflow.infra.tracking.pruning import Keep, RecordPruner, References
from superworkflow.infra.tracking.records import DIGEST_LENGTH

T = TypeVar("T")

RECENT_S = 3600.0
"""Age in seconds below which nothing is removed."""


@dataclass
class Pruning:
    """Everything that a pruning removes, with sizes.

    Args:
        inventory: of the store before.
        references: of the records that stay.
        datasets: that go, complete ones.
        attempts: unfinished ones that go, with their checkpoints.
        sources: copies that go.
        runs_bytes: bytes of the artifacts of the runs that go.
        versions_bytes: bytes of the versions of models that go, beyond those of the datasets.
        objects: of the cluster that go.
        notes: what was left, and why.
    """

    inventory: Inventory
    references: References
    datasets: list[Kept] = field(default_factory=list)
    attempts: list[Kept] = field(default_factory=list)
    sources: list[Kept] = field(default_factory=list)
    runs_bytes: int = 0
    versions_bytes: int = 0
    objects: OldObjects = field(default_factory=OldObjects)
    notes: list[str] = field(default_factory=list)

    @property
    def rows(self) -> list[tuple[str, int, int]]:
        """Kind, number and bytes of all that goes."""
        refs = self.references
        return [
            ("datasets", len(self.datasets), total(self.datasets)),
            ("unfinished datasets and checkpoints", len(self.attempts), total(self.attempts)),
            ("copies of sources", len(self.sources), total(self.sources)),
            ("versions of models", len(refs.old_versions), self.versions_bytes),
            ("runs in MLflow, with artifacts", len(refs.old_runs), self.runs_bytes),
            ("Jobs on Kubernetes", len(self.objects.jobs), 0),
            ("Secrets without a Job", len(self.objects.secrets), 0),
        ]

    @property
    def bytes(self) -> int:
        return sum(size for _, _, size in self.rows)

    def document(self) -> dict[str, object]:
        """As JSON."""
        gone = [{"kind": kind, "number": number, "bytes": size} for kind, number, size in self.rows]
        names = [each.name for each in (*self.datasets, *self.attempts)]
        return {
            "store_bytes": self.inventory.bytes, "removed_bytes": self.bytes, "removed": gone, "datasets": names,
            "kept": {"datasets": len(self.inventory.datasets) - len(names), "runs": len(self.references.runs),
                     "versions": self.references.versions}, "notes": self.notes,
        }  # fmt: skip

    def __str__(self) -> str:
        parts = [f"{number} {kind}" for kind, number, _ in self.rows if number]
        return f"{', '.join(parts) or 'nothing'}: {format_bytes(self.bytes)} of {format_bytes(self.inventory.bytes)}"


class Pruner:
    """Prunes one store and the records of its runs.

    Args:
        store: the datasets.
        tracking_uri: of the records.
        keep: what stays.
        profile: whose cluster is pruned as well, if its stages run on one.
        recent_s: age in seconds below which nothing is removed.
    """

    def __init__(
        self, store: Store, tracking_uri: str, keep: Keep, profile: Profile | None = None, recent_s: float = RECENT_S
    ):
        self._store, self._keep, self._recent_s = store, keep, recent_s
        self._profile = profile if profile is not None and profile.launcher == "kubernetes" else None
        self._records = RecordPruner(tracking_uri, store.uri)

    def look(self) -> Pruning:
        """Everything that would go now.

        Raises:
            UserError: the records are of other stores.
        """
        held = held_datasets(self._store.root)  # before the records: a run records all before it lets go
        references = self._records.references(self._keep)
        found = Pruning(inventory(self._store), references)
        used = references.digests | {name.rsplit("/", 1)[-1] for name in held} | self._of_deployments()
        old = time.time() - self._recent_s
        unused = [each for each in found.inventory.datasets.values() if each.digest not in used]
        for each in unused:
            if each.written_s < old:
                (found.datasets if each.complete else found.attempts).append(each)
        if young := len(unused) - len(found.datasets) - len(found.attempts):
            found.notes.append(f"{young} datasets that nothing refers to, since they were written within the last hour")
        for each in found.inventory.sources.values():
            is_code = all(path.endswith(".py") for path in each.files)  # a deployment may name it anywhere
            if each.name[:DIGEST_LENGTH] not in used and each.written_s < old and not is_code:
                found.sources.append(each)
        if found.datasets or found.attempts or found.sources:
            self._check_records(found)
        with self._records.session():
            found.runs_bytes = sum(map(self._records.run_bytes, references.old_runs))
            found.versions_bytes = sum(map(self._records.version_bytes, references.old_versions))
        if self._profile is not None:
            from superworkflow.infra.launch.kubernetes.job_admin import with_cluster

            before = datetime.fromtimestamp(time.time() - max(self._keep.seconds, self._recent_s), UTC)
            found.objects = with_cluster(self._profile.kubernetes, lambda api: old_objects(api, before, used))
            found.notes += filter(None, [found.objects.note])
        return found

    def _check_records(self, found: Pruning) -> None:
        """Refuse records of other stores: those of none of these datasets do not show which of them are in use."""
        digests = {each.digest for each in found.inventory.datasets.values()}
        digests |= {each.name[:DIGEST_LENGTH] for each in found.inventory.sources.values()}
        if not self._records.mention(digests, found.references):
            raise UserError(
                "no run in these records has used this store, so they do not show what to keep",
                where=self._records.uri, value=self._store.uri,
                remedy="Name the server with the records of its runs in MLFLOW_TRACKING_URI or "
                "--servers; if all had --no-tracking, delete its folders yourself",
            )  # fmt: skip

    def remove(
        self, log: Callable[[str], None] = lambda text: None, seen: Callable[[Pruning], None] | None = None
    ) -> Pruning:
        """Look, and remove.

        Args:
            log: receives a line for each kind.
            seen: receives what was found before anything is removed.

        Raises:
            UserError: another process prunes this store, or the records are of other stores.
        """
        began = time.time()
        with condemning(self._store.root) as place:
            found = self.look()
            if seen is not None:
                seen(found)
            condemned = [*found.datasets, *found.attempts]
            place.write_atomic(json.dumps([each.name for each in condemned]))
            # From here on a run that wants one of them waits. Those that began before are seen now.
            held = held_datasets(self._store.root)
            digests = {name.rsplit("/", 1)[-1] for name in held} | self._records.used_since(
                began - 60, found.references.old_runs
            )
            for kept in (found.datasets, found.attempts):
                kept[:] = [each for each in kept if each.digest not in digests]
            found.sources = [each for each in found.sources if each.name[:DIGEST_LENGTH] not in digests]
            place.write_atomic(json.dumps([each.name for each in (*found.datasets, *found.attempts)]))
            with self._records.session():
                left = self._each(found, "version", found.references.old_versions, self._records.remove_version, log)
                found.versions_bytes -= sum(map(self._records.version_bytes, left))
                self._each(found, "unfinished dataset", found.attempts, self._remove, log)
                self._each(found, "dataset", found.datasets, self._remove, log)
                self._each(found, "source", found.sources, lambda each: remove_source(self._store, each.name), log)
                stay = self._each(found, "run", found.references.old_runs, self._records.remove_run, log)
                found.runs_bytes -= sum(map(self._records.run_bytes, stay))
        if self._profile is not None and (found.objects.jobs or found.objects.secrets):
            from superworkflow.infra.launch.kubernetes.job_admin import with_cluster

            with_cluster(self._profile.kubernetes, lambda api: remove_objects(api, found.objects))
        if found.references.old_runs and not self._records.forgets:
            found.notes.append("MLflow's server keeps the rows of removed runs until `mlflow gc` runs there")
        return found

    def _remove(self, each: Kept) -> None:
        remove_dataset(self._store, each.name)
        ledger = self._store.root.join(".jobs", *each.name.split("/"))
        names = set(ledger.walk_files())
        if names and all(f"{name.removesuffix('.json')}.booked" in names for name in names if name.endswith(".json")):
            ledger.delete(recursive=True)

    @staticmethod
    def _each(
        found: Pruning, kind: str, things: list[T], work: Callable[[T], None], log: Callable[[str], None]
    ) -> list[T]:
        """Remove one after another; what cannot be removed is noted, leaves the list, and is returned."""
        stays = []
        for each in list(things):
            try:
                work(each)
            except NotRemoved as error:
                found.notes.append(str(error))
                things.remove(each)
                stays.append(each)
        if number := len(things):
            log(f"{number} {kind}{'s' if number > 1 else ''} removed")
        return stays

    def _of_deployments(self) -> set[str]:
        """Digests that deployments on Prefect's server name, such as of a dataset that is a source."""
        from superworkflow.infra.orchestration.schedules import deployment_texts

        return {digest[:DIGEST_LENGTH] for text in deployment_texts() for digest in _DIGEST.findall(text)}


_DIGEST = re.compile(r"\b[0-9a-f]{32}(?:[0-9a-f]{32})?\b")
