"""A store of scenes with sizes as ScanNet's, for the benchmarks of PointGroup's loading.

The scenes are embedded rooms: mean 150,000 points, one in 32 above 400,000. 32 different ones have as many names as are
asked for; those of the same content share a file, so that nothing waits for a disk.
"""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from smallest import sized

DIFFERENT = sized(32, 3)
MEAN_POINTS, LARGEST_POINTS = sized((150_000, 450_000), (3_000, 4_500))


def sizes() -> np.ndarray:
    """Points of each different scene; the first has the mean."""
    generator = np.random.default_rng(0)
    drawn = np.exp(generator.normal(0.0, 0.5, DIFFERENT))
    drawn = np.minimum(drawn / drawn.mean() * MEAN_POINTS, LARGEST_POINTS)
    drawn[0], drawn[1] = MEAN_POINTS, 0.95 * LARGEST_POINTS
    rest = drawn[2:] * (DIFFERENT * MEAN_POINTS - drawn[:2].sum()) / drawn[2:].sum()
    return np.concatenate([drawn[:2], rest]).astype(int)


def make_store(folder: Path, number: int) -> None:
    """A prepared store and, beside each scene, the pickled arrays of the plain ways."""
    from paddlevit_dist.points.data.augment import CropToBudget
    from paddlevit_dist.points.data.rooms import generate_room
    from paddlevit_dist.points.data.scannet_classes import CLASS_NAMES
    from paddlevit_dist.points.data.scene_store import scene_file, write_lines, write_scene
    from paddlevit_dist.points.instances.input import remove_gaps

    (folder / "scenes").mkdir(parents=True)
    (folder / "plain").mkdir()
    for index, points in enumerate(sizes()):
        spacing = 0.0225 * (150_000 / points) ** 0.5
        room = generate_room(3 + 5 * index, (7, 0), spacing, "room")
        while len(room.xyz) < points:
            spacing *= 0.9
            room = generate_room(3 + 5 * index, (7, 0), spacing, "room")
        room = CropToBudget(int(points))(room, np.random.default_rng(index))
        room = room._replace(instance=remove_gaps(room.instance.astype(np.int32)).astype(room.instance.dtype))
        write_scene(Path(scene_file(folder, f"base{index}")), room)
        colors = room.rgb.astype(np.float32) / 127.5 - 1
        plain = (room.xyz, colors, room.semantic.astype(np.float64), room.instance.astype(np.float64))
        (folder / "plain" / f"base{index}").write_bytes(pickle.dumps(plain, protocol=4))
    names = [f"scene{n:05d}" for n in range(number)]
    for n, name in enumerate(names):
        os.link(scene_file(folder, f"base{n % DIFFERENT}"), scene_file(folder, name))
        os.link(folder / "plain" / f"base{n % DIFFERENT}", folder / "plain" / name)
    write_lines(folder / "classes.txt", list(CLASS_NAMES))
    write_lines(folder / "train.txt", names)
    write_lines(folder / "val.txt", names[:1])


def read_plain(folder: Path, number: int) -> Any:
    return pickle.loads((folder / "plain" / f"scene{number:05d}").read_bytes())
