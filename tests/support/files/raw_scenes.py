"""Raw scenes as written by ScanNet, torch and others, for tests."""

import json
import pickle
import zipfile

import numpy as np

from paddlevit_dist.points.data.ply import write_points

UNIT_COLORS = np.array([[0, 0.25, 1], [0.5, 1, 0.75], [0.1, 0, 0.2]])  # of three points, from 0 to 1


def no_lists():
    return {"train": None, "val": None, "test": None}


def make_points(points, seed=0):
    generator = np.random.default_rng(seed)
    extents = {"x": 1.2, "y": 0.9, "z": 0.6}
    columns = {name: generator.normal(0, extent, points).astype(np.float32) for name, extent in extents.items()}
    columns.update({name: generator.integers(0, 256, points, dtype=np.uint8) for name in ("red", "green", "blue")})
    return columns


def write_scannet(folder, name, points=400, seed=0, labeled=True):
    """A scene as ScanNet is downloaded: segments of one class each, objects of several segments.

    Returns:
        NYU's number of each point, uint16 (points,); None without labels.
    """
    generator = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    columns = {**make_points(points, seed), "alpha": np.full(points, 255, np.uint8)}
    write_points(folder / f"{name}_vh_clean_2.ply", columns)
    if not labeled:
        return None
    segments = generator.choice([3, 7, 11, 12, 20, 41, 58, 77, 90, 95], points)
    classes = {3: 1, 7: 1, 11: 2, 12: 5, 20: 5, 41: 7, 58: 40, 77: 39, 90: 0, 95: 13}
    numbers = np.array([classes[segment] for segment in segments.tolist()], np.uint16)
    write_points(folder / f"{name}_vh_clean_2.labels.ply", {**columns, "label": numbers})
    groups = [
        {"objectId": 0, "label": "wall", "segments": [3, 7]},
        {"objectId": 1, "label": "office chair", "segments": [20, 12]},
        {"objectId": 2, "label": "floor", "segments": [11]},
        {"objectId": 3, "label": "table", "segments": [41]},
        {"objectId": 4, "label": "paper", "segments": [58]},
        {"objectId": 5, "label": "lamp", "segments": [77]},
    ]
    (folder / f"{name}.aggregation.json").write_text(json.dumps({"sceneId": name, "segGroups": groups}))
    (folder / f"{name}_vh_clean_2.0.010000.segs.json").write_text(json.dumps({"segIndices": segments.tolist()}))
    return numbers


def legacy(path, value):
    """As torch.save wrote before 1.6: magic, version, sizes, the object, the keys of its tensors."""
    sizes = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    with open(path, "wb") as stream:
        for part in (0x1950A86A20F9469CFC6C, 1001, sizes, value, []):
            pickle.dump(part, stream, protocol=2)


def zipped(path, value):
    """As torch.save writes since."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(value, protocol=2))
        archive.writestr("archive/version", "3\n")


def pointgroup_arrays(points=300, seed=0):
    generator = np.random.default_rng(seed)
    rgb = generator.integers(0, 256, (points, 3))
    semantic = generator.integers(-1, 20, points).astype(np.float64)
    instance = generator.integers(-1, 6, points).astype(np.float64)
    arrays = (
        generator.normal(0, (1.2, 0.9, 0.6), (points, 3)).astype(np.float32),
        (rgb / 127.5 - 1).astype(np.float32),
        np.where(semantic < 0, -100.0, semantic),
        np.where(instance < 0, -100.0, instance),
    )
    return arrays, rgb


def write_labeled_ply(path, points=500, seed=0):
    """Points with a class and an instance, as `prepare ply` reads them without options."""
    path.parent.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    labels = {name: generator.integers(0, 4, points, dtype=np.uint8) for name in ("label", "instance")}
    write_points(path, {**make_points(points, seed), **labels})


def write_pointgroup(folder, name, seed=0):
    """A scene as PointGroup's preparation writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays, _ = pointgroup_arrays(seed=seed)
    zipped(folder / f"{name}_inst_nostuff.pth", arrays)
