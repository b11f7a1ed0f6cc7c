"""Figures about scenes for the report: how well each class and each scene is labeled, and a few scenes to turn."""

import os
from collections.abc import Mapping, Sequence

import numpy as np

from ..metrics.counts import reduce_confusions
from ..metrics.tables import class_tables, sample_table
from ..tasks.figures import Figure, PointSet
from .data.images import UNLABELED_PIXELS, Color, build_legend, color, get_palette
from .data.scene import Scene

_MOST_POINTS = 150_000  # of a scene that is shown
_SHOWN = 4  # scenes
_WRONG, _RIGHT = (220, 40, 40), (150, 170, 150)

# Colors of a scene's points by name, uint8 (points, 3), and what each color means.
Layers = tuple[dict[str, np.ndarray], dict[str, list[tuple[str, Color]]]]


def semantic_tables(
    confusions: Sequence[np.ndarray], scenes: Sequence[str], class_names: Sequence[str]
) -> list[Figure]:
    """Scores of the classes and of the scenes, and what is taken for what.

    Args:
        confusions: of each scene, see ``count_confusion``.
        scenes: their names.
    """
    statistics = reduce_confusions(np.stack(confusions))
    return [
        *class_tables(np.sum(confusions, axis=0), class_names, "points"),
        sample_table("Scenes", "scene", scenes, statistics, "points"),
    ]


def short_name(described: str) -> str:
    """Say what a scene is called in a table: its file without folder and suffix."""
    return os.path.splitext(os.path.basename(described))[0] if os.sep in described else described


def choose_scenes(confusions: Sequence[np.ndarray]) -> list[int]:
    """Places of the scenes to be shown, by their share of right points: the worst ones, and one of the middle and the
    best."""
    shares = np.array([np.trace(confusion) / max(confusion.sum(), 1) for confusion in confusions])
    order = np.argsort(shares, kind="stable")
    wanted = [*order[: _SHOWN - 2], order[len(order) // 2], order[-1]] if len(order) else []
    return list(dict.fromkeys(int(place) for place in wanted))


def point_set(
    title: str, scene: Scene, layers: Mapping[str, np.ndarray], legends: Mapping[str, Sequence[tuple[str, Color]]]
) -> PointSet:
    """A scene to turn, with its own colors as the last layer; a large one is thinned out.

    Args:
        layers: uint8 (points, 3) by name.
    """
    step = -(-len(scene.xyz) // _MOST_POINTS) or 1
    note = f"every {step}. of {len(scene.xyz):,} points" if step > 1 else f"{len(scene.xyz):,} points"
    colors = {name: values[::step] for name, values in {**layers, "colors": scene.rgb}.items()}
    return PointSet(title, np.ascontiguousarray(scene.xyz[::step]), colors, legends, note)


def semantic_layers(scene: Scene, predicted: np.ndarray, class_names: Sequence[str], prefix: str = "") -> Layers:
    """Layers of a scene with their legends: true and predicted classes, and where they differ."""
    true, palette = scene.semantic, get_palette(class_names)
    mistakes = np.where((true == predicted)[:, None], _RIGHT, _WRONG)
    mistakes[true < 0] = UNLABELED_PIXELS
    names = f"{prefix}truth", f"{prefix}prediction", f"{prefix}mistakes"
    layers = dict(zip(names, (color(true, palette), color(predicted, palette), mistakes.astype(np.uint8))))
    judged: list[tuple[str, Color]] = [("wrong", _WRONG), ("right", _RIGHT), ("no label", UNLABELED_PIXELS)]
    return layers, dict(zip(names, (build_legend(true, class_names), build_legend(predicted, class_names), judged)))
