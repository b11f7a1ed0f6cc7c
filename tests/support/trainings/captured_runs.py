"""Short runs whose passes are captured (TRAIN.CAPTURE) by a graph for CPUs, beside the same runs without a graph."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np

from support.networks.plain_layers import plain_layers
from support.recorded_graph import recorded_graphs
from support.trainings.recipe_steps import read_losses
from support.trainings.small_runs import make_trainer, make_weights

CAPTURED = "passes are captured (TRAIN.CAPTURE), and equal"
UPDATES = 3  # fewer are not captured
FEW = MappingProxyType({"train": 48, "val": 16})


def require_the_same_run(folder: Path, words: Sequence[str], sizes: Mapping[str, int] = FEW) -> None:
    """A configured run trains in a graph as without one. ``sizes``: of the splits, see ``make_trainer``."""

    def run(name: str, captures: bool) -> dict[str, np.ndarray]:
        trainer = make_trainer(folder / name, [*words, "TRAIN.CAPTURE", str(captures)], sizes)
        trainer.train()
        return make_weights(trainer)

    with plain_layers():
        with recorded_graphs() as graphs:
            found = run("captured", True)
        log = (folder / "captured" / "log.txt").read_text(encoding="utf-8")
        assert CAPTURED in log, next((line for line in log.splitlines() if "TRAIN.CAPTURE" in line), log)
        assert len(graphs) == 1 and graphs[0].replays > UPDATES
        expected = run("plain", False)
    np.testing.assert_allclose(read_losses(folder / "captured"), read_losses(folder / "plain"), rtol=1e-4)
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-3, atol=2e-4, err_msg=key)
