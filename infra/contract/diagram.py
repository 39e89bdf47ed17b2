"""A superworkflow as its diagram: stages, what flows between them, and the digest that names each output.

The diagram function is called once with the settings and the sources; it runs no work. Because a digest depends on
parameters and inputs alone, every dataset's name is known before anything starts: the same diagram serves the
plan, the explanation and the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.code_file import INPUT, CodeFile
from superworkflow.infra.contract.estimate import Stats, input_stats
from superworkflow.infra.contract.params import StageParams
from superworkflow.infra.contract.stage import LOOK_BYTES, Stage
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.digest import dataset_digest
from superworkflow.infra.storage.source import Source

Given = Source | Dataset
"""Input of a run: a source, or a dataset that an earlier run made."""


@dataclass(frozen=True)
class Node:
    """One stage at its place in a diagram.

    Args:
        name: unique in the diagram; the stage's name unless the stage occurs twice.
        stage: its definition.
        params: its validated parameters.
        inputs: other nodes, or what is given from outside, by input name.
        digest: names its dataset.
        prefix: under which its parameters are set; the stage's name unless the diagram gives it another.
        code: the user's file that defines the stage, if one does.
    """

    name: str
    stage: Stage[Any]
    params: StageParams
    inputs: Mapping[str, Node | Given]
    digest: str
    prefix: str
    code: CodeFile | None = None

    @property
    def input_digests(self) -> dict[str, str]:
        """Digests by name of all that its dataset is made from."""
        return _input_digests(self.stage, self.inputs, self.code)

    @property
    def upstream(self) -> list[Node]:
        return [given for given in self.inputs.values() if isinstance(given, Node)]

    def stats_of(self, name: str, look_bytes: int = LOOK_BYTES) -> Stats:
        """Stats of an input that is given from outside, as the stage's estimate reads them."""
        given = self.inputs[name]
        if isinstance(given, Source):
            return self.stage.inputs[name].stats_of(given, look_bytes)
        assert isinstance(given, Dataset)
        return input_stats(given)


def with_upstream(nodes: Iterable[Node]) -> list[Node]:
    """These nodes and all that they depend on, each once; the nearest first."""
    found: dict[str, Node] = {}
    queue = list(nodes)
    for node in queue:  # which grows
        if node.name not in found:
            found[node.name] = node
            queue += node.upstream
    return list(found.values())


def _input_digests(stage: Stage[Any], inputs: Mapping[str, Node | Given], code: CodeFile | None) -> dict[str, str]:
    digests = {name: given.digest for name, given in inputs.items() if stage.inputs[name].affects_result}
    return digests if code is None else {**digests, INPUT: code.sha256}


class Diagram:
    """Collects the nodes of one superworkflow, in an order in which they can run.

    Args:
        params: validated parameters by prefix.
        options: the superworkflow's own options.
        codes: the user's file that defines a stage, by the names of the stages that have one.
    """

    def __init__(
        self, params: Mapping[str, StageParams], options: StageParams, codes: Mapping[str, CodeFile] | None = None
    ):
        self.nodes: dict[str, Node] = {}
        self.options = options
        self._params = params
        self._codes = codes or {}

    def copy(self) -> Diagram:
        """Another diagram with the same nodes, to add some to."""
        other = Diagram(self._params, self.options, self._codes)
        other.nodes.update(self.nodes)
        return other

    def option(self, name: str) -> Any:
        """Value of one of the superworkflow's own options."""
        return getattr(self.options, name)

    def parameter(self, dotted: str) -> Any:
        """Value of a stage's parameter, such as `train.epochs`, for what is in the diagram only with some values."""
        prefix, _, name = dotted.partition(".")
        return getattr(self._params[prefix], name)

    def stage(
        self, stage: Stage[Any], *, name: str | None = None, params: str | None = None,
        defaults: Mapping[str, Any] | None = None, **inputs: Node | Given | None,
    ) -> Node:  # fmt: skip
        """Add one stage.

        Args:
            stage: its definition.
            name: unique name, when the stage occurs more than once.
            params: prefix of its parameters, one of the superworkflow's `prefixes`; by default the stage's name, or
                the first of `Stage.params_of`, so that nodes of one stage share their parameters.
            defaults: values of parameters that nobody set, instead of the stage's own defaults.
            inputs: nodes or what is given, by input name; None leaves an optional input out.

        Raises:
            ValueError: an input that is missing or unknown, or a name that is taken.
            UserError: a prefix that is not declared, or is another stage's.
        """
        name = name or stage.name
        given = {key: value for key, value in inputs.items() if value is not None}
        missing = [key for key, declared in stage.inputs.items() if key not in given and not declared.optional]
        unknown = [key for key in given if key not in stage.inputs]
        faults = [f"missing inputs: {', '.join(missing)}"] if missing else []
        faults += [f"unknown inputs: {', '.join(unknown)} (it has {', '.join(stage.inputs)})"] if unknown else []
        faults += ["name taken: give this node another one, name=…"] if name in self.nodes else []
        if faults:
            raise ValueError(f"diagram node {name}: {'; '.join(faults)}")
        for key, value in given.items():
            if isinstance(value, Source):
                stage.inputs[key].open(value)
        prefix = params or (stage.params_of[0] if stage.params_of else stage.name)
        values = self._shared(stage) if stage.params_of else self._params.get(prefix)
        if not isinstance(values, stage.params):
            remedy = ("Add the stage to the superworkflow's stages" if prefix == stage.name else
                      f"Declare it in the superworkflow: prefixes={{{prefix!r}: <stage {stage.name}>}}")  # fmt: skip
            raise UserError(f"no prefix of parameters of stage {stage.name}", where=f"diagram node {name}",
                            value=prefix, remedy=remedy)  # fmt: skip
        if unset := {key: value for key, value in (defaults or {}).items() if key not in values.model_fields_set}:
            own = {key: getattr(values, key) for key in values.model_fields_set}
            values = stage.params.model_validate(own | unset)
        code = self._codes.get(stage.name)
        digest = dataset_digest(stage.name, stage.version, values.identity(), _input_digests(stage, given, code))
        node = Node(name, stage, values, given, digest, prefix, code)
        self.nodes[name] = node
        return node

    def _shared(self, stage: Stage[Any]) -> StageParams:
        """Parameters of a stage that reads those of others; only what it reads is in its digest."""
        others = [self._params[each] for each in stage.params_of if each in self._params]
        fields = stage.params.model_fields
        found = {name: getattr(values, name) for values in reversed(others) for name in fields if hasattr(values, name)}
        shared: StageParams = stage.params.model_validate(found)
        return shared


class NoOptions(StageParams):
    """Options of a superworkflow that has none."""
