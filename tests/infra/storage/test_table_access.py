"""Tables that a description names by absolute paths and URIs: who may, and how pods get them."""

import io
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.kubernetes import KubernetesSettings
from superworkflow.infra.config.profile import Placement
from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.launch.base import StageCall
from superworkflow.infra.launch.kubernetes.stage_inputs import make_visible
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.storage.digest import dataset_digest
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.source import Source
from superworkflow.infra.storage.store import Store
from superworkflow.infra.storage.table_access import VARIABLE, TableAccess, reach_of
from tests.infra.storage.test_source import DESCRIBED, TABLES_STAGE, put
from tests.toy_stages import CountParams

pytestmark = pytest.mark.usefixtures("scratch")


@pytest.fixture
def tables(tmp_path: Path) -> Location:
    """A folder of tables."""
    place = Location.of(tmp_path / "tables")
    for name in ("a.csv", "part-0", "part-1", "b-00000-of-00002.csv", "b-00001-of-00002.csv", "deep/c.csv"):
        put(place, name, f"{name}\n")
    return place


def described(folder: Location, *names: str) -> str:
    """URI of a description that names tables."""
    put(folder, "schema.yaml", f"files: [{', '.join(names)}]\n")
    return folder.join("schema.yaml").uri


def opened(uri: str, reach: TableAccess | None = None) -> Source:
    return DESCRIBED.open(Source.of(uri, reach=reach_of(uri) if reach is None else reach))


def refused(uri: str, reach: TableAccess) -> str:
    with pytest.raises(UserError, match="a table lies elsewhere than this description") as raised:
        _ = opened(uri, reach).digest
    assert raised.value.where == uri
    assert "--tables-from" in str(raised.value.remedy)
    return str(raised.value.value)


def test_members_are_named_as_the_description_names_them(tables: Location, tmp_path: Path) -> None:
    here = Location.of(tmp_path / "here")
    names = ["a.csv", "part-*", "b@2.csv", "deep"]
    put(here, "own", "own\n")
    source = opened(described(here, "own", *(f"{tables.uri}/{name}" for name in names)))
    every = ["a.csv", "b-00000-of-00002.csv", "b-00001-of-00002.csv", "deep/c.csv", "part-0", "part-1"]
    assert source.files() == [*(f"{tables.uri}/{name}" for name in every), "own"]
    assert source.files(f"{tables.uri}/b@2.csv") == [f"{tables.uri}/{name}" for name in every[1:3]]
    assert source.files(f"file://{tables.uri}/part-*") == source.files(f"{tables.uri}/part-*") != []
    assert source.local(tmp_path, f"{tables.uri}/deep/c.csv").read_text() == "deep/c.csv\n"
    before = source.digest
    assert opened(source.uri).digest == before
    put(tables, "part-2", "")
    with pytest.raises(UserError, match="was changed while the stage read it"):
        source.check_unchanged()
    assert opened(source.uri).digest != before
    for name in ("absent.csv", "none-*", "b@3.csv"):
        with pytest.raises(UserError, match="there is no such table"):
            _ = opened(described(here, f"{tables.uri}/{name}")).digest
    with pytest.raises(UserError, match="unknown protocol"):
        _ = opened(described(here, "sofa://bucket/a.csv")).digest


def test_who_may_name_what(tables: Location, s3_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, mine = f"{tables.uri}/a.csv", Location.of(tmp_path / "mine")
    local = described(mine, table)
    assert opened(local, reach_of(local, store=str(tmp_path / "store"))).files() == [table]
    assert refused(local, reach_of(local, store=str(tmp_path))) == table
    assert refused(local, reach_of(local, chosen=False)) == table
    assert refused(local, reach_of(local, [f"{tables.uri}/a"], chosen=False)) == table
    assert opened(local, reach_of(local, [f"{tables.uri}/"], chosen=False)).files() == [table]
    put(s3_store.root, "other/a.csv", "a\n")
    near = s3_store.root.join("other", "a.csv").uri
    bucket = near.removeprefix("s3://").partition("/")[0]
    remote = described(s3_store.root.join("graph"), near)
    assert opened(remote).files() == [near]
    far = f"s3://{bucket}-{uuid.uuid4().hex}/a.csv"
    for name in (table, far):
        uri = described(s3_store.root.join("graph"), name)
        assert refused(uri, reach_of(uri)) == name
    uri = described(s3_store.root.join("graph"), table)
    monkeypatch.setenv(VARIABLE, f"s3://elsewhere\n{tables.uri}\n")
    assert opened(uri).files() == [table]


def test_pods_get_what_is_on_this_machine(tables: Location, s3_store: Store, tmp_path: Path) -> None:
    """The copy is the same source; what is elsewhere by itself stays there."""
    put(s3_store.root, "far/d.csv", "far\n")
    here, far = Location.of(tmp_path / "here"), s3_store.root.join("far", "d.csv").uri
    put(here, "own", "own\n")
    uri = described(here, "own", far, f"{tables.uri}/part-*")
    source = opened(uri)
    call = StageCall(
        "tables", "tables", {}, {"graph": uri}, s3_store.location("tables", "0" * 32).uri, Placement(),
        sources={"graph": source},
    )  # fmt: skip
    copied = make_visible(call, KubernetesSettings()).inputs["graph"]
    folder = f"{s3_store.uri}/.sources/{source.digest}"
    assert copied == f"{folder}/schema.yaml"
    for path in tables.entries():
        tables.join(path).delete(recursive=True)
    digest = dataset_digest("tables", "1", CountParams().identity(), {"graph": source.digest})
    made = execute(
        TABLES_STAGE, {}, {"graph": copied}, s3_store.location("tables", digest).uri, Resources(),
        Progress("tables", stream=io.StringIO()), expected=digest,
    )  # fmt: skip
    assert made.dataset.json("lines.json") == 4
    assert opened(copied).digest == source.digest
    assert opened(copied).members[f"{tables.uri}/part-0"].location.uri == f"{folder}/.elsewhere{tables.uri}/part-0"
    volume = {"mount_path": tables.uri, "host_path": tables.uri}
    put(tables, "e", "e\n")
    seen = opened(described(Location.of(tmp_path / "seen"), f"{tables.uri}/e"))
    settings = KubernetesSettings.model_validate({"volumes": [volume]})
    given = make_visible(replace(call, inputs={"graph": seen.uri}, sources={"graph": seen}), settings)
    assert Location.of(given.inputs["graph"].rpartition("/")[0]).walk_files() == [".schema.yaml.tag", "schema.yaml"]
    remote = described(s3_store.root.join("graph"), f"{tables.uri}/e")
    odd = opened(remote, reach_of(remote, [tables.uri]))
    with pytest.raises(UserError, match="pods do not see a table on this machine"):
        make_visible(replace(call, inputs={"graph": remote}, sources={"graph": odd}), KubernetesSettings())
