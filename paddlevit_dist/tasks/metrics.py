"""A task's scores as the engine sees them: sums that ranks add up, and what intervals and tables need of samples."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from ..intervals import ConfidenceInterval


class SampleTable(NamedTuple):
    """The samples of an evaluation for a file, from which a comparison computes scores again without the metrics.

    Attributes:
        kind: of scores; the extension ``compare`` knows which it can compute of which.
        classes: names of classes, or of landmarks.
        arrays: of numbers or booleans, by name.
    """

    kind: str
    classes: Sequence[str]
    arrays: Mapping[str, np.ndarray]


OfMetrics = TypeVar("OfMetrics", bound="Metrics")


class Metrics:
    """Additive evaluation state: sums and counts that are divided once, after those of all ranks have been added.

    A subclass keeps float64 and int64 tensors or numbers in ``state``. One that gives ``per_sample`` and ``resampled``
    has intervals beside its values.
    """

    #: by name of a value, when ``summary`` is called; empty where there are none
    intervals: Mapping[str, ConfidenceInterval] = {}
    #: names of the lists that grow with each sample or batch
    lists: ClassVar[Sequence[str]] = ()

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}

    def merge(self: OfMetrics, other: OfMetrics) -> None:
        """Add what others of the same settings have counted, whose samples follow after these."""
        self.state = {name: value + other.state[name] for name, value in self.state.items()}
        for name in self.lists:
            getattr(self, name).extend(getattr(other, name))

    def compute(self, state: dict[str, Any]) -> dict[str, float]:
        """Final values from a state that has been summed over all ranks."""
        raise NotImplementedError

    def summary(self, values: dict[str, float]) -> str:
        """The one line that an evaluation ends with. It is also asked for some of the samples: with the values that
        ``resampled`` gives, and no others."""
        raise NotImplementedError

    def per_sample(self) -> Sequence[np.ndarray] | None:
        """Return what ``resampled`` needs of this rank's samples: arrays (samples, ...) in the order in which they were
        added, small enough to be gathered from all ranks, of any dtype, also of objects. None: there are no intervals.

        Called on each rank, once, after ``compute``: it may wait for the device, which ``update`` should not.
        """
        return None

    def bootstrap_values(self, table: Sequence[np.ndarray], weights: np.ndarray) -> Mapping[str, np.ndarray]:
        """The values of samples that are drawn several times or not at all, by name, float (draws,); not a number where
        one is not defined. Called in the main process only.

        Args:
            table: what ``per_sample`` returned, of all ranks, ordered by the samples' indices.
            weights: float64 (draws, samples), how often each sample counts.
        """
        raise NotImplementedError

    def rates(self, table: Sequence[np.ndarray]) -> Mapping[str, int]:
        """Names of values that are the share in percent of things of which something is true (samples, those of a
        class), each with how many things there are: their intervals are Wilson's."""
        return {}

    def to_sample_table(self, table: Sequence[np.ndarray]) -> SampleTable | None:
        """The same table for a file. None: it is not kept. Called in the main process only, after ``resampled``."""
        return None

    def columns(self, table: Sequence[np.ndarray]) -> Mapping[str, Sequence[Any]]:
        """Return what a table for people says of each sample, by column, in the order of ``table``: numbers (an empty
        cell where one is not finite), booleans or texts; by default the values of the sample alone. Called in the main
        process only, after ``compute``."""
        rows = [[column[row : row + 1] for column in table] for row in range(len(table[0]))]
        alone = [self.bootstrap_values(row, np.ones((1, 1))) for row in rows]
        return {name: [float(values[name][0]) for values in alone] for name in alone[0]}

    def format_interval(self, name: str, decimals: int) -> str:
        """For ``summary``: the interval of a value after a space, nothing where there is none. One without width says
        nothing either: all samples are equal, and others would tell more."""
        interval = self.intervals.get(name)
        return f" {interval.ends(decimals)}" if interval is not None and interval.has_width() else ""
