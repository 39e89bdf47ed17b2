"""Sources: files, folders, and descriptions that name tables, on a local disk and on the S3 server."""

import hashlib
import io
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from superworkflow.__main__ import main
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.config.profile import Placement
from superworkflow.infra.contract.diagram import Diagram
from superworkflow.infra.contract.stage import Input, Output, Progress, Resources, Stage, StageRun
from superworkflow.infra.launch.base import StageCall
from superworkflow.infra.launch.kubernetes.stage_inputs import make_visible
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage import checksum_cache
from superworkflow.infra.storage.digest import dataset_digest
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.source import Source
from superworkflow.infra.storage.store import Store
from tests.toy_stages import COUNT, SCALE, TOY, CountParams

pytestmark = pytest.mark.usefixtures("scratch")

READER = "superworkflow.infra.storage.table_files:named_files"
DESCRIBED = Input("a graph", tables=READER)
FOLDER = Input("a folder", folder=True)

SCHEMA = """
nodes:
  paper: {files: papers@2, feature: 8}
  author: {files: [authors/part-*]}
edges:
  - {from: author, to: paper, files: writes}
"""
TABLES = {
    "papers-00000-of-00002": "1\n2\n", "papers-00001-of-00002": "3\n", "authors/part-0.csv": "a\n",
    "authors/part-1.csv": "", "writes/x/part-0": "a,1\n", "writes/_SUCCESS": "", "not-named": "?",
}  # fmt: skip
NAMED = [
    "authors/part-0.csv",
    "authors/part-1.csv",
    "papers-00000-of-00002",
    "papers-00001-of-00002",
    "writes/x/part-0",
]


def put(root: Location, name: str, text: str) -> None:
    """Write a file that looks as if it had been there for long."""
    place = root.join(name)
    if (path := place.local_path) is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    place.write_atomic(text)


@pytest.fixture
def graph(store: Store) -> Location:
    """A folder with a description, the tables that it names, and more."""
    root = store.root.join("graph")
    for name, text in {**TABLES, "schema.yaml": SCHEMA}.items():
        put(root, name, text)
    return root


def above(place: Location) -> Location:
    """The folder in which it is."""
    return Location.of(place.uri.rpartition("/")[0])


def opened(place: Location, declared: Input = DESCRIBED, rehash: bool = False) -> Source:
    return declared.open(Source.of(place.uri, rehash=rehash))


class TestFile:
    """One file."""

    def test_digest_is_of_the_content(self, store: Store) -> None:
        for name in ("a.csv", "b.csv"):
            put(store.root.join("files"), name, "1,2\n")
        put(store.root.join("files"), "c.csv", "1,3\n")
        a, b, c = (Source.of(store.root.join("files", name).uri) for name in ("a.csv", "b.csv", "c.csv"))
        assert a.digest == b.digest == "52186c933993da4082b3cdc7c40bb4bf735b391ff54a2ef78c037dda6c38a680"
        assert a.digest != c.digest
        assert COUNT.inputs["text"].stats_of(a) == {"bytes": 4, "files": 1}

    def test_local_copies_of_files_of_one_name(self, store: Store, tmp_path: Path) -> None:
        """Two inputs may be called `data.csv`."""
        for folder in ("a", "b"):
            put(store.root, f"{folder}/data.csv", folder)
        copies = [Source.of(store.root.join(folder, "data.csv").uri).local(tmp_path / "s") for folder in "ab"]
        assert [copy.read_text() for copy in copies] == ["a", "b"]

    def test_odd_names(self, tmp_path: Path) -> None:
        (tmp_path / "a\\b\n.csv").write_text("1,2\n")
        assert Source.of(tmp_path / "a\\b\n.csv").digest == hashlib.sha256(b"1,2\n").hexdigest()

    def test_missing_or_empty(self, store: Store) -> None:
        put(store.root.join("files"), "empty.csv", "")
        for name, fault in (("none.csv", "no such file"), ("empty.csv", "the file is empty")):
            with pytest.raises(UserError, match=fault) as raised:
                Source.of(store.root.join("files", name).uri)
            assert store.root.join("files", name).uri in str(raised.value)

    def test_folder_is_refused_where_a_file_is_read(self, graph: Location) -> None:
        with pytest.raises(UserError, match="is a folder, not a file"):
            opened(graph, COUNT.inputs["text"])
        models = {"count": CountParams(), "toy": TOY.options()}
        with pytest.raises(UserError, match="is a folder, not a file"):
            Diagram(models, models["toy"]).stage(COUNT, text=Source.of(graph.uri))

    def test_a_yaml_file_is_a_file_unless_the_stage_says_otherwise(self, graph: Location) -> None:
        source = opened(graph.join("schema.yaml"), COUNT.inputs["text"])
        assert source.digest == hashlib.sha256(SCHEMA.encode()).hexdigest()


class TestFolder:
    """A folder of files."""

    def test_digest_covers_path_size_and_content_of_each_member(self, graph: Location, tmp_path: Path) -> None:
        first = opened(graph, FOLDER)
        assert first.files() == sorted([*NAMED, "not-named", "schema.yaml"])
        assert first.files("authors") == first.files("authors/part-*") == NAMED[:2]
        digests = {first.digest}
        put(graph, "authors/part-1.csv", "b\n")
        digests.add(opened(graph, FOLDER).digest)
        put(graph, "authors/part-2.csv", "")
        digests.add(opened(graph, FOLDER).digest)
        graph.join("not-named").delete()
        digests.add(opened(graph, FOLDER).digest)
        put(graph, "still-not-named", "?")
        digests.add(opened(graph, FOLDER).digest)
        assert len(digests) == 5

    def test_same_digest_wherever_it_is(self, graph: Location, s3_store: Store, tmp_path: Path) -> None:
        expected = opened(graph, FOLDER).digest
        for root in (s3_store.root.join("other"), Location.of(tmp_path / "other")):
            for name, text in {**TABLES, "schema.yaml": SCHEMA, ".DS_Store": "x", "_log/1": "y"}.items():
                put(root, name, text)
            assert opened(root, FOLDER).digest == expected

    def test_nothing_in_it(self, tmp_path: Path, store: Store) -> None:
        (tmp_path / "empty").mkdir()
        with pytest.raises(UserError, match="the folder is empty"):
            Source.of(tmp_path / "empty")
        put(store.root.join("hollow"), "_SUCCESS", "yes")
        put(store.root.join("hollow"), "part-0", "")
        with pytest.raises(UserError, match="holds no file with content"):
            _ = opened(store.root.join("hollow"), FOLDER).digest

    def test_link_to_a_folder_inside(self, tmp_path: Path) -> None:
        (tmp_path / "parts").mkdir()
        (tmp_path / "parts" / "part-0").write_text("x")
        (tmp_path / "parts" / "more").symlink_to(tmp_path)
        with pytest.raises(UserError, match="a link to a folder") as raised:
            _ = opened(Location.of(tmp_path / "parts"), FOLDER).digest
        assert raised.value.value == "more"

    def test_file_is_refused_where_a_folder_is_read(self, graph: Location) -> None:
        with pytest.raises(UserError, match="is a file, not a folder"):
            opened(graph.join("not-named"), FOLDER)


class TestDescription:
    """A description that names tables."""

    def test_members(self, graph: Location, tmp_path: Path) -> None:
        source = opened(graph.join("schema.yaml"))
        assert source.files() == NAMED
        assert source.files("papers@2") == NAMED[2:4]
        assert source.local(tmp_path).read_text() == SCHEMA
        assert source.local(tmp_path, "authors/part-0.csv").read_text() == "a\n"
        with pytest.raises(KeyError):
            source.local(tmp_path, "not-named")
        assert DESCRIBED.stats_of(source) == {"bytes": len(SCHEMA) + 12, "files": 5}

    def test_digest_covers_its_tables_and_nothing_else(self, graph: Location) -> None:
        place = graph.join("schema.yaml")
        before = opened(place).digest
        put(graph, "not-named", "other")
        assert opened(place).digest == before
        put(graph, "papers-00001-of-00002", "4\n")  # of the same size
        after = opened(place).digest
        assert after != before
        put(graph, "schema.yaml", SCHEMA + "# more\n")
        assert opened(place).digest not in (before, after)

    def test_the_folder_of_a_description(self, graph: Location) -> None:
        """It stands for the description in it: other files there are none of the source's."""
        declared = Input("a graph", tables=READER, inside="schema.yaml")
        source = opened(graph, declared)
        assert source.uri == graph.join("schema.yaml").uri
        assert source.digest == opened(graph.join("schema.yaml"), declared).digest == opened(source.location).digest
        assert source.files() == NAMED
        assert declared.open(source) is source
        with pytest.raises(UserError, match=r"the folder has no schema\.yaml"):
            opened(graph.join("authors"), declared)

    def test_json(self, graph: Location) -> None:
        put(graph, "metadata.json", json.dumps({"node": [{"file": "./papers@2"}], "edge": {"files": ["writes/"]}}))
        assert opened(graph.join("metadata.json")).files() == [name for name in NAMED if name[0] in "pw"]

    @pytest.mark.parametrize(
        ("text", "fault"),
        [
            ("files: papers@3", r"there is no such table \(got 'papers-00000-of-00003'\)"),
            ("files: [authors, nobody-*]", r"there is no such table \(got 'nobody-\*'\)"),
            ("files: ../secret", "has an empty part, '.' or '..'"),
            ("files: /etc/passwd", r"lies elsewhere than this description.*\(got '/etc/passwd'\).*--tables-from"),
            ("files: file:///etc/passwd", r"\(got '/etc/passwd'\)"),
            ("files: s3://elsewhere/x", r"lies elsewhere than this description.*\(got 's3://elsewhere/x'\)"),
            ("files: /a/../etc/passwd", "has an empty part, '.' or '..'"),
            ("files: s3://elsewhere/../x", "has an empty part, '.' or '..'"),
            ("files: /", "is empty"),
            ("files: [1]", r"not the name of a file \(got 1\)"),
            ("files: {a: b}", "not the name of a file"),
            ("nodes: 7", "the description names no tables"),
            ("files: schema.yaml", "the description names no tables"),
            ("a: [", "not valid YAML"),
            ("&a {b: *a, files: authors/none}", "there is no such table"),
        ],
    )
    def test_what_is_refused(self, graph: Location, text: str, fault: str) -> None:
        put(graph, "schema.yaml", text)
        put(above(graph), "secret", "x")
        with pytest.raises(UserError, match=fault) as raised:
            _ = opened(graph.join("schema.yaml")).digest
        assert graph.join("schema.yaml").uri in str(raised.value)

    def test_two_stages_that_disagree(self, graph: Location) -> None:
        source = opened(graph.join("schema.yaml"))
        with pytest.raises(ValueError, match="a description to one stage"):
            COUNT.inputs["text"].open(source)
        with pytest.raises(ValueError, match=r"this input takes a dataset .*: declare it with file=True"):
            SCALE.inputs["number"].open(source)


def count_lines(job: StageRun[CountParams]) -> Output:
    """Counts the lines of all tables; with `skip`, while somebody writes one or adds one."""
    source = job.sources["graph"]
    lines = sum(len(source.local(job.scratch, path).read_text().splitlines()) for path in source.files())
    if job.params.skip:
        put(source.folder, ("", "papers-00001-of-00002", "authors/part-9")[job.params.skip], "5\n")
    job.output.json("lines.json", lines)
    return Output(rows=lines)


TABLES_STAGE = Stage(
    name="tables", version="1", params=CountParams, inputs={"graph": DESCRIBED},
    run="tests.infra.storage.test_source:count_lines", estimate=COUNT.estimate,
)  # fmt: skip


class TestStage:
    """A stage that reads a description."""

    def run(self, store: Store, place: Location, skip: int = 0, expected: str = "") -> str:
        inputs = {"graph": opened(place).digest}
        digest = dataset_digest("tables", "1", CountParams(skip=skip).identity(), inputs)
        progress = Progress("tables", stream=io.StringIO())
        execute(
            TABLES_STAGE, {"skip": skip}, {"graph": place.uri}, store.location("tables", digest).uri, Resources(),
            progress, expected=expected or digest,
        )  # fmt: skip
        return digest

    def test_changed_table_is_another_dataset(self, store: Store, graph: Location) -> None:
        first = self.run(store, graph.join("schema.yaml"))
        put(graph, "writes/x/part-0", "b,1\n")
        second = self.run(store, graph.join("schema.yaml"))
        assert first != second
        assert {each.digest for each in store.datasets("tables")} == {first, second}
        with pytest.raises(UserError, match="is not what the run was planned with"):
            self.run(store, graph.join("schema.yaml"), expected=first)

    @pytest.mark.parametrize("skip", [1, 2])
    def test_table_written_or_added_while_it_reads(self, store: Store, graph: Location, skip: int) -> None:
        with pytest.raises(UserError, match="was changed while the stage read it"):
            self.run(store, graph.join("schema.yaml"), skip)
        assert not list(store.datasets("tables"))


@pytest.mark.parametrize("kind", ["description", "folder"])
def test_copied_for_pods_with_all_members(store: Store, tmp_path: Path, kind: str) -> None:
    """The copy is the same source."""
    here = Location.of(tmp_path / "here")
    for name, text in {**TABLES, "schema.yaml": SCHEMA}.items():
        put(here, name, text)
    place, declared = (here.join("schema.yaml"), DESCRIBED) if kind == "description" else (here, FOLDER)
    source = opened(place, declared)
    volumes = [{"mount_path": store.uri, "host_path": store.uri}] if store.root.local_path else []
    settings = KubernetesSettings.model_validate({"volumes": volumes})
    call = StageCall(
        "tables", "tables", {}, {"graph": source.uri}, store.location("tables", "0" * 32).uri, Placement(),
        sources={"graph": source},
    )  # fmt: skip
    copied = Location.of(make_visible(call, settings).inputs["graph"])
    assert copied.uri.startswith(f"{store.uri}/.sources/{source.digest}/")
    assert opened(copied, declared).digest == source.digest
    assert make_visible(call, settings).inputs["graph"] == copied.uri
    put(here, "writes/x/part-0", "b,1\n")
    (copied if kind == "folder" else above(copied)).join("writes/x/part-0").delete()
    with pytest.raises(UserError, match="was changed while it was copied"):
        make_visible(call, settings)


class TestKeptSums:
    """Unchanged files are read once."""

    @pytest.fixture(autouse=True)
    def _settled(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv(checksum_cache.FOLDER_VARIABLE, str(tmp_path / "cache"))
        monkeypatch.setattr(checksum_cache, "SETTLED_S", 0.2)

    @pytest.fixture
    def reads(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Names of the files whose content is summed."""
        found: list[str] = []
        summed: Callable[..., str] = Source.of.__globals__["_sum"]

        def noting(location: Location, *given: object) -> str:
            found.append(location.name)
            return summed(location, *given)

        monkeypatch.setitem(Source.of.__globals__, "_sum", noting)
        return found

    def test_unchanged_is_read_once(self, graph: Location, reads: list[str]) -> None:
        time.sleep(0.3)
        place = graph.join("schema.yaml")
        first = opened(place).digest
        assert len(reads) == 5
        assert opened(place).digest == first
        assert len(reads) == 5
        put(graph, "papers-00001-of-00002", "4\n")
        second = opened(place).digest
        assert second != first
        assert reads[5:] == ["papers-00001-of-00002"]
        assert opened(place, rehash=True).digest == second
        assert len(reads) == 11

    def test_recent_file_is_read_again(
        self, graph: Location, reads: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its time might stay where it is written once more; objects have tags of their content."""
        monkeypatch.setattr(checksum_cache, "SETTLED_S", 60.0)
        for _ in range(2):
            _ = opened(graph.join("not-named"), COUNT.inputs["text"]).digest
        assert len(reads) == (2 if graph.local_path else 1)

    def test_times_that_were_set_back(self, tmp_path: Path) -> None:
        path = tmp_path / "a.csv"
        path.write_text("1,2\n")
        os.utime(path, (1e9, 1e9))
        time.sleep(0.3)
        first = Source.of(path).digest
        with path.open("r+") as stream:
            stream.write("3,4\n")
        os.utime(path, (1e9, 1e9))
        assert path.stat().st_mtime == 1e9
        assert Source.of(path).digest == hashlib.sha256(b"3,4\n").hexdigest() != first

    def test_time_in_the_future(self, tmp_path: Path, reads: list[str]) -> None:
        path = tmp_path / "a.csv"
        path.write_text("1,2\n")
        os.utime(path, (4e9, 4e9))
        time.sleep(0.3)
        for _ in range(2):
            _ = Source.of(path).digest
        assert len(reads) == 2

    @pytest.mark.parametrize("damage", ["", "{", "[]", '{"sums": 3}', '{"sums": {"a.csv": ["x"]}}', "[" * 100_000])
    def test_damaged_sums(self, tmp_path: Path, damage: str) -> None:
        path = tmp_path / "a.csv"
        path.write_text("1,2\n")
        time.sleep(0.3)
        first = Source.of(path).digest
        (kept,) = (tmp_path / "cache" / "sums").iterdir()
        assert kept.stat().st_mode & 0o777 == 0o600
        kept.write_text(damage)
        assert Source.of(path).digest == first

    @pytest.mark.parametrize("writable", ["file", "folder"])
    def test_sums_that_others_may_write_are_not_trusted(self, tmp_path: Path, writable: str) -> None:
        path = tmp_path / "a.csv"
        path.write_text("1,2\n")
        time.sleep(0.3)
        first = Source.of(path).digest
        (kept,) = (tmp_path / "cache" / "sums").iterdir()
        kept.write_text(kept.read_text().replace(first, "0" * 64))
        assert Source.of(path).digest == "0" * 64  # it is this file that counts
        (kept if writable == "file" else kept.parent).chmod(0o777)
        assert Source.of(path).digest == first

    def test_rehash(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """A plan trusts cached sums unless `rehash` is set, which replaces them."""
        path = tmp_path / "edges.csv"
        path.write_text("1,2\n2,3\n")
        time.sleep(0.3)
        first = Source.of(path).digest
        (kept,) = (tmp_path / "cache" / "sums").iterdir()
        kept.write_text(kept.read_text().replace(first, "0" * 64))
        command = ["plan", "node2vec", "--edges", str(path), "--store", str(tmp_path / "store"), "--json"]
        outputs = []
        for more in ([], ["--rehash"], []):
            assert main([*command, *more]) == 0
            outputs.append(capsys.readouterr().out)
        assert outputs[0] != outputs[1] == outputs[2]
        assert Source.of(path).digest == first

    def test_no_folder_to_keep_them_in(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(checksum_cache.FOLDER_VARIABLE, str(tmp_path / "a.csv" / "cache"))
        (tmp_path / "a.csv").write_text("1,2\n")
        time.sleep(0.3)
        assert Source.of(tmp_path / "a.csv").digest == hashlib.sha256(b"1,2\n").hexdigest()

    def test_what_nobody_has_used_for_long_is_removed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder := tmp_path / "cache" / "sums").mkdir(parents=True, mode=0o700)
        old, mine = time.time() - checksum_cache.KEPT_S - 60, ["notes.json", f"{'x' * 32}.json", f"{'a' * 32}.json.txt"]
        for name in [*mine, f"{'a' * 32}.json", f".{'b' * 32}.partial"]:
            (folder / name).write_text("{}")
            os.utime(folder / name, (old, old))
        (folder / f"{'c' * 32}.json").symlink_to(folder / mine[0])
        kept = {*mine, f"{'c' * 32}.json"}  # what we did not make
        for uri in ("first", "second"):
            checksum_cache.ChecksumCache(uri).write({"a.csv": ("state", "0" * 64)})
        left = {path.name for path in folder.iterdir()}
        assert kept < left
        assert len(left - kept) == 2, "of ours only what is new"
        for path in left - kept:
            os.utime(folder / path, (old + 120, old + 120))
        monkeypatch.setattr(checksum_cache, "KEPT_BYTES", 250)
        checksum_cache.ChecksumCache("third").write({"a.csv": ("state", "0" * 64)})
        assert checksum_cache.ChecksumCache("third").read()
        assert len({path.name for path in folder.iterdir()} - kept) == 2, "as many as may be kept"

    def test_remote_copy_is_held_against_the_kept_sum(self, s3_store: Store, tmp_path: Path) -> None:
        """A sum that is wrong makes no dataset of something else."""
        place = s3_store.root.join("a.csv")
        place.write_atomic("1,2\n")
        first = Source.of(place.uri).digest
        (kept,) = (tmp_path / "cache" / "sums").iterdir()
        kept.write_text(kept.read_text().replace(first, "0" * 64))
        with pytest.raises(UserError, match="was changed while the stage read it"):
            Source.of(place.uri).local(tmp_path)


def test_stats_are_those_that_the_stage_declares(store: Store) -> None:
    """A table of features is no edge list, and nobody looks at it as at one."""
    from superworkflow.tasks import index

    put(store.root.join("files"), "features.csv", "0.5,0.25\n" * 1000)
    source = Source.of(store.root.join("files", "features.csv").uri)
    assert COUNT.inputs["text"].stats_of(source) == {"bytes": 9000, "files": 1}
    declared = replace(COUNT.inputs["text"], stats="tests.infra.storage.test_source:lines")
    assert declared.stats_of(source, 90)["lines"] == 10
    looked = index.STAGE.inputs["edges"].stats_of(source)
    assert looked.get("rows") == (1000 if source.location.local_path else None)


def lines(source: Source, look_bytes: int) -> dict[str, int]:
    """Lines of its beginning."""
    with source.location.open() as stream:
        return {"lines": stream.read(look_bytes).count(b"\n")}
