"""Lakehouse tables, whose versions are kept: Delta Lake by `deltalake`, Iceberg by `pyiceberg` and its catalogs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.extras import needs_package
from superworkflow.infra.storage.warehouse.address import TableAddress

if TYPE_CHECKING:
    import pyarrow as pa


class LakeTable:
    """One version of a table.

    Args:
        address: of the table, and of the version if not the newest.

    Raises:
        UserError: a package is missing, or there is no such table or version.
    """

    def __init__(self, address: TableAddress):
        try:
            opened = _delta(address) if address.scheme == "delta" else _iceberg(address)
        except UserError:
            raise
        except Exception as error:  # of the table's library; its own words say what
            words = next(iter(str(error).splitlines()), type(error).__name__)
            remedy = "Check the address, the version, and the catalog or credentials"
            raise UserError(f"cannot be read: {words}", where=address.shown, remedy=remedy) from error
        self._batches, self.fingerprint, self.version = opened

    def read(self) -> Iterator[pa.Table]:
        """The rows, in tables of one schema, at least one."""
        import pyarrow as pa

        schema, batches = self._batches
        yield pa.Table.from_batches([], schema)
        for batch in batches:
            yield pa.Table.from_batches([batch]).cast(schema)


def _delta(address: TableAddress) -> tuple[Any, str, str]:
    try:
        from deltalake import DeltaTable
    except ModuleNotFoundError:
        raise needs_package("deltalake") from None
    table = DeltaTable(address.base)
    if (version := address.version()) is not None:
        if isinstance(version, datetime):  # the library takes the first version for any time before it
            first = min((commit["timestamp"] for commit in table.history() if "timestamp" in commit), default=0)
            if version.timestamp() * 1000 < first:
                raise _no_version(address)
        table.load_as_version(version)
    rows = table.to_pyarrow_dataset()
    return (rows.schema, rows.to_batches()), f"{table.metadata().id}-{table.version()}", str(table.version())


def _iceberg(address: TableAddress) -> tuple[Any, str, str]:
    try:
        from pyiceberg.catalog import load_catalog
    except ModuleNotFoundError:
        raise needs_package("pyiceberg") from None
    catalog, _, name = address.base.partition("/")
    table = load_catalog(catalog).load_table(name)
    version, found = address.version(), table.current_snapshot()
    if isinstance(version, datetime):
        found = table.snapshot_as_of_timestamp(int(version.timestamp() * 1000))
    elif version is not None:
        found = table.snapshot_by_id(version)
    if found is None:
        raise _no_version(address)
    stream = table.scan(snapshot_id=found.snapshot_id).to_arrow_batch_reader()
    return (stream.schema, stream), f"{table.metadata.table_uuid}-{found.snapshot_id}", str(found.snapshot_id)


def _no_version(address: TableAddress) -> UserError:
    return UserError("has no such version, or none yet", where=address.shown, value=str(address.version() or ""),
                     remedy="Give the number of a version, or a later time")  # fmt: skip
