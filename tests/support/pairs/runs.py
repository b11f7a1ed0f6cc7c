"""Starts the tiny runs of a campaign: base weights, training runs, interrupted ones, and other commands on them."""

import itertools
import re
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from paddlevit_dist.checkpoint.unpickling import restricted_load
from support.hosts.range_server import RangeServer
from support.processes import Finished, run_command, start_command, wait_until

from .features import TASKS, Combination, list_features

EPOCHS = 2
LIMIT_SECONDS = 400.0
_TOOL = [sys.executable, "-m", "paddlevit_dist"]
_QUIET = "REPORT False EVALUATION.INTERVAL off VALIDATE_FREQ 1"


class BaseRunError(AssertionError):
    """The run whose weights all combinations of a network start from failed or hung.

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


def execute(*words: object) -> Finished:
    """Run a command of the package; a hang or a process that it leaves behind raises AssertionError."""
    return run_command([*_TOOL, *map(str, words)], timeout=LIMIT_SECONDS)


def get_last_line(ended: Finished) -> str:
    return ((ended.out + ended.err).strip().splitlines() or [""])[-1][:250]


def succeed(*words: object) -> str:
    """Run a command that must end well; return its last line."""
    ended = execute(*words)
    assert ended.code == 0, f"{words[0]}: exit code {ended.code}: {get_last_line(ended)}"
    return get_last_line(ended)


def read_printed(folder: Path, kind: str = "evaluation") -> dict[int, str]:
    """Read the lines that a training run printed after its epochs: epoch -> scores."""
    pattern = rf"epoch (\d+) {kind}: (.*?)(?: \(best .*\))?$"
    found = re.findall(pattern, (folder / "log.txt").read_text(encoding="utf-8"), re.MULTILINE)
    return {int(epoch): line for epoch, line in found}


def read_state(folder: Path, with_optimizer: bool = False) -> dict[str, np.ndarray]:
    """Read weights, averages and statistics of a checkpoint: "model/name" or "model_ema/name" -> array."""
    found = {}
    for part in ("model.pdparams", "model_ema.pdparams"):
        if (folder / part).exists():
            values = restricted_load(str(folder / part))
            arrays = {name: np.asarray(value) for name, value in values.items() if hasattr(value, "dtype")}
            found |= {f"{part.split('.')[0]}/{name}": array for name, array in arrays.items()}
    if with_optimizer:
        with np.load(folder / "optimizer.npz") as state:
            found |= {f"optimizer/{name}": state[name] for name in state.files}
    return found


class Materials:
    """The data of all runs: four unequal classes of images as folders, tar files and on a server; a context."""

    def __init__(self, work: Path) -> None:
        self.folder = work / "data"
        if not (self.folder / "complete").exists():
            shutil.rmtree(self.folder, ignore_errors=True)
            _draw_images(self.folder / "folder")
            for store in ("pages", "jpeg"):
                succeed("prepare", "images", self.folder / "folder", self.folder / store, f"-store={store}")
            succeed("prepare", "index", self.folder / "pages")
            (self.folder / "complete").touch()
        self.server = RangeServer(self.folder)

    def __enter__(self) -> "Materials":
        return self

    def __exit__(self, *_: object) -> None:
        self.server.__exit__()


def _draw_images(folder: Path) -> None:
    for split, label in itertools.product(("train", "val"), range(4)):
        count = (33 - 6 * label) // (3 if split == "val" else 1)
        for number in range(count):
            generator = np.random.default_rng([label, number, split == "val"])
            pixels = generator.integers(0, 120, (40 + number % 9, 44, 3), np.uint8)
            pixels[6 + label : 12 + 5 * label, 5 : 30 - 4 * label] = generator.integers(90, 255, 3)
            path = folder / split / f"class{label}" / f"{split}_{label}_{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)


class Bench:
    """Runs of one task in one folder; what a combination has trained is kept until ``forget``."""

    _base_lock = threading.Lock()

    def __init__(self, task: str, work: Path, folder: Path, materials: Materials) -> None:
        self.task, self.about = task, TASKS[task]
        self.work, self.folder, self.materials = work, folder, materials
        self.features = list_features(task)
        self.default = {name: next(iter(values)) for name, values in self.features.items()}
        self._runs: dict[tuple, Run] = {}
        self._failed_bases: dict[str, BaseRunError] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def list_changes(self, combination: Combination) -> Combination:
        """List the settings that differ from the defaults."""
        return {name: value for name, value in combination.items() if value != self.default[name]}

    def make_words(self, combination: Combination) -> list[str]:
        """Make the words of ``train``; the effective batch is the same for any split of it."""
        batch = self.about.batch // int(combination["processes"]) // int(combination["accumulation"])
        values = [self.features[name][value].words for name, value in combination.items()]
        text = f"{' '.join(values)} {_QUIET} DATA.BATCH_SIZE {batch}"
        text = text.replace("{work}", str(self.materials.folder)).replace("{address}", self.materials.server.address())
        return re.sub(r"{base:(\w+)}", lambda found: f"{self.get_base(found[1])}/model.pdparams", text).split()

    def make_train_words(self, combination: Combination, folder: Path) -> list[str]:
        """Make the words of ``train``; raise BaseRunError if the weights to start from cannot be trained."""
        start = f"-pretrained={self.get_base(combination['model'])}"
        return ["train", *self.make_words(combination), f"-epochs={EPOCHS}", start, f"-output={folder}"]

    def get_base(self, model: str) -> Path:
        """Return the weights of one epoch with the default settings, from which all runs of a network start.

        A base run that failed is not tried again: each combination that needs it raises its BaseRunError.
        """
        if model in self._failed_bases:
            raise self._failed_bases[model]
        folder = self.work / self.task / f"base_{model.replace(':', '_')}"
        with self._base_lock:
            if not (folder / "checkpoints/last/model.pdparams").exists():
                words = self.make_words(self.default | {"model": model})
                start = TASKS[self.task].models[model].start.split()
                options = [word for word in start if word.startswith("-")]
                keys = [word for word in start if not word.startswith("-")]
                command = ["train", *options, *words, *keys, f"-output={folder}"]
                try:
                    succeed(*command)
                except AssertionError as error:
                    self._failed_bases[model] = BaseRunError(command, error)
                    raise self._failed_bases[model] from error
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
            process = start_command([*_TOOL, *words], is_copy=True)
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
