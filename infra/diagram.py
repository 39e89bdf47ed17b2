"""A superworkflow as its diagram: stages, what flows between them, and the digest that names each output.

The diagram function is called once with the settings and the sources; it runs no work. Because a digest depends on
parameters and inputs alone, every dataset's name is known before anything starts: the same diagram serves the
plan, the explanation and the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from superworkflow.infra.code_file import INPUT, CodeFile
from superworkflow.infra.declarations import check_declarations
from superworkflow.infra.errors import UserError
from superworkflow.infra.estimate import Stats, input_stats
from superworkflow.infra.outcomes import Drift, Metric, Model, Outcome, Picture
from superworkflow.infra.params import StageParams
from superworkflow.infra.stage import LOOK_BYTES, Stage
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.digest import dataset_digest
from superworkflow.infra.storage.names import is_word
from superworkflow.infra.storage.source import Source

Given = Source | Dataset
"""What a run is given from outside: a source, or a dataset that an earlier run made."""


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
        self, stage: Stage[Any], *, name: str | None = None, params: str | None = None, **inputs: Node | Given | None
    ) -> Node:
        """Add one stage.

        Args:
            stage: its definition.
            name: unique name, when the stage occurs more than once.
            params: prefix of its parameters, one of the superworkflow's `prefixes`; the stage's name by default, so
                that nodes of one stage share their parameters.
            inputs: nodes or what is given, by input name; None leaves an optional input out.

        Raises:
            ValueError: an input that is missing or unknown, or a name that is taken.
            UserError: a prefix that is not declared, or is another stage's.
        """
        name = name or stage.name
        given = {key: value for key, value in inputs.items() if value is not None}
        missing = [key for key, declared in stage.inputs.items() if key not in given and not declared.optional]
        unknown = [key for key in given if key not in stage.inputs]
        if missing or unknown or name in self.nodes:
            raise ValueError(f"diagram node {name}: missing inputs {missing}, unknown inputs {unknown}, or name taken")
        for key, value in given.items():
            if isinstance(value, Source):
                stage.inputs[key].open(value)
        prefix = params or stage.name
        values = self._params.get(prefix)
        if not isinstance(values, stage.params):
            remedy = f"Declare it in the superworkflow: prefixes={{{prefix!r}: <stage {stage.name}>}}"
            raise UserError(f"no prefix of parameters of stage {stage.name}", where=f"diagram node {name}",
                            value=prefix, remedy=remedy)  # fmt: skip
        code = self._codes.get(stage.name)
        digest = dataset_digest(stage.name, stage.version, values.identity(), _input_digests(stage, given, code))
        node = Node(name, stage, values, given, digest, prefix, code)
        self.nodes[name] = node
        return node


class NoOptions(StageParams):
    """Options of a superworkflow that has none."""


@dataclass(frozen=True)
class Flag:
    """A command-line flag that sets one parameter, to true or to the text that follows it.

    Args:
        parameter: dotted name, such as `index.directed`.
        help: one line for people.
        metavar: what the text is, for people; without it none follows.
    """

    parameter: str
    help: str
    metavar: str = ""


@dataclass(frozen=True)
class Export:
    """Another format of a result, written on request.

    Args:
        node: name of the node whose dataset is written.
        function: import string of `function(dataset, path)`, which writes a file there, or makes a folder of it.
        filename: ending of its name.
    """

    node: str
    function: str
    filename: str


@dataclass(frozen=True)
class Superworkflow:
    """One pipeline that users run by name.

    Args:
        name: as on the command line.
        stages: all stages that the diagram may use.
        sources: help text of each source by name; the ones in `optional` may be left out, those in `datasets` are
            datasets of earlier runs.
        diagram: adds the nodes, given the diagram and the sources by name.
        options: the pipeline's own options, set as `<name>.<option>`.
        optional: names of sources that may be left out.
        datasets: names of sources that are datasets.
        flags: command-line flags of its own, by name.
        outputs: what a run's summary names: title to (node name, name of a file, folder or pattern in its dataset).
        exports: formats that `--export` can write, by name.
        outcomes: metrics by which runs are judged, the preferred first, models to register and pictures to draw.
        prefixes: stages that occur with parameters of their own, by the prefix of these; nodes name it in
            `Diagram.stage(…, params=prefix)`.
        variants: entries that it adds to the `stages` of profiles, by the `variant` of the profile.
        drift: how a run is compared with an earlier one.
        code: the user's file that defines it; set by whoever has run that.
        own: names of the stages that this file defines.
    """

    name: str
    stages: tuple[Stage[Any], ...]
    sources: Mapping[str, str]
    diagram: Callable[..., None]
    options: type[StageParams] = NoOptions
    optional: frozenset[str] = frozenset()
    datasets: frozenset[str] = frozenset()
    flags: Mapping[str, Flag] = field(default_factory=dict)
    outputs: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    exports: Mapping[str, Export] = field(default_factory=dict)
    help: str = ""
    outcomes: tuple[Outcome, ...] = ()
    prefixes: Mapping[str, Stage[Any]] = field(default_factory=dict)
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    drift: Drift | None = None
    code: CodeFile | None = None
    own: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for prefix in self.prefixes:
            taken = [self.name, *(stage.name for stage in self.stages), *self.sources]
            if not is_word(prefix) or prefix in taken:
                raise UserError(
                    "not a prefix that parameters can have", where=f"superworkflow {self.name}: prefixes",
                    value=prefix, remedy="Give a word of small letters, digits and _ that no stage or source has",
                )  # fmt: skip

    def models(self) -> dict[str, type[StageParams]]:
        """Parameter models by prefix: of each stage, of those that have further prefixes, and of the options."""
        own = {prefix: stage.params for prefix, stage in self.prefixes.items()}
        return {stage.name: stage.params for stage in self.stages} | own | {self.name: self.options}

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return tuple(each for each in self.outcomes if isinstance(each, Metric))

    @property
    def registered(self) -> tuple[Model, ...]:
        return tuple(each for each in self.outcomes if isinstance(each, Model))

    @property
    def drift_names(self) -> tuple[str, ...]:
        """Names of the figures of drift that a run may report."""
        return tuple(name for stage in self.stages for name in stage.drift)

    @property
    def pictures(self) -> tuple[Picture, ...]:
        return tuple(each for each in self.outcomes if isinstance(each, Picture))

    def build(self, params: Mapping[str, StageParams], sources: Mapping[str, Given]) -> Diagram:
        """The diagram for these settings.

        Raises:
            UserError: a source is missing, or an outcome is declared wrongly.
        """
        for name in self.sources:
            if name not in sources and name not in self.optional:
                raise UserError(
                    f"{self.name} needs {self.sources[name]}", where=name, remedy=f"Give it with --{name} FILE"
                )
        diagram = Diagram(params, params[self.name], {name: self.code for name in self.own if self.code is not None})
        self.diagram(diagram, **{name: sources.get(name) for name in self.sources})
        if self.code is not None:
            self._check_stages(diagram)
        check_declarations(self, diagram.nodes, params)
        return diagram

    def _check_stages(self, diagram: Diagram) -> None:
        """Refuse a stage that is not declared: nobody has seen whether its name is another's."""
        declared = [*self.stages, *self.prefixes.values()]
        for node in diagram.nodes.values():
            if not any(node.stage is each for each in declared):
                raise UserError("this stage is not declared", where=f"superworkflow {self.name}: node {node.name}",
                                value=node.stage.name, remedy="Name it in stages=(…)")  # fmt: skip
