"""Small scenes, and batches of them as tensors."""

import numpy as np
import paddle

from paddlevit_dist.points.data.scene import Scene
from paddlevit_dist.points.segmentation.task import PointSamples


def make_scene(points=1000, classes=5, seed=0, name="room"):
    generator = np.random.default_rng(seed)
    semantic = generator.integers(-1, classes, points).astype(np.int16)
    instance = generator.integers(-1, 9, points).astype(np.int16)
    return Scene(
        generator.normal(0, (4, 3, 1), (points, 3)).astype(np.float32),
        generator.integers(0, 256, (points, 3), dtype=np.uint8),
        np.where(semantic < 0, np.int16(-100), semantic),
        np.where(instance < 0, np.int16(-100), instance),
        name,
    )


def same(one, other):
    return all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(one[:4], other[:4]))


def scene(points=200, seed=0, name="a") -> Scene:
    generator = np.random.default_rng(seed)
    labels = generator.integers(-1, 20, points).astype(np.int16)
    labels[labels == -1] = -100
    return Scene(
        generator.uniform((-1.2, -0.7, -0.5), (1, 0.8, 0.6), (points, 3)).astype(np.float32),
        generator.integers(0, 256, (points, 3), dtype=np.uint8),
        labels,
        np.full(points, -100, np.int16),
        name,
    )


class Scenes:
    """A dataset of given scenes."""

    class_names = [f"class {number}" for number in range(20)]
    num_classes = 20

    def __init__(self, *scenes: Scene) -> None:
        self.scenes = scenes

    def __len__(self) -> int:
        return len(self.scenes)

    def read(self, index: int) -> Scene:
        return self.scenes[index]

    def describe(self, index: int) -> str:
        return self.scenes[index].name


def make_samples(*scenes: Scene, **options) -> PointSamples:
    """Samples of given scenes as an evaluation has them, unless ``options`` say something else."""
    usual = {"voxel_features": "first", "voxel_size_m": 0.2, "features": ("rgb",), "color_range": (-1.0, 1.0)}
    return PointSamples(Scenes(*scenes), (), **{**usual, "rotations": 1, **options})


def tensors(batch: dict) -> dict:
    return {k: paddle.to_tensor(v) if isinstance(v, np.ndarray) else v for k, v in batch.items()}
