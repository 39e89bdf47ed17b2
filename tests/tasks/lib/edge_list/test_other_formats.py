"""Files in other formats are refused by name, and the command in the refusal converts them to the right graph."""

import bz2
import gzip
import io
import lzma
import pickle
import re
import subprocess
import sys
import tarfile
import zipfile
import zlib
from pathlib import Path

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.orc
import pytest
import scipy.io
import scipy.sparse

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.index import IndexParams
from superworkflow.tasks.lib.edge_list.detect import detect
from tests.tasks.index_helpers import run_index

GRAPH = nx.Graph([(1, 2), (1, 3), (1, 4), (2, 3), (4, 5), (5, 6), (6, 4)])
"""Six nodes and seven edges."""


def refusal(path: Path, **params: object) -> str:
    with path.open("rb") as stream, pytest.raises(UserError) as caught:
        detect(stream, IndexParams(**params), str(path))
    return str(caught.value)


def converted(path: Path) -> tuple[int, int]:
    """Vertices and edges of the file that the refusal's command makes."""
    command = re.search(r'python -c "(.*?)"', refusal(path))
    assert command, refusal(path)
    subprocess.run([sys.executable, "-c", command[1]], cwd=path.parent, check=True, timeout=100)
    (made,) = [each for each in path.parent.glob("*") if each.stem in ("edges", "triples")]
    stats = run_index(made, "relational").stats
    return stats["vertices"], stats["edges"]


def writer(name: str):
    def write(path: Path) -> None:
        graph = nx.MultiGraph(GRAPH) if name == "pajek" else GRAPH
        if name in ("gml", "graphml", "gexf", "pajek", "adjlist", "edgelist"):
            getattr(nx, f"write_{name}")(nx.relabel_nodes(graph, str) if name == "pajek" else graph, path)
        elif name == "weighted":
            nx.write_edgelist(nx.Graph([(u, v, {"weight": 3.0}) for u, v in GRAPH.edges]), path)
        elif name == "comma-adjlist":
            nx.write_adjlist(GRAPH, path, delimiter=",")
        elif name == "sparse6":
            nx.write_sparse6(nx.convert_node_labels_to_integers(GRAPH), path)
        elif name == "json-lines":
            path.write_text("".join(f'{{"source": "n{u}", "target": "n{v}"}}\n' for u, v in GRAPH.edges))
        elif name == "json-rows":
            path.write_text("[\n" + ",\n".join(f'{{"source": {u}, "target": {v}}}' for u, v in GRAPH.edges) + "\n]\n")
        elif name == "node-link":
            path.write_text(str(nx.node_link_data(GRAPH, edges="links")).replace("'", '"').replace("False", "false"))
        elif name == "metis":
            rows = [" ".join(map(str, sorted(GRAPH[node]))) for node in sorted(GRAPH)]
            path.write_text("% made by hand\n6 7\n" + "\n".join(rows) + "\n")
        elif name == "metis-weights":
            rows = [" ".join(f"{other} 9" for other in sorted(GRAPH[node])) for node in sorted(GRAPH)]
            path.write_text("6 7 001\n" + "\n".join(rows) + "\n")
        elif name == "dimacs":
            path.write_text("c by hand\np edge 6 7\n" + "".join(f"e {u} {v}\n" for u, v in GRAPH.edges))
        elif name == "matrix-market":
            scipy.io.mmwrite(path, nx.to_scipy_sparse_array(GRAPH, nodelist=sorted(GRAPH)))
            path.with_suffix(".txt.mtx").exists() and path.with_suffix(".txt.mtx").rename(path)
        elif name == "decimal-commas":
            path.write_text("".join(f"{u};{v};0,5\n" for u, v in GRAPH.edges))
        elif name == "decimal-commas-and-header":
            path.write_text("from;to;strength\n" + "".join(f"{u};{v};0,5\n" for u, v in GRAPH.edges))
        elif name == "decimal-commas-and-blanks":
            path.write_text("".join(f"{u} {v} 1,25\n" for u, v in GRAPH.edges))
        elif name == "blank-after-comma":
            path.write_text("".join(f"n{u}, n{v}\n" for u, v in GRAPH.edges))
        elif name in TEMPLATES:
            path.write_text(TEMPLATES[name][0] + "".join(TEMPLATES[name][1].format(u, v) for u, v in GRAPH.edges))
        elif name.startswith("matrix-of"):
            matrix = nx.to_numpy_array(GRAPH, dtype=int)
            rows = [",".join(map(str, row)) for row in matrix]
            names = [f"n{node}" for node in GRAPH]
            if name == "matrix-of-names":
                rows = [",".join(["", *names]), *(f"{node},{row}" for node, row in zip(names, rows, strict=True))]
            path.write_text("\n".join(rows) + "\n")
        elif name == "lgl":
            path.write_text("".join(f"# n{u}\n" + "".join(f"n{v}\n" for v in GRAPH[u] if v > u) for u in range(1, 6)))
        elif name == "sif":
            path.write_text(
                "".join(f"n{u} pp " + " ".join(f"n{v}" for v in GRAPH[u] if v > u) + "\n" for u in (1, 2, 4, 5))
            )
        elif name == "zlib":
            path.write_bytes(zlib.compress("".join(f"{u} {v}\n" for u, v in GRAPH.edges).encode()))
        elif name == "int32":
            path.write_bytes(np.array([*GRAPH.edges, *GRAPH.edges], "<i4").tobytes())
        elif name == "n-triples":
            rows = (f"<http://x/{u}> <http://x/links> <http://x/{v}> .\n" for u, v in GRAPH.edges)
            path.write_text("".join(rows))
        elif name.startswith("utf"):
            path.write_text("".join(f"{u} {v}\n" for u, v in GRAPH.edges), encoding=name)
        elif name == "npy":
            with path.open("wb") as stream:
                np.save(stream, np.array(GRAPH.edges))
        elif name == "npz":
            with path.open("wb") as stream:
                scipy.sparse.save_npz(stream, scipy.sparse.coo_array(nx.to_scipy_sparse_array(GRAPH)))
        else:
            u, v = zip(*GRAPH.edges, strict=True)
            table = pa.table({"source": u, "target": v})
            pa.orc.write_table(table, path) if name == "orc" else pa.feather.write_feather(table, str(path))

    return write


PROSE = """The network was generated using email data from a large research institution.
There is an edge if person u sent person v at least one email.
The rows hold two ids.
Every person belongs to exactly one of the departments of the institution, which the second file lists.
"""
TEMPLATES = {
    "tuples": ("", "({}, {})\n"), "sets": ("", "{{{},{}}}\n"), "json-pairs": ("", "[{}, {}]\n"),
    "arrows": ("", "n{} -> n{}\n"), "tight-arrows": ("", "{}->{}\n"), "dashes": ("", "{} -- {};\n"),
    "psql": (" source | target \n--------+--------\n", " {:>6} | {:>6} \n"),
    "markdown": ("| a | b |\n|---|:--|\n", "| {} | {} |\n"),
    "tgf": ("".join(f"{node} n{node}\n" for node in range(1, 7)) + "#\n", "{} {}\n"),
}  # fmt: skip
"""Files as a beginning and a row for each edge."""
FORMATS = {
    "matrix-of-numbers": "a matrix", "matrix-of-names": "a matrix", "lgl": "LGL", "zlib": "compressed with zlib",
    "int32": "binary numbers", "tuples": "in brackets", "sets": "in brackets", "json-pairs": "in brackets",
    "arrows": "with arrows", "tight-arrows": "with arrows", "dashes": "with arrows",
    "psql": "drawn with lines", "markdown": "drawn with lines", "tgf": "TGF",
    "gml": "GML", "graphml": "GraphML", "gexf": "GEXF", "pajek": "Pajek's format", "adjlist": "an adjacency list",
    "comma-adjlist": "an adjacency list", "edgelist": "networkx's edge list", "weighted": "networkx's edge list",
    "sparse6": "sparse6", "json-lines": "JSON lines", "json-rows": "JSON", "node-link": "node-link",
    "metis": "METIS format", "metis-weights": "METIS format", "dimacs": "DIMACS's format",
    "matrix-market": "MatrixMarket format", "decimal-commas": "decimal commas",
    "decimal-commas-and-header": "decimal commas", "decimal-commas-and-blanks": "decimal commas",
    "blank-after-comma": "a blank after each separator", "utf-16": "UTF-16", "utf-16-le": "UTF-16-LE",
    "utf-16-be": "UTF-16-BE", "npy": "NumPy", "npz": "NumPy archive", "orc": "ORC", "feather": "Arrow",
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_the_command_of_a_refusal_converts_the_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / "graph.txt"
    writer(name)(path)
    assert FORMATS[name] in refusal(path)
    assert str(path) in refusal(path)
    assert converted(path) == (6, 7)


@pytest.mark.parametrize(("name", "words"), [("n-triples", "RDF triples"), ("sif", "Cytoscape")])
def test_rows_with_relations_become_triples(tmp_path: Path, name: str, words: str) -> None:
    path = tmp_path / "graph.nt"
    writer(name)(path)
    assert words in refusal(path)
    command = re.search(r'python -c "(.*?)"', refusal(path))
    assert command
    subprocess.run([sys.executable, "-c", command[1]], cwd=tmp_path, check=True)
    stats = run_index(tmp_path / "triples.tsv", format="triples").stats
    assert (stats["vertices"], stats["edges"]) == (6, 7)


@pytest.mark.parametrize("name", ["gml", "matrix-market", "utf-16", "adjlist"])
def test_gzipped_ones_are_recognised_too(tmp_path: Path, name: str) -> None:
    path = tmp_path / "graph.txt"
    writer(name)(path)
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert FORMATS[name] in refusal(path)


def _zip() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("edges.txt", "a b\n")
    return stream.getvalue()


def _tar() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("edges.txt"))
    return stream.getvalue()


@pytest.mark.parametrize(
    ("data", "name", "remedy"),
    [
        (bz2.compress(b"a b\n"), "compressed with bzip2", "bunzip2"),
        (lzma.compress(b"a b\n"), "compressed with xz", "unxz"),
        (_zip(), "a zip archive", "unzip"),
        (_tar(), "a tar archive", "tar -xf"),
        (gzip.compress(_tar(), mtime=0), "a tar archive", "tar -xf"),
        (b"SQLite format 3\0" + bytes(90), "SQLite", "Export"),
        (b"\x89HDF\r\n\x1a\n" + bytes(90), "HDF5", "Export"),
        (b"<!DOCTYPE html>\n<html>\n<body>a b</body>\n", "a web page", "Download"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n", "Git LFS", "git lfs pull"),
        (b"digraph g {\n  a -> b;\n  b -> c;\n}\n", "DOT", "read_dot"),
        (b"%MatrixMarket matrix coordinate pattern symmetric\n2 1\n3 1\n", "without its line of sizes", "whitespace"),
        (b"INSERT INTO edges VALUES (1,2);\nINSERT INTO edges VALUES (2,3);\n", "SQL", "export the table as CSV"),
        (b"--\n-- dump\n--\nSET x = 0;\nCOPY public.e (a, b) FROM stdin;\n1\t2\n", "SQL", "export the table as CSV"),
        (b"CREATE (n1)-[:KNOWS]->(n2)\nCREATE (n2)-[:KNOWS]->(n3)\n", "Cypher", "Neo4j"),
        (b"@prefix e: <http://e/> .\ne:a e:b e:c .\n", "Turtle", "rapper"),
        (b"dl n=3 format=edgelist1\ndata:\n1 2\n2 3\n", "UCINET", "below data:"),
        (b"nodedef>name VARCHAR\na\nb\nedgedef>node1,node2\na,b\n", "GDF", "edgedef>"),
        (b"*Node data\nID name\n1 x\n*Tie data\nfrom to\n1 2\n", "VNA", "*tie data"),
        (b"edges:\n  - source: 1\n    target: 2\n", "YAML", "Export"),
        (b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>", "XML", "Export"),
        (b"1 3:0.5 7:1\n0 2:1\n1\n", "svmlight", "a source and a target"),
        (pickle.dumps([(1, 2)]), "pickle", "savetxt"),
        (b"PK\x03\x04" + bytes(26) + b"archive/data.pkl" + bytes(60), "PyTorch", "savetxt"),
        (b"sep=;\nsource;target\na;b\n", "for Excel alone", "tail -n +2"),
        (b"// a graph\n1 2\n2 3\n", "looks like a comment", "Begin such lines with #"),
        (b"5 4\n1 2\n2 3\n3 4\n4 1\n", "a line of sizes", "Remove the line"),
        (b"4\n1 2\n2 3\n3 4\n4 1\n", "a line of sizes", "Remove the line"),
        (b"4 4 4\n1 2\n2 3\n3 4\n4 1\n", "a line of sizes", "Remove the line"),
        (PROSE.encode(), "lines of prose", "a source and a target"),
        (b"source,target\na,b\nsource,target\nb,c\n", "the header occurs again", "Remove it"),
    ],
    ids=[
        "bzip2", "xz", "zip", "tar", "tar-gz", "SQLite", "HDF5", "HTML", "Git-LFS", "DOT", "MatrixMarket",
        "SQL", "dump", "Cypher", "Turtle", "DL", "GDF", "VNA", "YAML", "XML", "svmlight", "pickle", "PyTorch", "Excel",
        "slashes", "sizes", "one-size", "three-sizes", "prose", "two-headers",
    ],
)  # fmt: skip
def test_what_is_refused_with_another_command(tmp_path: Path, data: bytes, name: str, remedy: str) -> None:
    path = tmp_path / "graph.txt"
    path.write_bytes(data)
    said = refusal(path)
    assert name in said
    assert remedy in said


def test_gml_whose_edges_repeat(tmp_path: Path) -> None:
    path = tmp_path / "g.gml"
    nodes = "".join(f'  node\n  [\n    id {i}\n    label "n{i}"\n  ]\n' for i in range(3))
    edges = "".join(f"  edge\n  [\n    source {u}\n    target {v}\n  ]\n" for u, v in [(0, 1), (1, 0), (1, 2)])
    path.write_text(f'Creator "by hand"\ngraph\n[\n  directed 0\n{nodes}{edges}]\n')
    assert converted(path) == (3, 2)


@pytest.mark.parametrize(
    ("text", "edges"),
    [
        ("a b c\nb c d e\n", 2),  # longer rows, which go unread
        ("1 2\n2 3 7\n3 4 8\n4 5 9\n", 4),  # the third field is no node
        ("a b x\nb c y\nc d x\n", 3),  # a kind of edge, not a relation
        ("u1 i1 5\nu2 i2 3\nu3 i1 4\n", 3),  # ratings
        ("4 2\n1 2\n2 3\n", 3),
        ("graph node\nnode edge\nedge graph\n", 3),
        ("{a} {b}\n{b} {c}\n", 2),
        ("c p\np e\ne c\n", 3),
    ],
)
def test_edge_lists_are_read_on(tmp_path: Path, text: str, edges: int) -> None:
    path = tmp_path / "g.txt"
    path.write_text(text)
    assert run_index(path, "relational").stats["rows_read"] == edges


def test_columns_of_parquet_that_are_no_ids(tmp_path: Path) -> None:
    path = tmp_path / "g.parquet"
    pa.parquet.write_table(pa.table({"source": [1.0, 2.0, None], "target": [2, 3, 4]}), path)
    said = refusal(path)
    assert "the column is of type double: ids are text or whole numbers (got 'source')" in said
    pa.parquet.write_table(pa.table({"source": [[1], [2]], "target": [2, 3]}), path)
    assert "list" in refusal(path)


@pytest.mark.parametrize(
    ("name", "graph"),
    [("football.gml", (115, 613)), ("bio-celegans.mtx", None)],
)
def test_real_files(tmp_path: Path, shared_data: Path, name: str, graph: tuple[int, int] | None) -> None:
    path = tmp_path / name
    path.write_bytes((shared_data / "formats" / name).read_bytes())
    if graph is None:
        assert "without its line of sizes" in refusal(path)
        stats = run_index(path, "relational", format="whitespace").stats
        assert (stats["vertices"], stats["edges"]) == (453, 2025)
    else:
        assert converted(path) == graph
