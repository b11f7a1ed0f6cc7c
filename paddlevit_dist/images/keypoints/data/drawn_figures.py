"""Synthetic images of people and hands with keypoints, to try both tasks without a download."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ...data.drawn_shapes import (
    Color,
    DrawnImages,
    PortableRandom,
    SyntheticImage,
    choose_color,
    render_image,
    vary_color,
)
from ...detection.data.image_annotations import ImageAnnotations
from ..settings import FIGURES, KeypointSettings
from .figures import FIGURE_SETS, FINE, Figure, Line, pose
from .keypoint_dataset import KeypointDataset

_ATTEMPTS = 20  # to place a figure without covering the others
_MOST_COVERED = 2  # points of a figure, without bars
_HIDDEN, _VISIBLE = 1, 2  # COCO's visibility of a point


class FigureScene(NamedTuple):
    """The figures of an image; later ones, and then the bars, are in front."""

    height: int
    width: int
    labels: list[int]  # of each figure, position in the requested kinds
    figures: list[Figure]
    bars: list[Line]  # that hide parts of figures
    colors: list[Color]  # of each figure, its front, and each bar, then of the background's corners
    draws: PortableRandom  # of the image's noise

    def layers(self) -> list[list[Line]]:
        """Return the lines of each color, from back to front."""
        return [
            *(lines for figure in self.figures for lines in (figure.body, figure.front)),
            *([bar] for bar in self.bars),
        ]


class DrawnFigures(DrawnImages, KeypointDataset):
    """People (7 points) and hands (6) of thick lines in front of a noisy background, drawn when they are read.

    Points covered by another figure or a bar are hidden (visibility 1). Points outside the image are not labeled. Boxes
    are around the parts of a figure inside the image, hidden ones included; an area is the area of the box.
    """

    drawn_name = "figures"
    reports_odd_objects = True  # there are none

    def __init__(
        self,
        data_path: str | None,
        split: str,
        cache_folder: Path | None,
        num_train: int = 2000,
        num_val: int = 200,
        sides: Sequence[int] = (96, 128),
        per_image: Sequence[int] = (1, 3),
        categories: Sequence[str] = FIGURES,
        seed: int = 0,
    ) -> None:
        """Draw ``split``, "train" or "val", with figures of ``categories``; both paths are ignored.

        ``sides`` are smallest and largest height and width of an image in pixels, ``per_image`` fewest and most
        figures.
        """
        super().__init__(data_path, split, cache_folder, num_train, num_val, sides, per_image, categories, seed)
        self.class_names, self.num_classes = self.categories, len(self.categories)
        self.category_ids = tuple(range(1, self.num_classes + 1))
        self.keypoint_sets = tuple(FIGURE_SETS[name] for name in self.categories)

    @classmethod
    def open(cls, config: KeypointSettings, split: str, cache_folder: Path) -> Any:  # type: ignore[override]
        """Open the split with the keys of DATA.SHAPES and KEYPOINTS.FIGURES."""
        keys, kinds = config.DATA.SHAPES, tuple(config.KEYPOINTS.FIGURES)
        return cls(None, split, cache_folder, keys.TRAIN, keys.VAL, keys.SIDES, keys.OBJECTS_PER_IMAGE, kinds)

    def read(self, index: int) -> tuple[Image.Image, ImageAnnotations]:
        """Return image ``index`` and its annotations."""
        scene = self.draw_scene(index)
        masks = [_fill(lines, scene.height, scene.width) for lines in scene.layers()]
        image = SyntheticImage(scene.height, scene.width, [], masks, scene.colors, scene.draws)
        return Image.fromarray(render_image(image)), self._annotate(index, scene)

    def annotations(self, index: int) -> ImageAnnotations:
        """Return the annotations of image ``index``, without drawing it."""
        return self._annotate(index, self.draw_scene(index))

    def draw_scene(self, index: int) -> FigureScene:
        """Return the figures and the background of image ``index``."""
        return pose_figures(self._derive_seed(index), self._sides, self._per_image, self.categories)

    def _annotate(self, index: int, scene: FigureScene) -> ImageAnnotations:
        number = len(scene.figures)
        boxes = np.array([_surround(figure, scene) for figure in scene.figures]).reshape(number, 4)
        points = np.zeros((number, self.num_points, 3))
        for row, visibilities, figure in zip(points, find_visibilities(scene), scene.figures):
            places = np.array(figure.points) / FINE - 0.5  # a pixel's center is at its integers
            row[: len(places)] = np.concatenate([places, visibilities[:, None]], axis=1) * (visibilities[:, None] > 0)
        return ImageAnnotations(
            boxes=boxes,
            labels=np.array(scene.labels, dtype=np.int64),
            areas=boxes[:, 2] * boxes[:, 3],
            is_crowd=np.zeros(number, bool),
            ids=100 * (index + 1) + np.arange(number, dtype=np.int64),
            points=points,
        )


def pose_figures(
    seed: Sequence[int], sides: Sequence[int], number: Sequence[int], categories: Sequence[str]
) -> FigureScene:
    """Choose and place the figures of one image, and sometimes a bar in front; fewer figures if there is no room."""
    draws = PortableRandom(seed)
    height, width = draws.between(*sides), draws.between(*sides)
    corners = [(draws.between(20, 235), draws.between(20, 235), draws.between(20, 235))]
    corners += [vary_color(draws, corners[0]) for _ in range(3)]
    scene = FigureScene(height, width, [], [], [], [], draws)
    colors: list[Color] = []
    for _ in range(draws.between(*number)):
        label, color = draws.below(len(categories)), choose_color(draws, corners[0])
        front = choose_color(draws, color)
        for _ in range(_ATTEMPTS):
            tried = scene._replace(figures=[*scene.figures, _place(draws, categories[label], height, width)])
            if _is_clear(tried):
                scene = tried._replace(labels=[*scene.labels, label])
                colors += [color, front]
                break
    for _ in range(draws.below(3) // 2):
        scene = scene._replace(bars=[*scene.bars, _place_bar(draws, height, width)])
        colors.append(choose_color(draws, corners[0]))
    return scene._replace(colors=[*colors, *corners])


def find_visibilities(scene: FigureScene) -> list[np.ndarray]:
    """Return the visibility of the points of each figure, int64 (points,): 0 outside, 1 covered, 2 visible."""
    found = []
    for place, figure in enumerate(scene.figures):
        front = [line for other in scene.figures[place + 1 :] for line in other.body] + scene.bars
        x, y = np.array(figure.points).T
        is_inside = (x >= 0) & (x < FINE * scene.width) & (y >= 0) & (y < FINE * scene.height)
        is_covered = np.zeros(len(x), bool)
        for line in front:
            is_covered |= line.fill(x, y)
        found.append(np.where(is_inside, np.where(is_covered, _HIDDEN, _VISIBLE), 0))
    return found


def _is_clear(scene: FigureScene) -> bool:
    """Return whether the last figure may stay: each has few points covered, and it is apart from others."""
    *others, last = map(_find_middle, scene.figures)
    if not all(max(abs(x - last[0]), abs(y - last[1])) >= (length + last[2]) // 4 for x, y, length in others):
        return False
    return all((each == _HIDDEN).sum() <= _MOST_COVERED for each in find_visibilities(scene))


def _find_middle(figure: Figure) -> tuple[int, int, int]:
    """Return x and y of the middle of a figure's points, and the longer side of their extent; on the grid."""
    x, y = zip(*figure.points)
    return (min(x) + max(x)) // 2, (min(y) + max(y)) // 2, max(max(x) - min(x), max(y) - min(y))


def _place(draws: PortableRandom, name: str, height: int, width: int) -> Figure:
    """Pose a figure of random size at a random position; a part of it may be outside."""
    shorter = FINE * min(height, width)
    radius = draws.between(shorter // 5, 2 * shorter // 5)
    margin = 3 * radius // 4
    x = draws.between(margin, FINE * width - margin)
    y = draws.between(margin, FINE * height - margin)
    return pose(name, draws, (x, y), radius)


def _place_bar(draws: PortableRandom, height: int, width: int) -> Line:
    start, end = ((draws.below(FINE * width), draws.below(FINE * height)) for _ in range(2))
    return Line(start, end, FINE * min(height, width) // 24)


def _surround(figure: Figure, scene: FigureScene) -> tuple[float, float, float, float]:
    """Return the box x, y, width, height of a figure's parts in the image, in pixels."""
    extents = [line.find_extent(FINE * scene.height, FINE * scene.width) for line in figure.body]
    corners = np.array([extent for extent in extents if extent is not None])
    (x0, y0), (x1, y1) = (corners[:, :2].min(axis=0) / FINE).tolist(), (corners[:, 2:].max(axis=0) / FINE).tolist()
    return x0, y0, x1 - x0, y1 - y0


def _fill(lines: Sequence[Line], height: int, width: int) -> np.ndarray:
    """Return the pixels whose center is in one of the lines, bool (height, width)."""
    mask = np.zeros((height, width), bool)
    for line in lines:
        extent = line.find_extent(FINE * height, FINE * width)
        if extent is None:
            continue
        x0, y0, x1, y1 = extent
        columns, rows = (slice(low // FINE, -(-high // FINE)) for low, high in ((x0, x1), (y0, y1)))
        x, y = (FINE * np.arange(part.start, part.stop) + FINE // 2 for part in (columns, rows))
        mask[rows, columns] |= line.fill(x[None], y[:, None])
    return mask
