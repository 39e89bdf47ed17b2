"""Schemas in text format: read, written, and refused with the line."""

from dataclasses import replace

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.lib.graph.schema import (
    ContextSchema,
    EdgeSetSchema,
    GraphSchema,
    Metadata,
    NodeSetSchema,
    SchemaFeature,
    named_tables,
    read_schema,
    schema_text,
    table_name,
)

TEXT = """# A graph
node_sets { key: "paper" value {
  description: "a " 'paper'
  features { key: "words" value { dtype: DT_FLOAT shape { dim { size: 128 } dim: < size: -1 > } } };
  features: [{ key: "#id" value { dtype: 7 } }, { key: "year" value { dtype: DT_INT64 shape {} } }]
  metadata { filename: "/data/papers-?????-of-00003.csv" cardinality: 0x10, extra { key: "a" value: "b" } }
} }
edge_sets { key: "r\\303\\251" value { source: "paper" target: "paper"
  metadata { extra { key: "edge_type" value: "reversed" } filename: "c@8" } } }
info { graph_type: FULL root_set: "paper" }
context { features { key: "k" value { dtype: DT_STRING } } metadata { filename: "c@8" } }
"""


def test_a_schema_is_read() -> None:
    schema = read_schema(TEXT, "/data/schema.pbtxt")
    words = SchemaFeature("words", "float", (128, None))
    features = (words, SchemaFeature("#id", "string"), SchemaFeature("year", "int64"))
    metadata = Metadata("/data/papers-?????-of-00003.csv", 16, (("a", "b"),))
    assert schema.node_sets == {"paper": NodeSetSchema("paper", features, metadata, "a paper", line=2)}
    back = Metadata("c@8", extra=(("edge_type", "reversed"),))
    assert schema.edge_sets == {"ré": EdgeSetSchema("ré", "paper", "paper", metadata=back, line=8)}
    assert schema.edge_sets["ré"].is_reversed
    assert (schema.graph_type, schema.root_sets) == ("FULL", ("paper",))
    assert schema.context.features == (SchemaFeature("k", "string"),)
    assert named_tables(TEXT, "/data/schema.pbtxt") == ["c@8", "/data/papers@3.csv"]
    assert table_name("file:///my%20data/x-?????-of-00002") == "/my data/x@2"


NAMES = st.text(st.characters(codec="utf-8"), max_size=6)
FEATURES = st.lists(
    st.builds(
        SchemaFeature, NAMES, st.sampled_from(["float", "string", "uint8", "bool"]),
        st.lists(st.one_of(st.none(), st.integers(0, 2**31 - 1)), max_size=3).map(tuple), NAMES, NAMES,
    ),
    unique_by=lambda feature: feature.name, max_size=3,
).map(tuple)  # fmt: skip
METADATA = st.builds(
    Metadata, NAMES, st.one_of(st.none(), st.integers(0, 2**62 - 1)),
    st.lists(st.tuples(NAMES, NAMES), max_size=2).map(tuple),
)  # fmt: skip


@st.composite
def schemas(draw: st.DrawFn) -> GraphSchema:
    nodes = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    edges = draw(st.lists(NAMES, max_size=3, unique=True))
    contexts = st.lists(NAMES, max_size=2).map(tuple)
    ends = st.sampled_from(nodes)
    return GraphSchema(
        {name: NodeSetSchema(name, draw(FEATURES), draw(METADATA), draw(NAMES), draw(contexts)) for name in nodes},
        {
            name: EdgeSetSchema(
                name, draw(ends), draw(ends), draw(FEATURES), draw(METADATA), draw(NAMES), draw(contexts)
            )
            for name in edges
        },
        ContextSchema(draw(FEATURES), draw(METADATA)),
        draw(st.sampled_from(["", "FULL", "SUBGRAPH"])),
        tuple(draw(st.lists(ends, max_size=2))),
    )


@given(schemas())
@settings(max_examples=50, deadline=None)
def test_what_is_written_is_read(schema: GraphSchema) -> None:
    read = read_schema(schema_text(schema), "s")
    nodes = {name: replace(each, line=0) for name, each in read.node_sets.items()}
    edges = {name: replace(each, line=0) for name, each in read.edge_sets.items()}
    assert replace(read, node_sets=nodes, edge_sets=edges, context=replace(read.context, line=0)) == schema


@given(st.binary(max_size=20), NAMES)
@settings(max_examples=100, deadline=None)
def test_strings_are_protobufs(data: bytes, text: str) -> None:
    """`text_format` of protobuf reads what is written here, and what it writes is read here."""
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax="proto2")
    kinds = descriptor_pb2.FieldDescriptorProto
    field = file.message_type.add(name="T").field
    field.add(name="key", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("t.T"))
    for each in (text, data.decode("latin-1")):
        (line,) = (
            line for line in schema_text(GraphSchema({each: NodeSetSchema(each)}, {})).split("\n") if "key" in line
        )
        assert text_format.Parse(line, kind()).key == each
        for as_utf8 in (True, False):
            written = text_format.MessageToString(kind(key=each), as_utf8=as_utf8)
            assert list(read_schema(f"node_sets {{ {written} }}", "s").node_sets) == [each]


@given(st.text("{}<>[]:,;\"'\\n#- ae1.0x\n", max_size=40), st.booleans())
@settings(max_examples=200, deadline=None)
def test_any_text_is_read_or_refused(text: str, inside: bool) -> None:
    try:
        assert isinstance(read_schema(TEXT.replace("a paper", text) if inside else TEXT + text, "s"), GraphSchema)
    except UserError:
        return  # any other error fails the test


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("# A graph", "node_sets {", r"s:2: a member of node sets has no such field \(got 'node_sets'\)"),
        ('{ filename: "c@8" } }', '{ filename: "c@8" }', r"s:11: not protocol buffers' text format: .*Expected \"}\""),
        ("# A graph", 'node_sets { key: "p }', r"s:1: not protocol buffers' text format"),
        ("# A graph", "{" * 3, r"s:1: not"),
        ("# A graph", "a {" * 60 + "}" * 60, r"s:1: a schema has no such field \(got 'a'\)"),
        ("# A graph", 'description: "x"', r"s:1: a schema has no such field \(got 'description'\)"),
        ("# A graph", 'node_sets { key: "paper" }', r"s:2: the name occurs twice in node_sets \(got 'paper'\)"),
        ("# A graph", 'node_sets { key: "\\q" }', r"s:1: a string has a bad escape"),
        ("# A graph", 'node_sets { key: "\\377" }', r"s:1: a string has a bad escape, or is not UTF-8"),
        ("# A graph", "context {}", r"s:11: the field occurs twice"),
        ("DT_FLOAT", "DT_COMPLEX64", r"s:4: features of this type are not supported \(got 'DT_COMPLEX64'\)"),
        ("DT_FLOAT", "DT_SOFA", r"s:4, feature 'words': unknown data type \(got 'DT_SOFA'\)"),
        ("dtype: DT_FLOAT", "", r"s:4: feature 'words' has no known dtype \(got ''\)"),
        ("dtype: DT_FLOAT", 'dtype: "DT_FLOAT"', r"s:4, feature 'words': unknown data type \(got '\"DT_FLOAT\"'\)"),
        ("size: 128", "size: -2", r"s:4: not the size of a dimension \(got -2\)"),
        ("size: 128", "size: 1.5", r"s:4: not protocol buffers' text format: Couldn't parse integer: 1.5"),
        ("size: 128", "siz: 128", r"s:4: a dimension has no such field \(got 'siz'\)"),
        ("shape {}", "shape { unknown_rank: true }", r"s:5: a shape of unknown rank"),
        ("0x10", "-1", r"s:6: not a set's cardinality \(got -1\)"),
        ("cardinality: 0x10", 'bigquery { sql: "" }', r"s:6: tables in BigQuery are not read"),
        ('source: "paper"', 'source: "author"', r"s:8: the source of edge set 'ré' is no node set \(got 'author'\)"),
        ('target: "paper"', "", r"s:8: the target of edge set 'ré' is no node set \(got ''\)"),
        ('value: "reversed"', "value: {}", r"s:9: not protocol buffers' text format: Expected string but found: '{'"),
        ("FULL", "HALF", r"s:10: unknown type of graph \(got 'HALF'\)"),
    ],
)
def test_what_is_no_schema(old: str, new: str, error: str) -> None:
    assert old in TEXT
    with pytest.raises(UserError, match=error):
        read_schema(TEXT.replace(old, new), "s")


def test_a_schema_without_node_sets() -> None:
    with pytest.raises(UserError, match="no node sets"):
        read_schema("", "s")
