"""Arguments of the training kernel, and the matrices and bounds of one block of a walk."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


class SkipGramLoss(NamedTuple):
    """Parameters of the objective; see `tasks.embed.kernel`.

    Args:
        window: W.
        negative: N.
        shared: K, a multiple of 4; short walks draw fewer.
        block: most positions that are trained together.
    """

    window: int
    negative: float
    shared: int
    block: int


class Steps(NamedTuple):
    """Parameters of the steps of rows.

    Args:
        bound: b of a row's step; see `tasks.embed.kernel`.
        first_rate, last_rate: learning rate, linear over the walks of a call.
        limit: squared norm of a row at which training has diverged.
    """

    bound: float
    first_rate: float
    last_rate: float
    limit: float


class BlockSide(NamedTuple):
    """One of the three matrices of a block: x, its centres, y, the contexts around them, or z, the negatives.

    Args:
        words: its factors in words of two along a row; of y and z transposed.
        pairs: its factors in words of two rows.
        norms: squared norms of its rows.
        curves: bounds of the objective's curvature along its rows.
    """

    words: Floats
    pairs: Floats
    norms: Floats
    curves: Floats


class BlockSlopes(NamedTuple):
    """Scores of a group of centres, and the objective's slopes by all scores of a block.

    Rows of `band_words` begin with the farthest context of the first centre of a group. Rows of `band_pairs` are words
    of two centres, their columns contexts: from the first one's farthest on, or as `_by_tiles` says. `turned` has room
    for the tiles of a sum over all centres; `gradients` are those of 16 rows, with their squared norms.
    """

    scores: Floats
    band_words: Floats
    band_pairs: Floats
    pool_words: Floats
    pool_pairs: Floats
    turned: Floats
    gradients: Floats
    gradient_norms: Floats


class ScoreWeights(NamedTuple):
    """Weights of the scores of a block.

    Args:
        pairs: w of a context, by its diagonal of the band.
        one_side: float64, sum of w over the contexts on one side, by the number of positions there.
        negative: N / K times the sum of w of each centre.
        inside: 1 for the centres, 0 for padding.
        ones: 1 for the negatives, 0 for padding.
        zeros: a row of zeros.
    """

    pairs: Floats
    one_side: Any
    negative: Floats
    inside: Floats
    ones: Floats
    zeros: Floats


class RowSlots(NamedTuple):
    """Numbers of the distinct rows of a block, in which curvatures of duplicates are added up.

    Args:
        keys, values: hash table, empty between blocks: -1.
        places: in the table, of the distinct rows.
        contexts, negatives: number of each row of y and z.
        centre_curves, context_curves: sums by number.
    """

    keys: Integers
    values: Integers
    places: Integers
    contexts: Integers
    negatives: Integers
    centre_curves: Floats
    context_curves: Floats


class BlockLayout(NamedTuple):
    """Sizes that all blocks share.

    Args:
        stride: floats of a row of factors or gradients, `dimensions` rounded up.
        reach: columns of a band that 8 centres meet, from the first one's farthest context on.
        band: `reach` rounded up.
        wide: slopes in a row of `band_words`.
        pairs_row: words of a row of `band_pairs`.
        y_rows, z_rows: words of a row of transposed factors.
    """

    dimensions: int
    window: int
    stride: int
    reach: int
    band: int
    wide: int
    pairs_row: int
    y_rows: int
    z_rows: int


class BlockBounds(NamedTuple):
    """Centres begin..end-1 of a walk, contexts start..stop-1 around them, and negatives chosen..chosen+pool-1.

    Args:
        lead: row of y where the contexts begin, so that the first of the first centre's is at a multiple of 4.
        shift: `begin` - `start`, rounded up to a multiple of 4.
        x_count, y_count, z_count: rows of x, y and z, rounded up.
    """

    begin: int
    end: int
    start: int
    stop: int
    chosen: int
    pool: int
    lead: int
    shift: int
    x_count: int
    y_count: int
    z_count: int
