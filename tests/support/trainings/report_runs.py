"""Folders of made-up runs, and what a browser sees of their reports."""

import html.parser
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from paddlevit_dist.core.tasks.figures import (
    Chart,
    ConfusionMatrix,
    Figure,
    FigureTable,
    Gallery,
    PointSet,
    SliceStack,
)
from paddlevit_dist.extensions.report import store

HOSTILE = "<script>alert('x')</script>\n\"quoted\" \udce9 \u202e </style>&amp; {{ 7 * 7 }}"
_VOID = {"meta", "link", "img", "br", "input", "hr"}


def event(kind: str, **values: Any) -> dict[str, Any]:
    return {"kind": kind, "time": 1_700_000_000.0, **values}


def training(updates: int, scale: float = 1.0) -> list[dict[str, Any]]:
    """Events of two epochs with evaluations."""
    events = []
    for update in range(1, updates + 1):
        epoch = 1 if update <= updates // 2 else 2
        values = {"loss": scale * 2.0 / update, "learning_rate": 1e-3 / update, "gradient_norm": 1.0 + 1.0 / update}
        values["memory_mib"] = 512.5 + update
        speed = {"samples_per_second": 100.0, "data_wait_fraction": 0.125, "skipped_updates": 0}
        events.append(event("training", epoch=epoch, update=update, **values, **speed))
        if update in (updates // 2, updates):
            events.append(event("epoch", epoch=epoch, seconds=1.0, loss=1.0))
            events.append(event("evaluation", epoch=epoch, loss=1.5 / epoch, **{"top-1": 40.0 * epoch}, samples=64))
    return events


def write_run(
    folder: Path,
    events: Sequence[dict[str, Any]] | None = None,
    config: str = "TRAIN:\n  NUM_EPOCHS: 2\n  BASE_LR: 0.001\nMODEL:\n  NAME: vit\n",
    figures: Sequence[Figure] | None = None,
    classes: Sequence[str] = (),
) -> Path:
    """A run's folder, as a training leaves it."""
    folder.mkdir(parents=True)
    lines = "".join(json.dumps(line) + "\n" for line in (training(20) if events is None else events))
    (folder / "metrics.jsonl").write_text(lines)
    (folder / "config.yaml").write_text(config)
    facts = {"processes": 2, "device": "cpu", "versions": {"numpy": "1.26"}}
    data = {"data": {"train": {"class_names": list(classes)}}} if classes else {}
    (folder / "run.json").write_text(json.dumps({**facts, **data}))
    if figures is not None:
        assert store.save(folder / store.TRAINING, figures, {"of": "the best weights"}) == []
    return folder


def one_of_each(names: Sequence[str] = ("dog", "ant", "cow"), points: int = 2000) -> list[Figure]:
    """A figure of every kind."""
    generator = np.random.default_rng(0)
    size = len(names)
    xyz = generator.uniform(-2, (3, 2, 1), (points, 3)).astype(np.float32)
    height = np.clip((xyz[:, 2:] + 2) * 50, 0, 255).astype(np.uint8)
    colors = {"truth": np.repeat(height, 3, axis=1), "prediction": generator.integers(0, 256, (points, 3), np.uint8)}
    small, large = generator.integers(0, 256, (12, 18), np.uint8), generator.integers(0, 256, (90, 120, 3), np.uint8)
    return [
        FigureTable(
            "A table", ("class", "pictures", "share"), [(name, 12, 0.5) for name in names] + [("none", None, None)]
        ),
        ConfusionMatrix("A matrix", names, generator.integers(0, 9, (size, size)).astype(np.uint64)),
        Chart("A chart", "x", "y", {"one": ([0, 1, 2], [3.0, 1.0, float("nan")]), "two": ([0, 2], [1, 2])}),
        Chart("Bars", "x", "y", {"one": ([0, 1, 2], [3, 1, 2])}, kind="bar"),
        Gallery("A gallery", [(small, names[0]), (large, f"{names[1]}\nsecond line")], "a note"),
        PointSet("Points", xyz, colors, {"truth": [(names[0], (200, 0, 0))], "prediction": []}),
        SliceStack("Slices", [([large, 255 - large, large // 2], f"{names[0]}\nDice 0.5"), ([small, small], "b")]),
    ]


class Page(html.parser.HTMLParser):
    """The elements of a page, whose nesting is checked while it is read.

    Attributes:
        tags: every start tag with its attributes.
        text: all text outside of styles and scripts.
        scripts: the content of each script.
    """

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: list[Any] = []
        self.text = ""
        self.scripts: list[str] = []
        self._open: list[str] = []
        self.feed(content)
        self.close()
        assert self._open == [], f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag == "script":
            self.scripts.append("")
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attributes: Any) -> None:
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open[-1] == tag, f"</{tag}> in {self._open}"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script":
            self.scripts[-1] += data
        elif not self._open or self._open[-1] != "style":
            self.text += data

    def named(self, tag: str) -> list[dict[str, Any]]:
        """Attributes of all elements of a kind."""
        return [attributes for name, attributes in self.tags if name == tag]
