"""The schedules of trials of a search: which runs are at the same place of the same one after equally many epochs."""

from pathlib import Path
from typing import NamedTuple

from ...core.runtime.text_files import read_yaml


class TrialSchedule(NamedTuple):
    """What decides how much of its score a run still has to gain after an epoch; runs with equal ones are compared."""

    epochs: int
    name: str  # TRAIN.LR_SCHEDULER.NAME
    drops: tuple[int, ...]  # of a step schedule: numbers of epochs after which the learning rate falls

    @classmethod
    def read(cls, folder: str) -> "TrialSchedule":
        """Read the schedule of a run from its folder; its epochs may follow from the size of the training set."""
        train = read_yaml(Path(folder, "config.yaml"))["TRAIN"]
        epochs, decay = int(train["NUM_EPOCHS"]), train.get("LR_SCHEDULER", {})
        name, milestones = decay.get("NAME", ""), decay.get("MILESTONES", ())
        return cls(epochs, name, tuple(epoch for epoch in milestones if epoch < epochs) if name == "step" else ())

    def find_settled(self) -> int:
        """Return the first epoch after the last drop.

        Until a drop, a higher rate scores lower than a lower one, and gains more by the drop: a score says nothing
        about which of the two ends better.
        """
        return 1 + max(self.drops, default=0)
