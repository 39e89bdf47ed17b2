"""Other formats of a result, and tables of it in other places, written on request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.import_strings import imported
from superworkflow.infra.base.suggest import nearest
from superworkflow.infra.contract.superworkflow import Superworkflow
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.replacement import replacing
from superworkflow.infra.storage.table_files import matching
from superworkflow.infra.storage.warehouse.address import TableAddress
from superworkflow.infra.storage.warehouse.sinks import check_sink, write_table
from superworkflow.infra.tracking.records import RunRecord


def check_formats(superworkflow: Superworkflow, names: Iterable[str]) -> None:
    """Check formats, and outputs with the address of a table that they are to be written to: `OUTPUT=ADDRESS`.

    Raises:
        UserError: the superworkflow has no such format or output, or no table can be written there.
    """
    for name in names:
        output, mark, address = name.partition("=")
        if mark:
            check_output(superworkflow, output)
            check_sink(address)
        elif name not in superworkflow.exports:
            valid = list(superworkflow.exports)
            raise UserError("no such export format", where="--export", value=name, remedy=nearest(name, valid))


def check_output(superworkflow: Superworkflow, name: str) -> None:
    """Refuse what is no output, or no table.

    Raises:
        UserError: names it.
    """
    if name not in superworkflow.outputs:
        raise UserError("no such output", where=superworkflow.name, value=name,
                        remedy=nearest(name, list(superworkflow.outputs)))  # fmt: skip
    if not superworkflow.outputs[name][1].endswith(".parquet"):
        tables = [each for each, (_, listed) in superworkflow.outputs.items() if listed.endswith(".parquet")]
        raise UserError("is no table", where=superworkflow.name, value=name,
                        remedy=f"Tables are: {', '.join(tables) or 'none'}")  # fmt: skip


def write_output(superworkflow: Superworkflow, name: str, made: Mapping[str, str], address: str) -> int:
    """Write an output to a table elsewhere (`infra.storage.warehouse.sinks`); the number of rows.

    Args:
        superworkflow: whose output.
        name: of the output.
        made: URIs of a run's datasets, by node.
        address: of the table.

    Raises:
        UserError: it is no table, the run has not made it, or it cannot be written.
    """
    import pyarrow as pa

    check_output(superworkflow, name)
    found = superworkflow.output(name, made)
    if found is None:
        raise UserError("this run has not made the output", where=superworkflow.name, value=name,
                        remedy="Choose a run that is complete: `superworkflow runs` lists them")  # fmt: skip
    dataset = Dataset.open(made[found[0]])
    files = matching(dataset.files(), found[1])
    opened = (dataset.parquet(each) for each in files)
    try:
        return write_table((pa.Table.from_batches([rows]) for each in opened for rows in each.iter_batches()), address)
    finally:
        dataset.close()


def output_uri(dataset: Dataset, name: str) -> str | None:
    """URI of what a superworkflow's `outputs` name in a dataset, or None when it has nothing of that name.

    Args:
        dataset: that of the node.
        name: of a file, of a folder (`shards/`), or a pattern such as `part-*.npy`; see
            `infra.storage.table_files.find_files`.
    """
    return f"{dataset.uri}/{name}" if matching(dataset.files(), name) else None


def export(superworkflow: Superworkflow, name: str, run: RunRecord) -> str:
    """Write one format into the store, as `<store>/exports/<digest>.<ending>`; returns its URI.

    What the format's function writes is a file or a folder. A folder in a bucket is there file by file. For
    `OUTPUT=ADDRESS`, the output is written to the address.
    """
    output, mark, address = name.partition("=")
    if mark:
        write_output(superworkflow, output, {each.name: each.output for each in run.stages}, address)
        found = TableAddress.parse(address)
        return found.shown if found is not None else Location.of(address).uri
    definition = superworkflow.exports[name]
    record = next(record for record in run.stages if record.name == definition.node)
    target = Location.of(run.store).join("exports", f"{record.digest}.{definition.filename}")
    dataset = Dataset.open(record.output)
    with replacing(target) as path:
        try:
            imported(definition.function)(dataset, path)
        finally:
            dataset.close()
    return target.uri


def absolute(text: str) -> str:
    """`OUTPUT=ADDRESS` with the absolute path of a file, for processes in other folders; a format as it is."""
    output, mark, address = text.partition("=")
    if not mark or TableAddress.parse(address) is not None:
        return text
    return f"{output}={Location.of(address).uri}"


def export_all(superworkflow: Superworkflow, names: Iterable[str], run: RunRecord) -> None:
    """Write formats, and outputs to their addresses; the record names where they are.

    Raises:
        UserError: one cannot be written.
    """
    for name in names:
        run.outputs[f"export_{name.partition('=')[0]}"] = export(superworkflow, name, run)
