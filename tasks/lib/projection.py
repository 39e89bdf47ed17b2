"""Two dimensions for the eye: principal components, then t-SNE of those (van der Maaten and Hinton, JMLR 2008)."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

COMPONENTS = 50
ITERATIONS = 500
PERPLEXITY = 30.0


def project(vectors: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
    """Place `[n, d]` vectors in the plane: float32 `[n, 2]`.

    Runs on one thread, because sums over several would depend on how many there are. Fewer than five vectors, or ones
    that are all equal, are placed by their principal components alone.
    """
    components = principal_components(vectors.astype(np.float64), COMPONENTS)
    plane = np.zeros((len(vectors), 2))
    plane[:, : components.shape[1]] = components[:, :2]
    spread = plane[:, 0].std() if len(plane) else 0.0
    if len(vectors) >= 5 and spread > 0:
        from sklearn.manifold import TSNE  # half a second to import, and not needed without a picture

        model = TSNE(
            init=(plane / spread * 1e-4).astype(np.float32), perplexity=min(PERPLEXITY, (len(vectors) - 1) / 3),
            max_iter=ITERATIONS, random_state=seed, n_jobs=1,
        )  # fmt: skip
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")
            plane = model.fit_transform(components)
    return plane.astype(np.float32)


def principal_components(vectors: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Coordinates along the `count` directions of largest variance; each axis points where its largest loading is."""
    centred = vectors - vectors.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    axes = axes[:, ::-1][:, :count]
    heaviest = np.abs(axes).argmax(axis=0)
    axes = axes * np.sign(axes[heaviest, np.arange(axes.shape[1])])
    return np.asarray(centred @ axes)
