"""Starts the tiny runs of a campaign: base weights, training runs, and interrupted ones."""

import re
import shutil
import signal
import threading
from pathlib import Path
from typing import NamedTuple

from support.processes import start_command, wait_until

from .commands import LIMIT_SECONDS, TOOL, execute, succeed
from .features import TASKS, list_features
from .materials import Materials
from .values import Combination

EPOCHS = 2
BASE_SECONDS = 240.0  # one takes 3 to 30 s alone on a core; a slower one leaves a night no time for combinations
_USUAL = "VALIDATE_FREQ 1"


class BaseRunError(AssertionError):
    """The run whose weights all combinations of a network start from failed, or took too long.

    Args:
        words: its command, without the name of the program.
        reason: how it ended.
    """

    def __init__(self, words: list[str], reason: object) -> None:
        super().__init__(f"the base run: {reason}")
        self.words = words


class Run(NamedTuple):
    """A finished training run: its output folder, exit code and what it printed."""

    folder: Path
    code: int
    text: str


class Bench:
    """Runs of one task in one folder; what a combination has trained is kept until ``forget``.

    Attributes:
        failed_bases: network -> how its base run failed.
    """

    _base_lock = threading.RLock()

    def __init__(self, task: str, work: Path, folder: Path, materials: Materials) -> None:
        self.task, self.about = task, TASKS[task]
        self.work, self.folder, self.materials = work, folder, materials
        self.features = list_features(task)
        self.default = {name: next(iter(values)) for name, values in self.features.items()}
        self.failed_bases: dict[str, BaseRunError] = {}
        self._runs: dict[tuple, Run] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def list_changes(self, combination: Combination) -> Combination:
        """List the settings that differ from the defaults."""
        return {name: value for name, value in combination.items() if value != self.default[name]}

    def make_words(self, combination: Combination) -> list[str]:
        """Make the words of ``train``; the effective batch is the same for any split of it."""
        batch = self.about.batch // int(combination["processes"]) // int(combination["accumulation"])
        values = [self.features[name][value].words for name, value in combination.items()]
        text = f"{_USUAL} {' '.join(values)} DATA.BATCH_SIZE {batch}"
        text = re.sub(r"{data:(\w+)}", lambda found: str(self.materials.get(found[1])), text)
        text = re.sub(r"{address:(\w+)}", lambda found: self.materials.address(found[1]), text)
        return re.sub(r"{base:(\w+)}", lambda found: f"{self.get_base(found[1])}/model.pdparams", text).split()

    def make_train_words(self, combination: Combination, folder: Path) -> list[str]:
        """Make the words of ``train``; raise BaseRunError if the weights to start from cannot be trained."""
        start = f"-pretrained={self.get_base(combination['model'])}"
        return ["train", *self.make_words(combination), f"-epochs={EPOCHS}", start, f"-output={folder}"]

    def get_base(self, model: str) -> Path:
        """Return the weights of a short run with the default settings, from which all runs of a network start.

        A base run that failed is not tried again: each combination that needs it raises its BaseRunError.
        """
        if model in self.failed_bases:
            raise self.failed_bases[model]
        folder = self.work / self.task / f"base_{model.replace(':', '_')}"
        with self._base_lock:
            if not (folder / "complete").exists():
                shutil.rmtree(folder, ignore_errors=True)
                words = self.make_words(self.default | {"model": model, "interval": "off"})
                start = TASKS[self.task].models[model].start.split()
                options = [word for word in start if word.startswith("-")]
                keys = [word for word in start if not word.startswith("-")]
                command = ["train", *options, *words, *keys, f"-output={folder}"]
                try:
                    succeed(*command, limit_seconds=BASE_SECONDS)
                except AssertionError as error:
                    is_slow = f"ran longer than {BASE_SECONDS}" in str(error)
                    reason = f"longer than {BASE_SECONDS:.0f} s" if is_slow else error
                    self.failed_bases[model] = BaseRunError(command, reason)
                    raise self.failed_bases[model] from error
                (folder / "complete").touch()
        return folder / "checkpoints/last"

    def train(self, combination: Combination) -> Run:
        """Train with these settings without an interruption, once."""
        key = tuple(sorted(combination.items()))
        if key not in self._runs:
            folder = self.folder / f"run{len(self._runs)}"
            shutil.rmtree(folder, ignore_errors=True)
            ended = execute(*self.make_train_words(combination, folder))
            self._runs[key] = Run(folder, ended.code, ended.out + ended.err)
        return self._runs[key]

    def get_checkpoint(self, combination: Combination) -> Path:
        return self.train(combination).folder / "checkpoints/last"

    def train_interrupted(self, combination: Combination) -> Run:
        """Train with these settings, interrupt the run as the combination says, and resume it to its end."""
        folder, how = self.folder / "interrupted", combination["interruption"]
        shutil.rmtree(folder, ignore_errors=True)
        words = self.make_train_words(combination, folder)
        if how == "stop":
            succeed(*words, "-stop_after_epoch=1")
        else:
            process = start_command([*TOOL, *words], is_copy=True)
            wait_until(
                lambda: process.poll() is not None or any((folder / "checkpoints").glob("[eu]*_*/manifest.json")),
                "no checkpoint was written",
                LIMIT_SECONDS,
            )
            if process.poll() is None:
                number = signal.SIGKILL if how == "kill" else signal.SIGTERM
                process.send_signal(number)
            process.communicate(timeout=LIMIT_SECONDS)
        ended = execute(*words, "-resume=auto")
        return Run(folder, ended.code, ended.out + ended.err)

    def forget(self) -> None:
        """Forget all runs, so that their folders are used again."""
        self._runs.clear()
