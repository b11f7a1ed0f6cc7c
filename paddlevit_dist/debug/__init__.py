"""Debugging tools for training runs.

This is an extension: the folder can be deleted (see ``extension``).

- ``doctor``: checks of machine, data and first steps, with ``doctor_checks``
- ``selftest``: compares updates with different numbers of processes
- ``first_layer``: finds the layer whose values are not finite after a run has diverged, with ``layer_watch``
- ``profile``: records some updates with Paddle's profiler; ``settings``: keys
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
    """Command ``doctor``, flags ``-selftest`` and ``-profile``, and the search for non-finite layers."""

    commands = {"doctor": "check machine, data and the first steps of a training run; takes the main flags"}
    about = {
        "doctor": CommandHelp(
            "Checks versions, devices and memory; with -cfg or -data_path also data and some updates. "
            "Exit code: 0; 1 if a check fails; 2 if the command line or configuration is invalid.",
            ("", "-cfg=finetune_folder -data_path=my_data", "-cfg=vit_digits -ngpus=2"),
        ),
    }
    flags = (
        Flag("selftest", None, "SELFTEST", "run", "compare updates on one device with updates on all devices"),
        Flag("profile", "N", "PROFILE", "training", "record N updates with Paddle's profiler"),
    )
    job_key = "SELFTEST"

    def run_command(self, name: str, words: list[str]) -> None:
        """Run ``doctor``."""
        from .doctor import run

        run(words)

    def run_job(self, given: Configuration) -> None:
        """Run the self-test."""
        from .selftest import run

        run(given)

    def callbacks(self, run: Trainer, trains: bool) -> Sequence[Callback]:
        """Return the profiler's callback of a training run with ``-profile``."""
        if not (trains and run.config["PROFILE"]):
            return ()
        from .profile import ProfileCallback

        return (ProfileCallback(run),)

    def explain_not_finite(
        self, run: Trainer, batches: Sequence[dict[str, Any]], step: StepPosition, counts: dict[str, Any]
    ) -> list[str]:
        """Describe the first layer whose values are not finite."""
        from .first_layer import FirstLayerFinder

        return FirstLayerFinder(run)(batches, step, counts)


EXTENSION = DebugExtension()

__all__ = ["EXTENSION"]
