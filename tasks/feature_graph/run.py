"""The work of stage `feature_graph`."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageRun
from superworkflow.infra.storage.manifest import Stat
from superworkflow.tasks.feature_graph import MOST_CLASSES, VALUES, SamplesParams
from superworkflow.tasks.feature_graph.tables import TABLE_FILE, is_table, read_table
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning, log_warnings, warning_stats
from superworkflow.tasks.lib.formats.svmlight import Samples, read_samples
from superworkflow.tasks.lib.linear_model import MEAN, SCALE
from superworkflow.tasks.lib.vertex.program import CLASSES, CONSTANT, SIDE

_MANY_CLASSES, _LEAST_OF_CLASS = 20, 4
"""Classes above which labels may be numbers, if a class has fewer samples than this on average."""
_UNLIKE = 100.0
"""Ratio of features' sizes, above which a warning names it."""
_CONSTANT = 1e-7
"""Deviation of a feature, as a share of its mean, up to which it has one value."""


def run(job: StageRun[SamplesParams]) -> Output:
    """Make the graph; see `tasks.feature_graph`.

    Raises:
        UserError: a line is bad, no sample has a feature, or the labels are no classes.
    """
    source, of_classes = job.sources["samples"], job.params.labels == "classes"
    table, warnings = None, list[InputWarning]()
    if is_table(source.local(job.scratch), source.uri):
        samples, table, warnings = read_table(job, source)
    else:
        samples = read_samples(source.local(job.scratch), source.uri)
    if not samples.matrix.nnz:
        raise UserError("no sample has a feature", where=source.uri, remedy="Give lines such as: 1 3:0.5 7:2")
    constants = int(job.params.intercept)
    if not of_classes:
        constants *= max(1, samples.matrix.nnz // (VALUES * len(samples.labels)))
    scaled = job.params.scale is not False
    if table is None:
        doubts, scaled = _sizes(samples, job.params, source.uri)
        warnings += doubts
    mean = scale = np.zeros(0)
    if scaled:
        scaled_matrix, mean, scale = _scaled(samples.matrix, of_classes, job.params.intercept)
        samples = samples._replace(matrix=scaled_matrix)
    columns, matrix = _by_frequency(samples, constants)
    count, features = matrix.shape
    if count + features >= 1 << 31:
        raise UserError("samples and features are fewer than 2³¹", where=source.uri, value=count + features,
                        remedy="Give a part of the samples")  # fmt: skip
    transposed = matrix.T.tocsr()
    lengths = np.diff(matrix.indptr), np.diff(transposed.indptr)
    updated, resting = (matrix, 1) if of_classes else (transposed, 0)
    value_lengths = [np.zeros_like(each) if side == resting else each for side, each in enumerate(lengths)]
    side = np.repeat(np.array([0, 1], np.int32), [count, features])
    side[count + len(columns) :] = CONSTANT
    job.output.array("indptr.npy", _starts(np.concatenate(lengths)))
    job.output.array("indices.npy", np.concatenate([matrix.indices + count, transposed.indices]).astype(np.int32))
    job.output.array("value.npy", updated.data)
    job.output.array("value_indptr.npy", _starts(np.concatenate(value_lengths)))
    job.output.array(f"{SIDE}.npy", side)
    job.output.array("feature.npy", columns)
    if scaled:
        job.output.array(SCALE, scale[columns])
        job.output.array(MEAN, mean[columns])
    if table is not None:
        job.output.json(TABLE_FILE, table._asdict())
    stats: dict[str, Stat] = {
        "vertices": count + features, "edges": matrix.nnz, "directed": False, "weighted": False, "bipartite": True,
        "samples": count, "features": len(columns), "intercept": job.params.intercept, "distance": 2,
        "updated_side": 0 if of_classes else 1,
    }  # fmt: skip
    labels = samples.labels
    if of_classes:
        classes, numbers = np.unique(labels, return_inverse=True)
        if not 2 <= len(classes) <= MOST_CLASSES:
            raise UserError(f"labels are 2 to {MOST_CLASSES} classes", where=source.uri, value=len(classes),
                            remedy="Give each sample its class as the label")  # fmt: skip
        labels = numbers.astype(np.int32)
        job.output.json(
            CLASSES, classes.tolist() if classes.dtype.kind == "U" else [f"{each:.17g}" for each in classes]
        )
        stats |= {"classes": len(classes), "problems": len(classes) if len(classes) > 2 else 1}
    job.output.array("label.npy", np.concatenate([labels, np.zeros(features, labels.dtype)]))
    job.progress.log(f"{count} samples, {len(columns)} features, {samples.matrix.nnz} values")
    different = int(stats.get("classes") or 0)
    if different > max(_MANY_CLASSES, count // _LEAST_OF_CLASS):
        warnings.append(InputWarning(
            "labels that look like numbers are read as classes", source.uri, f"{different} among {count} samples",
            "Run lasso, which predicts numbers",
        ))  # fmt: skip
    log_warnings(job.progress, warnings)
    return Output(rows=count, stats=stats | warning_stats(warnings))


def _sizes(samples: Samples, params: SamplesParams, where: str) -> tuple[list[InputWarning], bool]:
    """A warning of features whose penalty depends on their units, and whether features are scaled."""
    times = np.bincount(samples.matrix.indices, minlength=samples.matrix.shape[1])
    squares = np.bincount(samples.matrix.indices, samples.matrix.data**2.0, len(times))
    often = (times >= max(1, len(samples.labels) // 10)) & (squares > 0)
    sizes = np.sqrt(squares[often] / times[often]) if often.any() else np.ones(1)
    ratio = sizes.max() / sizes.min()
    if ratio <= _UNLIKE or params.scale is True:
        return [], params.scale is True
    done, settle = "each is scaled", "Set feature_graph.scale=false to take them as they are"
    if params.scale is False:
        done, settle = "the penalty counts those of small values most", "Set feature_graph.scale=true"
    warning = InputWarning(f"features are of unlike sizes, and {done}", where,
                           f"roots of mean squares differ {ratio:.3g}-fold", settle)  # fmt: skip
    return [warning], params.scale == "auto"


def _scaled(
    matrix: sp.csr_array, of_classes: bool, intercept: bool
) -> tuple[sp.csr_array, NDArray[np.float64], NDArray[np.float64]]:
    """Values less the mean of their feature and by its size; the means and sizes.

    The mean is 0 without an intercept and of features most of whose values are 0. Their size is the deviation, or of
    classes the largest absolute value; that of others is the deviation; 1 where that is 0.
    """
    samples, features = matrix.shape
    times = np.bincount(matrix.indices, minlength=features)
    means = np.bincount(matrix.indices, matrix.data, features) / samples
    apart = np.bincount(matrix.indices, (matrix.data - means[matrix.indices]) ** 2, features)
    scale = np.sqrt((apart + (samples - times) * means**2) / samples)
    scale[scale <= _CONSTANT * np.abs(means)] = 0
    centred = (2 * times >= samples) & intercept
    if of_classes:
        largest = np.zeros(features)
        np.maximum.at(largest, matrix.indices, np.abs(matrix.data))
        scale = np.where(centred, scale, largest)
    means = np.where(centred, means, 0)
    columns = np.flatnonzero(centred)
    there = centred[matrix.indices]
    rest = matrix.copy()
    rest.data[there] = 0
    shifted = matrix[:, columns].toarray() - means[columns]
    shifted[:, scale[columns] == 0] = 0
    place = sp.csr_array((np.ones(len(columns)), (np.arange(len(columns)), columns)), (len(columns), features))
    found = sp.csr_array(rest + sp.csr_array(shifted) @ place)
    scale = np.where(scale > 0, scale, 1.0)
    found.data /= scale[found.indices]
    found.eliminate_zeros()
    return found, means, scale


def _by_frequency(samples: Samples, constants: int) -> tuple[NDArray[np.int64], sp.csr_array]:
    """Columns that occur, the most frequent first, and the samples' values in this order, then constants of 1."""
    occurrences = np.bincount(samples.matrix.indices, minlength=samples.matrix.shape[1])
    columns = np.argsort(-occurrences, kind="stable")[: np.count_nonzero(occurrences)]
    order = np.empty(len(occurrences), np.int64)
    order[columns] = np.arange(len(columns))
    matrix = sp.csr_array(
        (samples.matrix.data, order[samples.matrix.indices], samples.matrix.indptr),
        (len(samples.labels), len(columns)),
    )
    if constants:
        matrix = sp.csr_array(sp.hstack([matrix, np.ones((len(samples.labels), constants))], format="csr"))
    matrix.sort_indices()
    return columns, matrix


def _starts(lengths: NDArray[np.integer]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
