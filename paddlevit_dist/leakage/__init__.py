"""Find validation samples that are also in the training set, and evaluate without them.

This is an extension: the folder can be deleted (see ``extension``).

- ``perceptual``: perceptual hash of an image, and similarity of two images; ``comparing``: nearest hashes
- ``fingerprints``: digests and hashes of all samples of a dataset, also of scenes and volumes
- ``search``: pairs of copies in two datasets
- ``formatting``: the command ``inspect leaks``, and the lines that ``inspect data`` adds
- ``evaluation``: ``evaluate -exclude_leaked``; ``settings``: keys
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..extension import CommandHelp, Extension, Flag
from ..runtime.compiled import has_numba

if TYPE_CHECKING:
    from ..engine.trainer import Trainer
    from ..settings.every_run import RunSettings
    from ..tasks.callback import Callback
    from ..tasks.task import Task
    from .settings import LeakageSettings


class LeakageExtension(Extension):
    """Command ``inspect leaks``, the leaks that ``inspect data`` reports, and ``-exclude_leaked``."""

    commands = {"inspect leaks": "find validation samples that are also in the training set; takes the main flags"}
    about = {
        "inspect leaks": CommandHelp(
            "Find validation samples that are also in the training set; writes leaks.json and leaks.png.",
            (
                "-cfg=finetune_folder -data_path=my_data",
                "-cfg=vit_tiny_patch16_224 -data_path=/imagenet",
                "-cfg=detr_shapes -output=output/look",
            ),
        )
    }
    flags = (Flag("exclude_leaked", None, "EXCLUDE_LEAKED", "data", "also evaluate without samples seen in training"),)

    def run_command(self, name: str, words: list[str]) -> None:
        """Run ``inspect leaks``."""
        from .formatting import run

        run(words)

    def callbacks(self, run: Trainer, trains: bool) -> Sequence[Callback]:
        """Return the callback of an evaluation with ``-exclude_leaked``."""
        if trains or not run.config["EXCLUDE_LEAKED"]:
            return ()
        from .evaluation import WithoutLeaks

        return (WithoutLeaks(run),)

    def data_inspected(self, config: RunSettings, task: Task, train: Any, folder: Path) -> None:
        """Print the leaks that a search of a few seconds finds."""
        if has_numba():
            from .formatting import show

            show(config, task, train, folder)
        else:
            print("leaks: not searched, since numba is not installed (pip install numba)")

    def evaluation_prepared(self, config: RunSettings, datasets: dict[str, Any], folder: Path) -> None:
        """Find leaked samples before the evaluation starts."""
        from .evaluation import find_in_training

        settings = cast("LeakageSettings", config)  # a run has the keys of all extensions
        find_in_training(settings, datasets, folder)


EXTENSION = LeakageExtension()

__all__ = ["EXTENSION"]
