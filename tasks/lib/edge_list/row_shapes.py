"""Shapes of rows that are no edges, recognised in the rows that detection reads, and refused by name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.edge_list.other_formats import by_networkx, has_leading_zero, is_number, refused

_LEAST_ROWS = 3
"""Fewest rows by whose shape a format is recognised."""
_WIDE = 20
"""Columns from which rows that mostly repeat one number are rows of a matrix, though not all of them were read."""
_IF_EDGES = "if its rows are edges"

Rows = Sequence[Sequence[str]]


def refuse_shape(rows: Rows, lines: Sequence[str], whole: bool, names: Sequence[str], where: str) -> None:
    """Refuse rows that are no edges by their shape: dicts of networkx, METIS, matrices, adjacency lists, SIF, triples.

    Args:
        rows: fields of the first rows, without a header.
        lines: text of the first lines of the data.
        whole: these are all rows.
        names: of the header; empty without one.
        where: name of the file.

    Raises:
        UserError: names the format and the command that converts the file.
    """
    path = repr(where)
    full = [line for line in lines if line.strip()]
    mark = "," if "," in full[0] else "\\t" if "\t" in full[0] else " "
    delimiter = "" if mark == " " else f", delimiter='{mark}'"
    dicts = re.compile(r"[^{]*[^\s{,][\s,]+\S*?[\s,]*\{('[^']*'\s*:.*)?\}\s*$")
    if full and all(dicts.match(line) for line in full):
        delimiter = ", delimiter=','" if "," in full[0].partition("{")[0] else ""
        raise by_networkx(
            "networkx's edge list, with a dict in each row", f"nx.read_edgelist({path}{delimiter})", where
        )
    if names:
        _refuse_named_matrix(rows, names, mark, where)
        if list(names) in map(list, rows):
            raise UserError(
                "the header occurs again among the rows, as in files that were joined", where=where,
                value=mark.replace("\\t", "\t").join(names), remedy="Remove it everywhere but in the first line",
            )  # fmt: skip
    if names or len(rows) < _LEAST_ROWS:
        return
    if _is_metis(rows, lines, whole):
        raise refused(
            "METIS format, whose row i lists the neighbours of node i", where,
            f"rows = [r.split() for r in open({path}) if r[0] != '%']",
            "h = rows[0] + ['000', '1'][len(rows[0]) - 2:]; f = h[2].zfill(3); step = 1 + (f[2] == '1')",
            "skip = (f[0] == '1') + (f[1] == '1') * int(h[3])",
            "open('edges.tsv', 'w').writelines(f'{u}\\t{v}\\n' for u, r in enumerate(rows[1:], 1) "
            "for v in r[skip::step] if u <= int(v))",
            to_keep=_IF_EDGES,
        )  # fmt: skip
    if _is_matrix(rows, whole):
        upper = "np.triu(m)" if _is_symmetric(rows) else "m"
        weight = "" if {field for row in rows for field in row} <= {"0", "1"} else "\\t{m[u, v]:g}"
        raise refused(
            "a matrix, with a row and a column for each node", where, "import numpy as np",
            f"m = np.loadtxt({path}{delimiter})",
            f"open('edges.tsv', 'w').writelines(f'{{u}}\\t{{v}}{weight}\\n' for u, v in np.argwhere({upper}))",
            to_keep=_IF_EDGES, kind="csv" if mark == "," else "whitespace",
        )  # fmt: skip
    if _is_sif(rows):
        raise refused(
            "SIF, Cytoscape's rows of a node, a relation and its neighbours", where,
            f"rows = [r.split() for r in open({path})]",
            "open('triples.tsv', 'w').writelines(f'{r[0]}\\t{r[1]}\\t{v}\\n' for r in rows for v in r[2:])",
            further=" Then set index.format=triples", to_keep=_IF_EDGES,
        )  # fmt: skip
    if _is_adjacency(rows):
        raise by_networkx("an adjacency list, each row a node and its neighbours",
                          f"nx.read_adjlist({path}{delimiter})", where, to_keep=_IF_EDGES)  # fmt: skip
    if _is_prose(rows):
        raise UserError(
            "the rows are lines of prose, not edges", where=where, value=full[0][:80],
            remedy="Give a file with a source and a target in each row",
        )  # fmt: skip
    if is_triples(rows):
        relations = sorted({row[1] for row in rows})
        raise UserError(
            "the rows are triples of head, relation and tail, not edges", where=where,
            value=f"relations {', '.join(relations[:3])}{', …' if len(relations) > 3 else ''}",
            remedy="Set index.format=triples for one edge between head and tail, without the relation, or name the "
            "columns with index.format=csv, tsv or whitespace",
        )  # fmt: skip


def refuse_sizes(rows: Rows, whole: bool, line: int, where: str) -> None:
    """Refuse a first row of sizes, such as the numbers of nodes and edges, which would be an edge.

    Args:
        rows: fields of the first rows of a file without a header.
        whole: these are all rows.
        line: number of the first row's line.
        where: name of the file.

    Raises:
        UserError: the first row has fewer or more fields than all others, or counts them.
    """
    first, rest = rows[0], rows[1:]
    if len(rest) < _LEAST_ROWS or len(first) > 4 or not all(field.isdecimal() for field in first):
        return
    sizes, widths = [int(field) for field in first], {len(row) for row in rest}
    nodes = {field for row in rest for field in row[:2]}
    if len(first) == 1:
        is_sizes = min(widths) >= 2
    elif widths == {len(first)}:
        counted = len(first) == 2 and whole and sizes[1] == len(rest)
        is_sizes = counted and sizes[0] >= len(nodes) and not set(first) <= nodes
    else:
        is_sizes = len(widths) == 1 and sizes[0] >= len(nodes) and sizes[-1] >= len(rest)
    if is_sizes:
        raise UserError(
            "the first row looks like a line of sizes, such as the numbers of nodes and edges",
            where=f"{where}, line {line}", value=" ".join(first),
            remedy="Remove the line, or begin it with #; if it is an edge, set index.format=whitespace, tsv or csv",
        )  # fmt: skip


def _refuse_named_matrix(rows: Rows, names: Sequence[str], mark: str, where: str) -> None:
    """Refuse a matrix whose header and first column name the nodes."""
    width = len(names)
    if width < 4 or len(rows) < _LEAST_ROWS or len(rows) > width - 1 or any(len(row) != width for row in rows):
        return
    if [row[0].strip() for row in rows] == list(names[1 : 1 + len(rows)]) and all(
        is_number(field) for row in rows for field in row[1:]
    ):
        separator = "\\s+" if mark == " " else mark
        plain = {field for row in rows for field in row[1:]} <= {"0", "1"}
        upper = "d.where(np.triu(np.ones(d.shape)) > 0, 0)" if _is_symmetric([row[1:] for row in rows]) else "d"
        raise refused(
            "a matrix, with a row and a column for each node", where, "import numpy as np, pandas as pd",
            f"d = pd.read_csv({where!r}, sep='{separator}', index_col=0)",
            f"s = {upper}.rename_axis(index='source', columns='target').stack()",
            f"s[s != 0].reset_index(name='weight').iloc[:, :{2 if plain else 3}].to_csv('edges.csv', index=False)",
        )  # fmt: skip


def _is_metis(rows: Rows, lines: Sequence[str], whole: bool) -> bool:
    """First row: nodes, edges, perhaps format and constraints; then a row of neighbours for each node, also empty."""
    if not 2 <= len(rows[0]) <= 4 or not all(field.isdecimal() for row in rows for field in row):
        return False
    nodes, edges, *form = map(int, rows[0])
    data = [line for line in lines if not line.lstrip().startswith("%")][1:]
    while len(data) > nodes and not data[-1].strip():
        data = data[:-1]
    if len({len(row) for row in rows[1:]}) < 2 and not (whole and len(data) == nodes and nodes > 2):
        return False
    if not form and any(int(field) > nodes or int(field) < 1 for row in rows[1:] for field in row):
        return False
    if not whole:
        return len({row[0] for row in rows}) > 1 and nodes > len(data) and not form and edges >= nodes // 2
    return len(data) == nodes and (bool(form) or sum(map(len, rows[1:])) == 2 * edges)


def _is_matrix(rows: Rows, whole: bool) -> bool:
    """Rows of numbers: as many as columns, and symmetric or of zeros and ones; or wide ones that repeat one number."""
    width = len(rows[0])
    if (
        width < 4
        or any(len(row) != width for row in rows)
        or not all(is_number(field) for row in rows for field in row)
    ):
        return False
    if whole and len(rows) == width and (_is_symmetric(rows) or {field for row in rows for field in row} <= {"0", "1"}):
        return True
    commonest = Counter(field for row in rows for field in row).most_common(1)[0][1]
    return width >= _WIDE and 2 * commonest > width * len(rows)


def _is_symmetric(rows: Rows) -> bool:
    size = min(len(rows), len(rows[0]))
    return all(rows[i][j] == rows[j][i] for i in range(size) for j in range(i))


def _is_sif(rows: Rows) -> bool:
    """A node, one of a few relations, which are no nodes, and one or more neighbours, which are nodes elsewhere too."""
    if any(len(row) < 3 for row in rows) or max(map(len, rows)) < 4:
        return False
    relations = {row[1] for row in rows}
    nodes = {field for row in rows for field in (row[0], row[2])}
    further = [field for row in rows for field in row[3:]]
    return (
        not relations & (nodes | set(further))
        and not any(is_number(name) for name in relations)
        and 5 * len(relations) <= len(nodes)
        and 2 * sum(field in nodes for field in further) >= len(further)
    )


def _is_adjacency(rows: Rows) -> bool:
    """Rows of different lengths, each of another node, whose further fields are nodes too and differ within the row."""
    owners = {row[0] for row in rows}
    lengths = {len(row) for row in rows}
    if len(owners) < len(rows) or len(lengths) < 2 or max(lengths) < 3 or any(len(set(row)) < len(row) for row in rows):
        return False
    further = [field for row in rows for field in row[2:] if field]
    nodes = owners | {row[1] for row in rows if len(row) > 1}
    return 2 * sum(field in nodes for field in further) >= len(further)


def _is_prose(rows: Rows) -> bool:
    """Lines of many different lengths, most of whose fields are words, and most of these occur once."""
    words = [field for row in rows for field in row if field.strip(".,;:()'`*_").isalpha()]
    fields = sum(map(len, rows))
    return len({len(row) for row in rows}) > 3 and fields > 5 * len(rows) and 2 * len(words) > fields


def is_triples(rows: Rows) -> bool:
    """Rows head, relation, tail: names between nodes that are no nodes themselves."""
    if len(rows) < _LEAST_ROWS or any(len(row) != 3 or not all(row) for row in rows):
        return False
    heads, relations, tails = ({row[column] for row in rows} for column in range(3))
    if relations & (heads | tails) or all(is_number(name) for name in relations):
        return False
    if all(is_number(name) and not has_leading_zero(name) for name in tails) and not heads & tails:
        return False  # weights
    return bool(heads & tails) or 5 * len(relations) <= len(tails)
