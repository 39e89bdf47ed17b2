"""`superworkflow schema`: describe tables of nodes and edges, so that they can be read as one typed graph."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning
from superworkflow.tasks.lib.graph.schema import SCHEMA_FILE, schema_text
from superworkflow.tasks.lib.importers.ogb import convert_ogb
from superworkflow.tasks.lib.importers.plain_tables import EdgeTable, plain_schema


def add_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--nodes", action="append", default=[], metavar="SET=TABLE",
        help="a node set and its table, CSV or Parquet with a column id; also name@8.csv or a pattern",
    )  # fmt: skip
    parser.add_argument(
        "--edges", action="append", default=[], metavar="SET,SET,SET=TABLE",
        help="node set of the sources, name, node set of the targets, and a table with columns source and target",
    )  # fmt: skip
    parser.add_argument(
        "--reverse", action="append", default=[], metavar="NAME=SET", help="a set that has another one's the other way"
    )
    parser.add_argument("--ogb", type=Path, metavar="FOLDER", help="a raw folder of OGB; its tables are written anew")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER",
        help="where schema.pbtxt is written; paths of tables are absolute, or relative to it",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Write the schema; print the names of what was written."""
    if options.ogb is not None:
        if options.nodes or options.edges or options.reverse:
            raise UserError("tables are either given or made from a folder", where="--ogb", value=str(options.ogb),
                            remedy="Leave one of them out")  # fmt: skip
        for name in convert_ogb(options.ogb, options.out):
            print(options.out / name)
        return 0
    if not options.edges:
        raise UserError("a graph needs edges", where="--edges", remedy="Give --edges SOURCE,NAME,TARGET=TABLE")
    nodes = _pairs(options.nodes, "--nodes SET=TABLE")
    tables = []
    for text in options.edges:
        names, file = _pair(text, "--edges SET,SET,SET=TABLE")
        ends = names.split(",")
        if len(ends) != 3:
            raise UserError("three names are needed", where="--edges", value=text,
                            remedy="Write SOURCE,NAME,TARGET=TABLE")  # fmt: skip
        tables.append(EdgeTable(ends[0], ends[1], ends[2], file))
    schema = plain_schema(options.out, nodes, tables, _pairs(options.reverse, "--reverse NAME=SET"), _warn)
    file = options.out / SCHEMA_FILE
    options.out.mkdir(parents=True, exist_ok=True)
    file.write_text(schema_text(schema))
    print(file)
    return 0


def _warn(warning: InputWarning) -> None:
    print(f"warning: {warning}", file=sys.stderr)


def _pairs(texts: Sequence[str], form: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in (_pair(text, form) for text in texts):
        if name in found:
            raise UserError("two sets of one name", where=form.partition(" ")[0], value=name, remedy="Rename one")
        found[name] = value
    return found


def _pair(text: str, form: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise UserError("not of the right form", where=form.partition(" ")[0], value=text, remedy=f"Write {form}")
    return name, value
