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
    (b"x\x9c", "zlib"),
    (b"x\xda", "zlib"),
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
    elif name == "zlib":
        remedy = _python("import zlib", f"text = zlib.decompress(open({path}, 'rb').read())",
                         "open('edges.txt', 'wb').write(text)")  # fmt: skip
    elif name == "binary numbers":
        remedy = _python("import numpy as np", f"m = np.fromfile({path}, '<i4').reshape(-1, 2)",
                         "np.savetxt('edges.txt', m, '%d')") + " with its type in place of <i4"  # fmt: skip
    elif name in ("pickle", "PyTorch"):
        remedy = "Write its edges as text, for example with numpy.savetxt('edges.txt', edges, '%d')"
    elif name == "Git LFS pointer":
        remedy = "Fetch the file that it stands for: git lfs pull"
    else:
        remedy = "Export its rows as CSV, with a source and a target column"
    raise UserError(f"the file is {_article(name)}, not an edge list", where=where, remedy=remedy)


def _binary_name(head: bytes) -> str | None:
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        if b".npy" in head[30:100]:
            return "NumPy archive"
        if b"/data.pkl" in head[:200]:
            return "PyTorch"
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
    if head[:1] == b"\x80" and head[1:2] in b"\2\3\4\5":
        return "pickle"
    found = next((name for magic, name in _MAGIC if head.startswith(magic)), None)
    return found or ("binary numbers" if len(head) >= 64 and 5 * head.count(0) > 2 * len(head) else None)


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
            raise by_networkx(name, f"nx.{reader}({path})", where)
    if start.startswith(("<!doctype html", "<html")):
        raise UserError("the file is a web page, not an edge list", where=where,
                        remedy="Download the file itself: the address led to a page about it")  # fmt: skip
    if start.startswith("<?xml") or (re.match(r"<[a-z][\w.-]*(\s[^>]*)?>", start) and "</" in text):
        raise UserError("the file is XML, not an edge list", where=where,
                        remedy="Export its rows as CSV, with a source and a target column")  # fmt: skip
    if re.search(r"^\s*graph\s*\[|^\s*graph\s*$\s*\[", text, re.MULTILINE) and re.search(r"\bnode\s*\[", text):
        label = "'label'" if re.search(r"^\s*label\b", text, re.MULTILINE) else "'id'"
        graph = f"nx.parse_gml(open({path}).read(), label={label})"
        if not re.search(r"\bmultigraph\s+1\b", text):  # without it networkx refuses edges that occur twice
            graph = (f"nx.parse_gml(re.sub(r'graph\\s*\\[', 'graph [ multigraph 1', open({path}).read(), count=1), "
                     f"label={label})")  # fmt: skip
        raise refused("GML", where, "import re, networkx as nx", f"nx.write_edgelist({graph}, {_EDGES})")
    if re.match(r"\*(vertices|network|arcs|edges|arcslist|edgeslist|matrix)\b", first.strip(), re.IGNORECASE):
        raise by_networkx("Pajek's format", f"nx.read_pajek({path})", where)
    if re.match(r"(strict\s+)?(di)?graph\b[^\[\n]*\{", text, re.IGNORECASE):
        raise by_networkx("DOT", f"nx.nx_pydot.read_dot({path})", where, further=" (it needs pydot)")
    if first.startswith(("LEDA.GRAPH", ">>graph6<<", ">>sparse6<<")):
        reader = "leda" if first.startswith("LEDA") else first[2:9].rstrip("<")
        raise by_networkx(reader, f"nx.read_{reader}({path})", where)
    if re.match(r"[{\[]", first.lstrip()):
        _refuse_json(first.lstrip(), text, where)
    if first[:2] in ("c ", "p ") and re.search(r"^p\s+[a-z]+\s+\d+\s+\d+\s*$", text, re.MULTILINE):
        raise refused("DIMACS's format", where,
                       f"rows = [r.split()[1:] for r in open({path}) if r[:2] in ('e ', 'a ')]",
                       "open('edges.txt', 'w').writelines(' '.join(r) + '\\n' for r in rows)")  # fmt: skip
    triple = re.compile(r"(<[^>]*>|_:\S+)\s+<[^>]*>\s+(<[^>]*>|_:\S+|\".*?)(\s+(<[^>]*>|_:\S+))?\s*\.\s*$")
    full = [line.strip() for line in lines if line.strip()]
    if full and all(triple.match(line) for line in full):
        raise refused("RDF triples (N-Triples)", where,
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
    return refused(
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
        raise refused("JSON lines", where, "import pandas as pd",
                       f"pd.read_json({path}, lines=True).to_csv('edges.csv', index=False)")  # fmt: skip
    if re.match(r"\{", text) and re.search(r'"(links|edges)"\s*:', text):
        edges = "links" if '"links"' in text else "edges"
        graph = f"nx.node_link_graph(json.load(open({path})), edges='{edges}')"
        raise refused("JSON of a graph (node-link)", where, "import json, networkx as nx",
                       f"nx.write_edgelist({graph}, {_EDGES})")  # fmt: skip
    if re.match(r"\[\s*[\[{]", text) or (re.match(r"\{", text) and '":' in text):
        raise refused("JSON", where, "import pandas as pd",
                       f"pd.read_json({path}).to_csv('edges.csv', index=False, header=True)")  # fmt: skip


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
        raise refused("CSV with decimal commas", where, "import pandas as pd", f"{read}, decimal=',').{write}")
    second = [row[1] for row in rows if len(row) > 1]
    if (
        separator in ",;"
        and rows
        and len(second) == len(rows)
        and all(field[:1] == " " and field.strip() for field in second)
    ):
        raise refused("CSV with a blank after each separator, which would make every target another node", where,
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
    if name in ("bzip2", "xz", "zstd", "lz4", "zlib"):
        return f"compressed with {name}"
    if name == "binary numbers":
        return name
    return f"text in {name}" if name.startswith("UTF-") else f"a file of {name}"


def _python(*statements: str) -> str:
    return f'Convert it: python -c "{"; ".join(statements)}"'


def by_networkx(name: str, graph: str, where: str, to_keep: str = "", further: str = "") -> UserError:
    """The error for a graph that networkx reads; see `refused`.

    Args:
        name: of the format.
        graph: Python that reads the graph.
        where: name of the file.
        to_keep: when its rows are to be read all the same.
        further: what else is needed.
    """
    write = f"nx.write_edgelist({graph}, {_EDGES})"
    return refused(name, where, "import networkx as nx", write, to_keep=to_keep, further=further)


def refused(
    name: str, where: str, *statements: str, to_keep: str = "", kind: str = "whitespace", further: str = ""
) -> UserError:
    """The error for a file in another format.

    Args:
        name: of the format.
        where: name of the file.
        statements: Python that converts the file.
        to_keep: when its rows are to be read all the same.
        kind: value of `index.format` that does so.
        further: what else is needed.
    """
    remedy = _python(*statements) + further
    if to_keep:
        remedy += f"; {to_keep}, set index.format={kind}"
    return UserError(f"the file is {name}, not an edge list", where=where, remedy=remedy)
