"""Means to find out why a training does not do what it should. An extension: it can be deleted (see ``extension``).

- ``doctor``: checks of machine, data and first steps, with ``doctor_checks``
- ``selftest``: the same updates with other numbers of processes
- ``first_layer``: which layer makes an update that ends the run not finite, with ``layer_watch``
- ``profile``: where the time of some updates goes; ``settings``: keys
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..extension import CommandHelp, Extension, Flag

if TYPE_CHECKING:
    from ..engine.trainer import Trainer
    from ..settings import Configuration
    from ..tasks.callback import Callback
    from ..tasks.task import StepPosition


class DebugExtension(Extension):
    """The command doctor, -selftest and -profile, and an explanation of what is not finite."""

    commands = {"doctor": "whether machine, data and first steps of a training are in order; takes the main flags"}
    about = {
        "doctor": CommandHelp(
            "Checks versions, devices and memory; with -cfg or -data_path also data and some updates. "
            "Exit code: 0, 1 if a check fails, 2 for a mistake.",
            ("", "-cfg=finetune_folder -data_path=my_data", "-cfg=vit_digits -ngpus=2"),
        ),
    }
    flags = (
        Flag("selftest", None, "SELFTEST", "run", "compare updates with one device and with all"),
        Flag("profile", "N", "PROFILE", "training", "record N updates with Paddle's profiler"),
    )
    job_key = "SELFTEST"

    def run_command(self, name: str, words: list[str]) -> None:
        from .doctor import run

        run(words)

    def run_job(self, given: Configuration) -> None:
        from .selftest import run

        run(given)

    def callbacks(self, run: Trainer, trains: bool) -> Sequence[Callback]:
        if not (trains and run.config["PROFILE"]):
            return ()
        from .profile import ProfileCallback

        return (ProfileCallback(run),)

    def explain_not_finite(
        self, run: Trainer, batches: Sequence[dict[str, Any]], step: StepPosition, counts: dict[str, Any]
    ) -> list[str]:
        from .first_layer import FirstLayer

        return FirstLayer(run)(batches, step, counts)


EXTENSION = DebugExtension()

__all__ = ["EXTENSION"]
