"""`superworkflow export`: a table of a recorded run, written to a database or a file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from superworkflow.commands.runs import add_history_arguments
from superworkflow.flows import load_superworkflow
from superworkflow.infra.base.extras import require_extra
from superworkflow.infra.base.masking import masked


def add_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    """Declare the command's arguments."""
    parser.add_argument("run", metavar="RUN", help="ID, prefix of an ID, or name")
    parser.add_argument("output", metavar="OUTPUT", help="name of an output of its superworkflow")
    parser.add_argument(
        "address", metavar="ADDRESS",
        help="postgresql://…?table=NAME, whose rows are updated by their key, or a path or URI that ends in .parquet, "
        ".lance or .faiss",
    )  # fmt: skip
    parser.add_argument("--code", metavar="FILE", help="file of the superworkflow, if it is your own")
    add_history_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Write the table."""
    require_extra("flow")
    from superworkflow.infra.orchestration.export import write_output
    from superworkflow.infra.tracking.run_reader import RunReader
    from superworkflow.infra.tracking.uris import default_tracking_uri

    reader = RunReader(default_tracking_uri(options.store))
    found = reader.named(options.run)
    superworkflow = load_superworkflow(options.code or found.superworkflow)
    made = {stage.name: each.uri for stage in reader.stages(found) for each in stage.data if each.role == "output"}
    rows = write_output(superworkflow, options.output, made, options.address)
    if options.json:
        print(json.dumps({"run": found.run_id, "output": options.output, "rows": rows}))
    else:
        print(f"{rows:,} rows of {options.output} of {found.name} are in {masked(options.address)}")
    return 0
