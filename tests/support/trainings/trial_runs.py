"""Output folders of trainings that have evaluated 400 samples, for a search."""

import json
from pathlib import Path

import numpy as np

from paddlevit_dist.extensions.compare import tables


def write_samples(folder: Path, of: str, wrong: int, names: list[str], protocol: dict[str, object]) -> None:
    """The table of an evaluation that is wrong for the first ``wrong`` samples."""
    about = {"task": "classification", "kind": "classes", "score": "top-1", "more_is_better": True, "split": "val"}
    about |= {"classes": ["a", "b"], "dataset": "drawn", "of": of, "protocol": protocol, "input": {}}
    numbers = np.arange(len(names), dtype=np.int32)
    arrays = {"labels": numbers % 2, "places": (numbers < wrong).astype(np.int32), "top": np.array([1])}
    arrays |= {"losses": np.ones(len(names), np.float32), tables.INDICES: numbers}
    folder.mkdir(exist_ok=True, parents=True)
    tables.write_table(folder / "scored_samples.npz", about, names, arrays, None)


def write_trial(
    folder: Path, epoch: int, wrong: int, score: float, epochs: int = 10, decay: str = "NAME: cosine"
) -> None:
    """A run of ``epochs`` whose last evaluation of 400 samples is wrong for the first ``wrong``."""
    write_samples(folder, f"epoch {epoch}", wrong, list(map(str, range(400))), {})
    (folder / "config.yaml").write_text(
        f"TRAIN: {{NUM_EPOCHS: {epochs}, LR_SCHEDULER: {{{decay}}}}}\n", encoding="utf-8"
    )
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"kind": "evaluation", "epoch": epoch, "top-1": score, "best": "top-1"}) + "\n")
