"""The archive of a Debian system as a typed graph, from small lists of apt in every packing."""

import gzip
import lzma
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples.debian_archive import convert_apt, main
from superworkflow.infra.base.errors import UserError
from tests.tasks.lib.importers.test_plain_tables import pairs, read

PACKAGES = """Package: libfoo1
Source: foo (1.2-1)
Maintainer: Ann  Ö. <ann@example.org>
Depends: libc6 (>= 2.14), bar | baz:any (<< 3), bar, absent
Pre-Depends: baz
Description: Foo's library, a library
 of foo
Tag: devel::library,
 role::shared-lib, devel::library
Section: libs

Package: bar
Maintainer: Team <team@example.org>
Recommends: libfoo1, baz
Suggests: libfoo1
Description: bar, plain
Section: games
"""
MORE = """
Package: bar
Maintainer: Nobody
Section: web
Tag: use::late

Package: baz
Maintainer: Team <team@example.org>
Source: foo
"""
SOURCES = """Package: foo
Binary: libfoo1, baz
Build-Depends: bar (>= 1), absent,
 baz <!nocheck>
Section: devel

Package: lonely
"""
CONTENTS = """bin/bar  games/bar
usr/share/a b   libs/libfoo1,web/absent,games/bar
usr/lib/x\xff libs/libfoo1
"""


@pytest.fixture
def lists(tmp_path: Path) -> Path:
    folder = tmp_path / "lists"
    folder.mkdir()
    with pa.output_stream(str(folder / "a_dists_b_main_binary-amd64_Packages.lz4"), compression="lz4") as stream:
        stream.write(PACKAGES.encode())
    (folder / "a_dists_c_main_binary-amd64_Packages").write_text(MORE)
    (folder / "a_dists_b_main_source_Sources.xz").write_bytes(lzma.compress(SOURCES.encode()))
    (folder / "a_dists_b_main_Contents-amd64.gz").write_bytes(gzip.compress(CONTENTS.encode("latin-1")))
    for name in ("a_dists_b_main_i18n_Translation-en", "a_dists_b_InRelease", "a_Packages.diff_Index"):
        (folder / name).write_text("Package: never\n")
    (folder / "partial").mkdir()
    return folder


def test_lists_become_a_graph(lists: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["--lists", str(lists), "--out", str(out)]) == 0
    assert sorted(capsys.readouterr().out.split()) == sorted(str(file) for file in out.iterdir())
    graph = read(out, tmp_path / "made")
    names = {name: graph.ids(name).to_pylist() for name in graph.node_sets}
    assert names == {
        "file": ["bin/bar", "usr/lib/x\ufffd", "usr/share/a b"], "package": ["bar", "baz", "libfoo1"],
        "maintainer": ["Ann Ö. <ann@example.org>", "Team <team@example.org>"],
        "source": ["bar", "foo", "lonely"], "tag": ["devel::library", "role::shared-lib", "use::late"],
    }  # fmt: skip
    edges = {name: pairs(graph, name) for name, each in graph.edge_sets.items() if each.reversed_of is None}
    assert edges == {
        "build_depends": [("foo", "bar"), ("foo", "baz")],
        "built_from": [("bar", "bar"), ("baz", "foo"), ("libfoo1", "foo")],
        "contains": [("bar", "bin/bar"), ("bar", "usr/share/a b"), ("libfoo1", "usr/lib/x\ufffd"),
                     ("libfoo1", "usr/share/a b")],
        "depends": [("libfoo1", "bar"), ("libfoo1", "baz")],
        "maintained_by": [("bar", "Team <team@example.org>"), ("baz", "Team <team@example.org>"),
                          ("libfoo1", "Ann Ö. <ann@example.org>")],
        "recommends": [("bar", "baz"), ("bar", "libfoo1")],
        "tagged": [("bar", "use::late"), ("libfoo1", "devel::library"), ("libfoo1", "role::shared-lib")],
    }  # fmt: skip
    assert {each.reversed_of for each in graph.edge_sets.values()} == {None, *edges}
    assert graph.node_feature("package", "section").to_pylist() == [b"games", b"", b"libs"]
    words = graph.node_feature("package", "words")
    assert words.shape == (3, 512)
    assert words[2, zlib.crc32(b"library") % 512] == 2
    assert words.sum(axis=1).tolist() == [2, 0, 3]
    seeds = pq.read_table(out / "seeds.parquet")
    assert seeds["id"].to_pylist() == ["libfoo1", "bar"]
    assert set(seeds["split"].to_pylist()) <= {"train", "validation", "test"}
    for op in ("tagged", "builds"):
        assert f'"{op}"' in (out / "spec.pbtxt").read_text()


def test_without_sources_and_contents(lists: Path, tmp_path: Path) -> None:
    for kind in ("Sources.xz", "Contents-amd64.gz"):
        next(lists.glob(f"*{kind}")).unlink()
    convert_apt(lists, tmp_path / "out")
    graph = read(tmp_path / "out", tmp_path / "made")
    assert list(graph.node_sets) == ["maintainer", "package", "source", "tag"]
    assert graph.ids("source").to_pylist() == ["bar", "foo"]


def test_what_is_refused(lists: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no list of packages") as raised:
        convert_apt(tmp_path, tmp_path / "out")
    assert "apt-get update" in str(raised.value.remedy)
    packed = next(lists.glob("*.lz4"))
    packed.write_bytes(packed.read_bytes()[:40])
    with pytest.raises(UserError, match=r"Packages\.lz4: the list cannot be read"):
        convert_apt(lists, tmp_path / "out")
