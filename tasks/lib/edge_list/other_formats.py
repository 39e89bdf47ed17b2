"""Formats other than edge lists, recognised in the bytes and rows that detection reads, and refused by name.

Each refusal has the line of Python that converts the file, by the ecosystem's own reader where there is one. Binary
formats are always refused. Formats of text are refused if `index.format` is auto: another value says that the rows are
edges.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from superworkflow.infra.base.errors import UserError

HEAD_BYTES = 1 << 14
"""Bytes at the beginning of a file in which formats are recognised."""

_LEAST_ROWS = 3
"""Fewest rows by whose shape a format is recognised."""
_EDGES = "'edges.tsv', delimiter='\\t', data=['weight']"
_UNPACK = {
    "bzip2": "bunzip2 -k",
    "xz": "unxz -k",
    "zstd": "zstd -d",
    "lz4": "lz4 -d",
    "zip archive": "unzip",
    "7z archive": "7z x",
    "tar archive": "tar -xf",
}
_MAGIC = (
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"7z\xbc\xaf\x27\x1c", "7z archive"),
    (b"ORC", "ORC"),
    (b"ARROW1", "Arrow"),
    (b"FEA1", "Feather"),
    (b"\x89HDF\r\n\x1a\n", "HDF5"),
    (b"\x93NUMPY", "NumPy"),
    (b"SQLite format 3\0", "SQLite"),
    (b"MATLAB 5.0 MAT-file", "MATLAB"),
    (b"Obj\x01", "Avro"),
    (b"%PDF-", "PDF"),
    (b"version https://git-lfs", "Git LFS pointer"),
)
_PANDAS = {"ORC": "read_orc", "Arrow": "read_feather", "Feather": "read_feather", "Excel": "read_excel"}


def refuse_binary(head: bytes, where: str) -> None:
    """Refuse what is not text in UTF-8.

    Args:
        head: first bytes of the file, of a gzipped one those of its content.
        where: name of the file.

    Raises:
        UserError: names the format and the command that converts the file.
    """
    name = _binary_name(head)
    if name is None:
        return
    path = repr(where)
    if name in _UNPACK:
        remedy = f"Unpack it: {_UNPACK[name]} {where}"
    elif name in _PANDAS:
        remedy = _python("import pandas as pd", f"pd.{_PANDAS[name]}({path}).to_csv('edges.csv', index=False)")
    elif name.startswith("UTF-"):
        remedy = _python(f"text = open({path}, encoding='{name}').read()",
                         "open('edges.txt', 'w', encoding='utf-8').write(text)")  # fmt: skip
    elif name == "NumPy":
        remedy = _python("import numpy as np", f"np.savetxt('edges.txt', np.load({path}), '%d')")
    elif name == "NumPy archive":
        remedy = _python("import scipy.sparse as sp", f"m = sp.load_npz({path}).tocoo()", *_coordinates(weighted=True))
    elif name == "MATLAB":
        remedy = _python("import scipy.io", f"m = next(v for v in scipy.io.loadmat({path}).values() "
                         "if hasattr(v, 'tocoo')).tocoo()", *_coordinates(weighted=True))  # fmt: skip
    elif name == "Git LFS pointer":
        remedy = "Fetch the file that it stands for: git lfs pull"
    else:
        remedy = "Export its rows as CSV, with a source and a target column"
    raise UserError(f"the file is {_article(name)}, not an edge list", where=where, remedy=remedy)


def _binary_name(head: bytes) -> str | None:
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        if b".npy" in head[30:100]:
            return "NumPy archive"
        return "Excel" if b"[Content_Types].xml" in head[:200] else "zip archive"
    if head[257:262] == b"ustar":
        return "tar archive"
    for marks, name in (
        ((b"\xff\xfe\0\0", b"\0\0\xfe\xff"), "UTF-32"),
        ((b"\xff\xfe", b"\xfe\xff"), "UTF-16"),
    ):
        if head.startswith(marks):
            return name
    even, odd = head[0::2].count(0), head[1::2].count(0)
    pairs = {head[place : place + 2] for place in range(0, len(head), 2)}
    for zeros, others, newline, name in ((odd, even, b"\n\0", "UTF-16-LE"), (even, odd, b"\0\n", "UTF-16-BE")):
        if 10 * zeros > 3 * len(head) // 2 and not others and newline in pairs:
            return name
    return next((name for magic, name in _MAGIC if head.startswith(magic)), None)


def refuse_text(head: bytes, comments: Sequence[str], lines: Sequence[str], where: str) -> None:
    """Refuse text that is a graph or a document in another format.

    Args:
        head: as for `refuse_binary`.
        comments: lines before the data, which begin with # or %.
        lines: first lines of the data, without their ends.
        where: name of the file.

    Raises:
        UserError: names the format and the command that converts the file.
    """
    path = repr(where)
    text = head.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    start = text[:200].lower()
    first = next((line for line in lines if line.strip()), "")
    if re.match(r"%{1,2}MatrixMarket\b", text, re.IGNORECASE):
        raise _matrix_market(comments, first, where)
    readers = {"<graphml": ("GraphML", "read_graphml"), "<gexf": ("GEXF", "read_gexf")}
    for mark, (name, reader) in readers.items():
        if start.startswith("<") and mark in text[:4000].lower():
            raise _by_networkx(name, f"nx.{reader}({path})", where)
    if start.startswith(("<!doctype html", "<html")):
        raise UserError("the file is a web page, not an edge list", where=where,
                        remedy="Download the file itself: the address led to a page about it")  # fmt: skip
    if start.startswith("<?xml"):
        raise UserError("the file is XML, not an edge list", where=where,
                        remedy="Export its rows as CSV, with a source and a target column")  # fmt: skip
    if re.search(r"^\s*graph\s*\[|^\s*graph\s*$\s*\[", text, re.MULTILINE) and re.search(r"\bnode\s*\[", text):
        label = "'label'" if re.search(r"^\s*label\b", text, re.MULTILINE) else "'id'"
        graph = f"nx.parse_gml(open({path}).read(), label={label})"
        if not re.search(r"\bmultigraph\s+1\b", text):  # without it networkx refuses edges that occur twice
            graph = (f"nx.parse_gml(re.sub(r'graph\\s*\\[', 'graph [ multigraph 1', open({path}).read(), count=1), "
                     f"label={label})")  # fmt: skip
        raise _refused("GML", where, "import re, networkx as nx", f"nx.write_edgelist({graph}, {_EDGES})")
    if re.match(r"\*(vertices|network|arcs|edges|arcslist|edgeslist|matrix)\b", first.strip(), re.IGNORECASE):
        raise _by_networkx("Pajek's format", f"nx.read_pajek({path})", where)
    if re.match(r"(strict\s+)?(di)?graph\b[^\[\n]*\{", text, re.IGNORECASE):
        raise _by_networkx("DOT", f"nx.nx_pydot.read_dot({path})", where, further=" (it needs pydot)")
    if first.startswith(("LEDA.GRAPH", ">>graph6<<", ">>sparse6<<")):
        reader = "leda" if first.startswith("LEDA") else first[2:9].rstrip("<")
        raise _by_networkx(reader, f"nx.read_{reader}({path})", where)
    if re.match(r"[{\[]", first.lstrip()):
        _refuse_json(first.lstrip(), text, where)
    if first[:2] in ("c ", "p ") and re.search(r"^p\s+[a-z]+\s+\d+\s+\d+\s*$", text, re.MULTILINE):
        raise _refused("DIMACS's format", where,
                       f"rows = [r.split()[1:] for r in open({path}) if r[:2] in ('e ', 'a ')]",
                       "open('edges.txt', 'w').writelines(' '.join(r) + '\\n' for r in rows)")  # fmt: skip
    triple = re.compile(r"(<[^>]*>|_:\S+)\s+<[^>]*>\s+(<[^>]*>|_:\S+|\".*)\s*\.\s*$")
    full = [line.strip() for line in lines if line.strip()]
    if full and all(triple.match(line) for line in full):
        raise _refused("RDF triples (N-Triples)", where,
                       f"rows = [r.split()[:3] for r in open({path}, encoding='utf-8') if r.strip()]",
                       "open('triples.tsv', 'w', encoding='utf-8').writelines('\\t'.join(r) + '\\n' for r in rows)",
                       further=" Then set index.format=triples")  # fmt: skip


def _matrix_market(comments: Sequence[str], first: str, where: str) -> UserError:
    """MatrixMarket; some collections leave its size line out, and what is left is an edge list."""
    header = comments[0].lower() if comments else ""
    fields = first.split()
    pattern = "pattern" in header
    if len(fields) < 3 and "coordinate" in header:
        return UserError(
            "the file is in MatrixMarket format, without its line of sizes", where=where,
            remedy="Its rows are edges: set index.format=whitespace",
        )  # fmt: skip
    matrix = f"m = scipy.io.mmread({where!r})"
    lower = "m = scipy.sparse.tril(m).tocoo()" if "symmetric" in header else "m = scipy.sparse.coo_array(m)"
    return _refused(
        "MatrixMarket format", where, "import scipy.io, scipy.sparse", matrix, lower, *_coordinates(not pattern)
    )


def _coordinates(weighted: bool) -> tuple[str, ...]:
    """Python that writes the matrix `m` as an edge list."""
    row = "f'{u + 1}\\t{v + 1}\\t{w}\\n'" if weighted else "f'{u + 1}\\t{v + 1}\\n'"
    columns = "zip(m.row, m.col, m.data)" if weighted else "zip(m.row, m.col)"
    names = "u, v, w" if weighted else "u, v"
    return (f"open('edges.tsv', 'w').writelines({row} for {names} in {columns})",)


def _refuse_json(first: str, text: str, where: str) -> None:
    path = repr(where)
    try:
        value = json.loads(first)
    except ValueError:
        value = None
    if isinstance(value, dict) and not {"nodes", "links", "edges"} & set(value):
        raise _refused("JSON lines", where, "import pandas as pd",
                       f"pd.read_json({path}, lines=True).to_csv('edges.csv', index=False)")  # fmt: skip
    if re.match(r"\{", text) and re.search(r'"(links|edges)"\s*:', text):
        edges = "links" if '"links"' in text else "edges"
        graph = f"nx.node_link_graph(json.load(open({path})), edges='{edges}')"
        raise _refused("JSON of a graph (node-link)", where, "import json, networkx as nx",
                       f"nx.write_edgelist({graph}, {_EDGES})")  # fmt: skip
    if re.match(r"\[\s*[\[{]", text) or (re.match(r"\{", text) and '":' in text):
        raise _refused("JSON", where, "import pandas as pd",
                       f"pd.read_json({path}).to_csv('edges.csv', index=False, header=True)")  # fmt: skip


def refuse_shape(
    rows: Sequence[Sequence[str]], lines: Sequence[str], whole: bool, has_header: bool, where: str
) -> None:
    """Refuse rows that are no edges by their shape: networkx's dicts, METIS, adjacency lists, triples.

    Args:
        rows: fields of the first rows, without a header.
        lines: text of the first lines of the data.
        whole: these are all rows.
        has_header: the first line names the columns.
        where: name of the file.

    Raises:
        UserError: names the format and the command that converts the file.
    """
    path = repr(where)
    full = [line for line in lines if line.strip()]
    dicts = re.compile(r"[^{]*[^\s{,][\s,]+\S*?[\s,]*\{('[^']*'\s*:.*)?\}\s*$")
    if full and all(dicts.match(line) for line in full):
        delimiter = ", delimiter=','" if "," in full[0].partition("{")[0] else ""
        raise _by_networkx(
            "networkx's edge list, with a dict in each row", f"nx.read_edgelist({path}{delimiter})", where
        )
    if has_header or len(rows) < _LEAST_ROWS:
        return
    if _is_metis(rows, lines, whole):
        raise _refused(
            "METIS format, whose row i lists the neighbours of node i", where,
            f"rows = [r.split() for r in open({path}) if r[0] != '%']",
            "h = rows[0] + ['000', '1'][len(rows[0]) - 2:]; f = h[2].zfill(3); step = 1 + (f[2] == '1')",
            "skip = (f[0] == '1') + (f[1] == '1') * int(h[3])",
            "open('edges.tsv', 'w').writelines(f'{u}\\t{v}\\n' for u, r in enumerate(rows[1:], 1) "
            "for v in r[skip::step] if u <= int(v))",
            to_keep="if its rows are edges",
        )  # fmt: skip
    if _is_adjacency(rows):
        mark = "," if "," in full[0] else "\\t" if "\t" in full[0] else " "
        delimiter = "" if mark == " " else f", delimiter='{mark}'"
        raise _by_networkx("an adjacency list, each row a node and its neighbours",
                           f"nx.read_adjlist({path}{delimiter})", where, to_keep="if its rows are edges")  # fmt: skip
    if is_triples(rows):
        relations = sorted({row[1] for row in rows})
        raise UserError(
            "the rows are triples of head, relation and tail, not edges", where=where,
            value=f"relations {', '.join(relations[:3])}{', …' if len(relations) > 3 else ''}",
            remedy="Set index.format=triples for one edge between head and tail, without the relation, or name the "
            "columns with index.format=csv, tsv or whitespace",
        )  # fmt: skip


def _is_metis(rows: Sequence[Sequence[str]], lines: Sequence[str], whole: bool) -> bool:
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


def _is_adjacency(rows: Sequence[Sequence[str]]) -> bool:
    """Rows of different lengths, each of another node, whose further fields are nodes too and differ within the row."""
    owners = {row[0] for row in rows}
    lengths = {len(row) for row in rows}
    if len(owners) < len(rows) or len(lengths) < 2 or max(lengths) < 3 or any(len(set(row)) < len(row) for row in rows):
        return False
    further = [field for row in rows for field in row[2:] if field]
    nodes = owners | {row[1] for row in rows if len(row) > 1}
    return 2 * sum(field in nodes for field in further) >= len(further)


def is_triples(rows: Sequence[Sequence[str]]) -> bool:
    """Rows head, relation, tail: names between nodes that are no nodes themselves."""
    if len(rows) < _LEAST_ROWS or any(len(row) != 3 or not all(row) for row in rows):
        return False
    heads, relations, tails = ({row[column] for row in rows} for column in range(3))
    if relations & (heads | tails) or all(is_number(name) for name in relations):
        return False
    if all(is_number(name) and not has_leading_zero(name) for name in tails) and not heads & tails:
        return False  # weights
    return bool(heads & tails) or 5 * len(relations) <= len(tails)


def has_leading_zero(text: str) -> bool:
    """True for digits such as 00260622, which name something: numbers are not written so."""
    return re.fullmatch(r"0[0-9]+", text) is not None


def refuse_separators(rows: Sequence[Sequence[str]], separator: str, has_header: bool, where: str) -> None:
    """Refuse decimal commas, and blanks after separators, which would become parts of names.

    Args:
        rows: fields of the first rows, without a header.
        separator: of the fields.
        has_header: the first line names the columns.
        where: name of the file.

    Raises:
        UserError: names the fault and the command that converts the file.
    """
    mark = {"\t": "\\t", " ": "\\s+"}.get(separator, separator)
    read = f"pd.read_csv({where!r}, sep='{mark}'" + ("" if has_header else ", header=None")
    write = f"to_csv('edges.csv', index=False, header={has_header})"
    third = [row[2].strip() for row in rows if len(row) > 2]
    decimals = [field for field in third if re.fullmatch(r"[+-]?[0-9]*,[0-9]+", field)]
    whole_numbers = [field for field in third if re.fullmatch(r"[+-]?[0-9]+", field)]
    if separator != "," and decimals and len(decimals) + len(whole_numbers) == len(third):
        raise _refused("CSV with decimal commas", where, "import pandas as pd", f"{read}, decimal=',').{write}")
    second = [row[1] for row in rows if len(row) > 1]
    if (
        separator in ",;"
        and rows
        and len(second) == len(rows)
        and all(field[:1] == " " and field.strip() for field in second)
    ):
        raise _refused("CSV with a blank after each separator, which would make every target another node", where,
                       "import pandas as pd", f"{read}, skipinitialspace=True, dtype=str).{write}",
                       to_keep="if the blanks are part of the names", kind="csv")  # fmt: skip


def is_number(text: str) -> bool:
    """True for a number as text has it, also for an infinite one or NaN."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _article(name: str) -> str:
    if name in ("zip archive", "tar archive", "7z archive", "NumPy archive", "Git LFS pointer"):
        return f"a {name}"
    if name in ("bzip2", "xz", "zstd", "lz4"):
        return f"compressed with {name}"
    return f"text in {name}" if name.startswith("UTF-") else f"a file of {name}"


def _python(*statements: str) -> str:
    return f'Convert it: python -c "{"; ".join(statements)}"'


def _by_networkx(name: str, graph: str, where: str, to_keep: str = "", further: str = "") -> UserError:
    write = f"nx.write_edgelist({graph}, {_EDGES})"
    return _refused(name, where, "import networkx as nx", write, to_keep=to_keep, further=further)


def _refused(
    name: str, where: str, *statements: str, to_keep: str = "", kind: str = "whitespace", further: str = ""
) -> UserError:
    remedy = _python(*statements) + further
    if to_keep:
        remedy += f"; {to_keep}, set index.format={kind}"
    return UserError(f"the file is {name}, not an edge list", where=where, remedy=remedy)
