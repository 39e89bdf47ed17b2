"""Sampling specs: what they say, and what is refused, with the op's name."""

import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.params import parse_params
from superworkflow.tasks.lib.graph.heterograph import EdgeSet
from superworkflow.tasks.sample import STAGE
from superworkflow.tasks.sample.spec import Op, SamplingSpec, parse_spec

SEED = 'seed_op { op_name: "seed" node_set_name: "paper" }'
CITES = (
    'sampling_ops { op_name: "cited" input_op_names: ["seed"] edge_set_name: "cites" sample_size: 3 strategy: TOP_K }'
)
EDGES = {
    name: EdgeSet(name, source, target, 9, None, ())
    for name, source, target in (("cites", "paper", "paper"), ("writes", "author", "paper"))
}


def op(name: str = "b", **fields: str) -> str:
    """A sampling op with some fields given anew, or left out."""
    given = {"input_op_names": '"cited"', "edge_set_name": '"cites"', "sample_size": "2", "strategy": "RANDOM_UNIFORM"}
    text = " ".join(f"{key}: {value}" for key, value in (given | fields).items() if value)
    return f'sampling_ops {{ op_name: "{name}" {text} }}'


def test_whole_spec() -> None:
    several = op(input_op_names="['cited', 'seed']", strategy="2")
    text = f"# two hops\n{SEED} {CITES}\n{several} " + op("c", strategy="")
    spec = parse_spec(text, "spec.pbtxt")
    assert spec == SamplingSpec(
        "spec.pbtxt", "seed", "paper", False,
        (
            Op("cited", ("seed",), "cites", 3, "TOP_K"),
            Op("b", ("cited", "seed"), "cites", 2, "RANDOM_WEIGHTED"),
            Op("c", ("cited",), "cites", 2, "TOP_K"),
        ),
    )  # fmt: skip
    assert [each.size for each in spec.sized(0.25, {"b": 7}).ops] == [1, 7, 1]
    assert spec.fitted(["paper", "author"], EDGES) == spec


def test_links_start_from_the_readout_sets() -> None:
    spec = parse_spec('symmetric_link_seed_op { op_name: "seed" } ' + CITES, "spec")
    assert spec.is_link
    assert spec.fitted(["paper"], EDGES).node_set == "paper"
    readout = {
        f"_readout/{end}": EdgeSet(f"_readout/{end}", "author", "_readout", 0, None, ()) for end in ("source", "target")
    }
    with pytest.raises(UserError, match="op cited: 'cites' starts from 'paper'"):
        spec.fitted(["paper", "author", "_readout"], EDGES | readout)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "one seed op"),
        (SEED + "symmetric_link_seed_op { op_name: 'x' }", "one seed op"),
        ("seed_op { op_name: 'seed' }", "no node set"),
        ("seed_op { node_set_name: 'paper' }", "no name"),
        (f"{SEED}{CITES}{op('cited')}", r"op cited: there are two ops of this name"),
        (f"{SEED}{CITES}{op(input_op_names='')}", "op b: the op has no inputs"),
        (f"{SEED}{CITES}{op(input_op_names=repr('cite'))}", r"op b: there is no such.*'cite'.*Did you mean cited"),
        (f"{SEED}{op()}{CITES}", "op b: an input op comes later"),
        (f"{SEED}{CITES}{op(input_op_names=repr('b'))}", "op b: an input op comes later, or is the op itself"),
        (f"{SEED}{CITES}{op(edge_set_name='')}", "op b: the op has no edge set"),
        (f"{SEED}{CITES}{op(sample_size='0')}", r"op b: sample_size is at least 1 \(got 0\)"),
        (f"{SEED}{CITES}{op(sample_size='-3')}", r"op b: sample_size is at least 1 \(got -3\)"),
        (f"{SEED}{CITES}{op(strategy='TOP')}", r"op b: unknown strategy \(got 'TOP'\). Did you mean TOP_K"),
        (f"{SEED}{CITES}{op(strategy='9')}", "op b: unknown strategy"),
        (f"{SEED}\nedge_sampling_ops {{ }}", r"spec:2: a SamplingSpec has no such field"),
        (f"{SEED}\n{CITES[:-1]}", "spec:2: not protocol buffers' text format"),
    ],
)  # fmt: skip
def test_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_spec(text, "spec")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SEED.replace("paper", "papers"), r"op seed: the graph has no such node set \(got 'papers'\)"),
        (f"{SEED}{CITES}{op(edge_set_name=repr('cite'))}", r"op b: the graph has no such edge set \(got 'cite'\)"),
        (f"{SEED}{CITES}{op(edge_set_name=repr('writes'))}", r"op b: 'writes' starts from 'author'.*'cited' does not"),
    ],
)  # fmt: skip
def test_does_not_fit_the_graph(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_spec(text, "spec").fitted(["paper", "author"], EDGES)


@pytest.mark.parametrize(
    "params",
    [{"repeats": 0}, {"repeats": 1001}, {"size_factor": 0.2}, {"sizes": {"cited": 0}}, {"fractions": [0.5, 0.1, 0.1]},
     {"fractions": [1]}, {"aggregation": "graph"}, {"inputs": "twice"}, {"spark_mode": "alone"}],
)  # fmt: skip
def test_refused_parameters(params: dict[str, object]) -> None:
    with pytest.raises(UserError):
        parse_params(STAGE.params, params, "sample")


def test_size_of_an_unknown_op() -> None:
    with pytest.raises(UserError, match=r"sample.sizes: the spec has no such op \(got 'cite'\). Did you mean cited"):
        parse_spec(SEED + CITES, "spec").sized(1, {"cite": 3})
