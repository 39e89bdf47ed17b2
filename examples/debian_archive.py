"""Debian's archive as tables with a schema: packages, sources, maintainers, tags, and optionally files.

They are read from apt's lists, by default in `/var/lib/apt/lists`: `*_Packages` of each suite and, if present,
`*_Sources` (`deb-src` in apt's sources) and `*_Contents-*` (fetched by apt if apt-file is installed), plain or
compressed. If several lists have a package, fields come from the first list by name that has them, since lists of
security updates contain no tags.

| set | what it is | features |
| --- | --- | --- |
| `package` | a binary package | `words` of its short description, `section` |
| `source`, `maintainer`, `tag` | source package, maintainer, debtag | `words` of the name |
| `file` | a path in packages; with Contents | |
| `depends`, `recommends` | package → each alternative that is a package | |
| `built_from`, `maintained_by`, `tagged` | package → source, maintainer, tag | |
| `build_depends` | source → package; with Sources | |
| `contains` | package → file; with Contents | |

Each of these edge sets has a reverse. `words` counts words in 512 buckets, by their CRC-32. All packages with a section
are seeds: 60% for training and 20% each for validation and test, by a hash of the name.

    python examples/debian_archive.py --out debian
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import lzma
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.graph.schema import SCHEMA_FILE, schema_text
from superworkflow.tasks.lib.importers.plain_tables import EdgeTable, plain_schema

LISTS = "/var/lib/apt/lists"
PLACES = 512
"""Buckets of words."""
SPEC_FILE, SEEDS_FILE = "spec.pbtxt", "seeds.parquet"
_HOPS = (
    ("tags", "seed", "tagged", 16), ("needs", "seed", "depends", 8), ("users", "seed", "needed_by", 8),
    ("source", "seed", "built_from", 1), ("siblings", "source", "builds", 8),
    ("maintainer", "seed", "maintained_by", 1),
)  # fmt: skip
"""Ops of the spec: name, input, edge set and sample size."""
_NAMED = {"built_from": "source", "maintained_by": "maintainer", "tagged": "tag"}
"""Node sets made of the values that packages name, by the edge set to them."""
_REVERSED = {
    "depends": "needed_by", "recommends": "recommended_by", "built_from": "builds", "maintained_by": "maintains",
    "tagged": "tags", "build_depends": "needed_to_build", "contains": "contained_in",
}  # fmt: skip
_FIELDS = (
    "Package", "Source", "Maintainer", "Section", "Depends", "Pre-Depends", "Recommends", "Suggests", "Description",
    "Tag", "Build-Depends", "Build-Depends-Indep",
)  # fmt: skip
_ROWS = 1 << 14
_WORD, _PACKAGE = re.compile(r"[a-z0-9+#]{2,}"), re.compile(r"[a-z0-9][a-z0-9+.-]+")
_SPLITS = ((0.6, "train"), (0.8, "validation"), (1.0, "test"))

Record = Mapping[str, str]
Pairs = Iterable[tuple[str, str]]


def convert_apt(lists: Path, out: Path) -> list[str]:
    """Write `schema.pbtxt`, the tables, a table of seeds and a spec.

    Args:
        lists: folder of apt's lists.
        out: folder to write to; created if missing.

    Returns:
        Names of the files that were written.

    Raises:
        UserError: no list of packages, or one cannot be read.
    """
    packages = _records(lists, "_Packages")
    if not packages:
        raise UserError("the folder has no list of packages", where=str(lists),
                        remedy="Fetch the lists with apt-get update, or give another folder")  # fmt: skip
    sources, contents = _records(lists, "_Sources"), _lists(lists, "_Contents-[a-z0-9-]+")
    out.mkdir(parents=True, exist_ok=True)
    edges: dict[str, tuple[str, str, Pairs]] = {
        "depends": ("package", "package", _relations(packages, ("Depends", "Pre-Depends"), packages)),
        "recommends": ("package", "package", _relations(packages, ("Recommends", "Suggests"), packages)),
        "built_from": ("package", "source", _values(packages, "Source")),
        "maintained_by": ("package", "maintainer", _values(packages, "Maintainer")),
        "tagged": ("package", "tag", _values(packages, "Tag")),
    }
    names = {target: dict.fromkeys(sorted({value for _, value in edges[name][2]})) for name, target in _NAMED.items()}
    names["source"] |= dict.fromkeys(sources)
    if sources:
        build = _relations(sources, ("Build-Depends", "Build-Depends-Indep"), packages)
        edges["build_depends"] = ("source", "package", build)
    if contents:
        edges["contains"] = ("package", "file", _contained(contents, packages))
    written = [_nodes(out, "package", packages, [each.get("Description", "") for each in packages.values()],
                      [each.get("Section", "") for each in packages.values()])]  # fmt: skip
    written += [_nodes(out, name, members, list(members)) for name, members in names.items()]
    nodes = {Path(file).stem: file for file in written}
    tables = [
        EdgeTable(source, name, target, _edges(out, name, pairs)) for name, (source, target, pairs) in edges.items()
    ]
    schema = plain_schema(out, nodes, tables, {_REVERSED[name]: name for name in edges})
    (out / SCHEMA_FILE).write_text(schema_text(schema))
    seeds = [name for name, each in packages.items() if each.get("Section")]
    pq.write_table(pa.table({"id": seeds, "split": [_split(name) for name in seeds]}), out / SEEDS_FILE)
    (out / SPEC_FILE).write_text(_spec())
    return [SCHEMA_FILE, *written, *(each.file for each in tables), SEEDS_FILE, SPEC_FILE]


def _lists(folder: Path, kind: str) -> list[Path]:
    """Lists of a kind, by name."""
    wanted = re.compile(rf".*{kind}(\.(gz|xz|lz4|zst))?")
    return sorted(path for path in folder.glob("*") if wanted.fullmatch(path.name) and path.is_file())


def _lines(path: Path) -> Iterator[str]:
    try:
        with _opened(path) as stream:
            for line in stream:
                yield line.decode("utf-8", "replace").rstrip("\n")
    except (OSError, EOFError, lzma.LZMAError, zlib.error, pa.ArrowException) as error:
        raise UserError(f"the list cannot be read: {error}", where=str(path),
                        remedy="Fetch it again with apt-get update") from None  # fmt: skip


def _opened(path: Path) -> Any:
    """The list's bytes, as lines."""
    if path.suffix == ".gz":
        return gzip.open(path)
    if path.suffix == ".xz":
        return lzma.open(path)
    if path.suffix in (".lz4", ".zst"):
        packed = pa.input_stream(str(path), compression={".lz4": "lz4", ".zst": "zstd"}[path.suffix])
        return io.BufferedReader(packed, 1 << 20)
    return path.open("rb")


def _records(folder: Path, kind: str) -> dict[str, Record]:
    """Fields of all packages, by name."""
    found: dict[str, Record] = {}
    for path in _lists(folder, kind):
        record: dict[str, str] = {}
        field = ""
        for line in _lines(path):
            if line[:1] in (" ", "\t"):
                if field and field != "Description":  # only its first line, the short description, is kept
                    record[field] += line
                continue
            if not line:
                _add(found, record)
                record = {}
            name, _, value = line.partition(":")
            field = name if name in _FIELDS else ""
            if field:
                record[field] = value.strip()
        _add(found, record)
    return found


def _add(found: dict[str, Record], record: Record) -> None:
    """Add a package, or fill the fields that an earlier list lacks."""
    if name := record.get("Package"):
        found[name] = {**record, **found.get(name, {})}


def _relations(records: Mapping[str, Record], fields: Sequence[str], packages: Mapping[str, Record]) -> Pairs:
    """Pairs of a record and a package that its fields name: all alternatives, without versions."""
    for name, record in records.items():
        parts = ",".join(record.get(field, "") for field in fields).replace("|", ",").split(",")
        matches = (_PACKAGE.match(part.strip()) for part in parts)
        yield from ((name, each) for each in dict.fromkeys(m[0] for m in matches if m) if each in packages)


def _values(records: Mapping[str, Record], field: str) -> list[tuple[str, str]]:
    """Values of a field: a maintainer, tags, or a source, by default of the package's own name."""
    found = []
    for name, record in records.items():
        given = " ".join(record.get(field, "").split())
        if field == "Tag":
            found += [(name, tag) for tag in dict.fromkeys(given.replace(",", " ").split())]
        elif field == "Source":
            found.append((name, given.partition(" ")[0] or name))
        elif given:
            found.append((name, given))
    return found


def _contained(lists: Sequence[Path], packages: Mapping[str, Record]) -> Pairs:
    """Pairs of a package and its file; a line has a path, blanks, and names such as `section/package`."""
    for path in lists:
        for line in _lines(path):
            file, _, owners = line.rstrip().rpartition(" ")
            for owner in owners.split(","):
                if file and (name := owner.rpartition("/")[2]) in packages:
                    yield name, file.rstrip()


def _nodes(out: Path, name: str, ids: Iterable[str], texts: Sequence[str], sections: Sequence[str] = ()) -> str:
    """Write a table of nodes with the words of their texts."""
    members = list(ids)
    kinds = {"id": pa.string(), "words": pa.list_(pa.float32(), PLACES)} | (
        {"section": pa.string()} if sections else {}
    )
    with pq.ParquetWriter(out / f"{name}.parquet", pa.schema(kinds), compression="zstd") as writer:
        for first in range(0, len(members), _ROWS):
            part = slice(first, first + _ROWS)
            columns = [pa.array(members[part]), _words(texts[part])]
            columns += [pa.array(sections[part])] if sections else []
            writer.write_table(pa.table(columns, names=list(kinds)))
    return f"{name}.parquet"


def _words(texts: Sequence[str]) -> pa.Array:
    counts = np.zeros((len(texts), PLACES), np.float32)
    for row, text in enumerate(texts):
        for word in _WORD.findall(text.lower()):
            counts[row, zlib.crc32(word.encode()) % PLACES] += 1
    return pa.FixedSizeListArray.from_arrays(pa.array(counts.reshape(-1)), PLACES)


def _edges(out: Path, name: str, pairs: Pairs) -> str:
    """Write a table of edges; they need not fit into memory."""
    kinds = {"source": pa.string(), "target": pa.string()}
    with pq.ParquetWriter(out / f"{name}.parquet", pa.schema(kinds), compression="zstd") as writer:
        waiting: list[tuple[str, str]] = []

        def write() -> None:
            ends = list(zip(*waiting, strict=True)) or [(), ()]
            writer.write_table(pa.table([pa.array(end, pa.string()) for end in ends], names=list(kinds)))
            waiting.clear()

        for pair in pairs:
            waiting.append(pair)
            if len(waiting) == _ROWS:
                write()
        write()
    return f"{name}.parquet"


def _split(name: str) -> str:
    place = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest()) / 2**64
    return next(split for end, split in _SPLITS if place < end)


def _spec() -> str:
    ops = [
        f'sampling_ops {{\n  op_name: "{name}" input_op_names: "{given}" edge_set_name: "{edge_set}" '
        f"sample_size: {size} strategy: RANDOM_UNIFORM\n}}\n"
        for name, given, edge_set, size in _HOPS
    ]
    return 'seed_op { op_name: "seed" node_set_name: "package" }\n' + "".join(ops)


def main(given: Sequence[str] | None = None) -> int:
    """Write the tables and print the names of the files."""
    parser = argparse.ArgumentParser(description="Write the lists of apt as tables with a schema.")
    parser.add_argument("--lists", type=Path, default=Path(LISTS), metavar="FOLDER", help="default: %(default)s")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="folder to write to; created if missing"
    )
    options = parser.parse_args(given)
    for name in convert_apt(options.lists, options.out):
        print(options.out / name)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(str(error))
