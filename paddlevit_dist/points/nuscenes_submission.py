"""Files of predictions in the format of nuScenes's benchmarks of classes (lidarseg) and of segments (panoptic).

Source: eval/lidarseg/README.md and eval/panoptic/README.md of nuscenes-devkit.
"""

from pathlib import Path

import numpy as np

from ..core.runtime.files import atomic_file
from ..core.runtime.json_format import format_json
from .prepare.nuscenes import CLASS_NAMES, LIDARSEG, PANOPTIC, SCENE_NAME, get_token


def is_submittable(name: str, class_names: list[str]) -> bool:
    """Return True if the benchmark takes predictions of these classes for a scan of this name."""
    return tuple(class_names) == CLASS_NAMES and SCENE_NAME.fullmatch(name) is not None


def write_submission_labels(
    folder: Path, split: str, name: str, classes: np.ndarray, instances: np.ndarray | None = None
) -> None:
    """Write the predicted classes of a scan, or classes and instances, where the benchmark expects them.

    The benchmark of classes accepts no point without a class: a point with a negative class gets class 0. ``split`` is
    train, val or test, ``name`` the scan's as ``NuScenesReader`` gives it. ``classes`` (points,) are numbers of
    ``CLASS_NAMES``. All points of an instance in ``instances`` (points,), negative for none, have the same class.
    """
    kind, suffix = (LIDARSEG, "bin") if instances is None else (PANOPTIC, "npz")
    path = folder / kind / split / f"{get_token(name)}_{kind}.{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        if instances is None:
            file.write((np.maximum(classes, 0) + 1).astype(np.uint8).tobytes())
        else:
            np.savez_compressed(file, data=_number_segments(classes, instances))


def _number_segments(classes: np.ndarray, instances: np.ndarray) -> np.ndarray:
    """Return 1,000 times the class, from 1, plus the instance in its class, from 1 to 999; uint16 (points,).

    It is 0 for a point without a class, and for a point of an instance beyond the first 999 of its class.
    """
    numbers = 1000 * (np.maximum(classes, -1).astype(np.int64) + 1)
    for label in np.unique(classes[instances >= 0]):
        members = np.flatnonzero((classes == label) & (instances >= 0))
        _, indices = np.unique(instances[members], return_inverse=True)
        indices = indices.reshape(-1) + 1
        numbers[members] = np.where(indices < 1000, numbers[members] + indices, 0)
    return numbers.astype(np.uint16)


def write_submission_meta(folder: Path, split: str, has_instances: bool = False) -> str:
    """Write ``submission.json``, which declares laser scans only, and return the name of the folder of labels."""
    names = ("use_camera", "use_lidar", "use_radar", "use_map", "use_external")
    meta: dict[str, object] = {name: name == "use_lidar" for name in names}
    if has_instances:
        meta["task"] = "segmentation"
    (folder / split).mkdir(exist_ok=True)
    with atomic_file(folder / split / "submission.json") as file:
        file.write(format_json({"meta": meta}).encode())
    return PANOPTIC if has_instances else LIDARSEG
