"""Samples of validation that stand in the training set: found, shown, left out of a score. An extension: it can be
deleted (see ``extension``).

- ``perceptual``: a hash of images, and a second look at two of them; ``comparing``: many hashes with many
- ``fingerprints``: what is kept of each sample of a data set, also of scenes and volumes
- ``search``: the pairs of two data sets
- ``formatting``: the command ``inspect leaks``, and what ``inspect data`` says
- ``evaluation``: for ``evaluate -exclude_leaked``; ``settings``: keys
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..extension import CommandHelp, Extension, Flag
from ..runtime.compiled import has_numba

if TYPE_CHECKING:
    from ..engine.trainer import Trainer
    from ..settings.every_run import RunSettings
    from ..tasks.callback import Callback
    from ..tasks.task import Task


class LeakageExtension(Extension):
    """The command inspect leaks, what inspect data says of them, and -exclude_leaked."""

    commands = {"inspect leaks": "samples of validation that stand in training; takes the main flags"}
    about = {
        "inspect leaks": CommandHelp(
            "Find samples of validation that stand in training, too: leaks.json, leaks.png.",
            (
                "-cfg=finetune_folder -data_path=my_data",
                "-cfg=vit_tiny_patch16_224 -data_path=/imagenet",
                "-cfg=detr_shapes -output=output/look",
            ),
        )
    }
    flags = (Flag("exclude_leaked", None, "EXCLUDE_LEAKED", "data", "evaluate also without samples seen in training"),)

    def run_command(self, name: str, words: list[str]) -> None:
        from .formatting import run

        run(words)

    def callbacks(self, run: Trainer, trains: bool) -> Sequence[Callback]:
        if trains or not run.config["EXCLUDE_LEAKED"]:
            return ()
        from .evaluation import WithoutLeaks

        return (WithoutLeaks(run),)

    def data_inspected(self, config: RunSettings, task: Task, train: Any, folder: Path) -> None:
        if has_numba():
            from .formatting import show

            show(config, task, train, folder)
        else:
            print("leaks: not looked for without numba (pip install numba)")

    def evaluation_prepared(self, config: RunSettings, datasets: dict[str, Any], folder: Path) -> None:
        from .evaluation import find_in_training

        find_in_training(config, datasets, folder)


EXTENSION = LeakageExtension()

__all__ = ["EXTENSION"]
