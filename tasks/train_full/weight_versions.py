"""Versions of the weights: the way back uses those that its way forward used, also after an update."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # needs compiled kernels
    from superworkflow.tasks.train_full.whole_network import NetworkWeights


class WeightVersions:
    """Versions by number of updates; one is freed when it is not the latest and nobody uses it.

    Args:
        weights: the first version, whose arrays nobody changes.
        number: its number.
    """

    def __init__(self, weights: NetworkWeights, number: int = 0):
        self.latest = number
        self._weights, self._uses = {number: weights}, {number: 0}

    def acquire(self) -> int:
        """Number of the latest version, which is kept until it is released."""
        self._uses[self.latest] += 1
        return self.latest

    def weights(self, number: int) -> NetworkWeights:
        """Weights of a version that is kept."""
        return self._weights[number]

    def all(self) -> dict[int, NetworkWeights]:
        """All versions that are kept, by number."""
        return dict(self._weights)

    def release(self, number: int) -> None:
        """One use less."""
        self._uses[number] -= 1
        self._drop(number)

    def add(self, weights: NetworkWeights) -> None:
        """The next version."""
        before, self.latest = self.latest, self.latest + 1
        self._weights[self.latest], self._uses[self.latest] = weights, 0
        self._drop(before)

    def kept(self) -> list[int]:
        """Numbers of the versions that are kept."""
        return sorted(self._weights)

    def _drop(self, number: int) -> None:
        if number != self.latest and not self._uses[number]:
            del self._weights[number], self._uses[number]
