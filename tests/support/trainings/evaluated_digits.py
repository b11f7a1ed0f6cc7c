"""Evaluations of a few digits, some of them taken for the next one."""

import functools
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from paddlevit_dist.core import settings
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.settings import dump_yaml
from paddlevit_dist.core.tasks.metrics import SampleTable
from paddlevit_dist.extensions.compare import tables

SAMPLES = 40
NAMES = [str(digit) for digit in range(10)]


@functools.cache
def digits() -> list[tuple[np.ndarray, int]]:
    data = resolve("dataset", "digits")(None, "val", None)
    return [(np.asarray(image), label) for image, label in map(data.read, range(SAMPLES))]


def evaluated(folder: Path, wrong: list[int], names: Sequence[str] = NAMES, **keys: str) -> str:
    """The folder of a run that takes these digits for the next one."""
    folder.mkdir()
    words = [word for pair in keys.items() for word in pair]
    values = settings.load(["-cfg=vit_digits", f"-output={folder}", *words]).values
    (folder / "config.yaml").write_text(dump_yaml(values), encoding="utf-8")
    labels = np.array([label for _, label in digits()])
    is_wrong = np.isin(np.arange(SAMPLES), wrong)
    arrays = {
        "labels": labels,
        "places": is_wrong.astype(int),
        "losses": np.ones(SAMPLES),
        "predictions": np.where(is_wrong, (labels + 1) % 10, labels),
        "top": np.array([1]),
    }
    evaluation = SimpleNamespace(
        table=SimpleNamespace(
            indices=np.arange(SAMPLES), to_sample_table=lambda: SampleTable("classes", list(names), arrays), groups=None
        ),
        config=values,
        task=SimpleNamespace(best_metric=("top-1", True), signature=dict),
        samples=SimpleNamespace(name="val {}".format),
        facts={},
    )
    tables.write_evaluated(folder / "intervals.json", evaluation, {"epoch": 1})
    return str(folder)
