"""Tiny scenes in the layouts of data sets and of other programs, written byte by byte or by their libraries."""

import numpy as np


def s3dis(root, areas=(1, 5), points=60, seed=0):
    """Two rooms an area, each of three objects of ``points``, 7 and 13 more; returns the rows of each object, by area,
    room and file."""
    generator, written = np.random.default_rng(seed), {}
    for area in areas:
        for room in ("office_1", "hallway_2"):
            folder = root / f"Area_{area}" / room / "Annotations"
            folder.mkdir(parents=True)
            for name, more in (("chair_1", 0), ("stairs_1", 7), ("wall_2", 13)):
                number = points + more
                rows = np.c_[
                    generator.uniform((-5, -3, 0), (5, 4, 2.5), (number, 3)).round(3),
                    generator.integers(0, 256, (number, 3)),
                ]
                lines = [
                    " ".join([*(f"{value:.3f}" for value in row[:3]), *map(str, row[3:].astype(int))]) for row in rows
                ]
                (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
                written[area, room, name] = rows
            (root / f"Area_{area}" / room / f"{room}.txt").write_text("the whole room, which is not read\n")
    return written


def semantic_kitti(root, sequences=("00", "08"), points=80, seed=0, labeled=True):
    """Two scans a sequence; returns points (P, 4) and labels (P,) by sequence and scan."""
    generator, written = np.random.default_rng(seed), {}
    numbers = [0, 1, 10, 11, 13, 15, 16, 18, 20, 30, 31, 32, 40, 44, 48, 49, 50, 51, 52, 60, 70, 71, 72, 80, 81, 99]
    numbers += [252, 253, 254, 255, 256, 257, 258, 259]
    for sequence in sequences:
        for part in ("velodyne", "labels") if labeled else ("velodyne",):
            (root / "sequences" / sequence / part).mkdir(parents=True)
        for scan in ("000000", "000001"):
            cloud = generator.uniform((-20, -15, -3, 0), (20, 16, 2, 1), (points, 4)).astype("<f4")
            labels = (
                generator.choice(numbers, points).astype("<u4") | generator.integers(0, 3, points).astype("<u4") << 16
            )
            (root / "sequences" / sequence / "velodyne" / f"{scan}.bin").write_bytes(cloud.tobytes())
            if labeled:
                (root / "sequences" / sequence / "labels" / f"{scan}.label").write_bytes(labels.tobytes())
            written[sequence, scan] = cloud, labels
    return written


def pointcept(root, splits=("train", "val"), points=70, seed=0, label="segment20", classes=20):
    """A scene a split, or room an area; returns the arrays by folder."""
    generator, written = np.random.default_rng(seed), {}
    for number, split in enumerate(splits):
        folder = root / split / f"scene000{number}_00"
        folder.mkdir(parents=True)
        normal = generator.normal(size=(points, 3))
        arrays = {
            "coord": generator.uniform(0, (6, 5, 3), (points, 3)).astype(np.float32),
            "color": generator.integers(0, 256, (points, 3)).astype(np.uint8),
            "normal": (normal / np.linalg.norm(normal, axis=1, keepdims=True)).astype(np.float32),
            label: generator.integers(-1, classes, points).astype(np.int16),
            "instance": generator.integers(-1, 5, points).astype(np.int32),
        }
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)
        written[split] = arrays
    return written


def las(path, points=90, seed=0, point_format=7, version="1.4", origin=(500_000.0, 5_400_000.0, 300.0), **fields):
    """Points in UTM coordinates, with colors of 16 bits and classes 0 to 4; returns what was written."""
    import laspy

    path.parent.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    header = laspy.LasHeader(point_format=point_format, version=version)
    header.offsets, header.scales = np.array(origin), np.full(3, 0.001)
    cloud = laspy.LasData(header)
    xyz = (np.array(origin) + generator.uniform(0, (8, 6, 3), (points, 3))).round(3)
    cloud.x, cloud.y, cloud.z = xyz.T
    rgb = generator.integers(0, 256, (points, 3))
    rgb[0] = 255
    cloud.red, cloud.green, cloud.blue = (257 * rgb).astype(np.uint16).T
    cloud.intensity = generator.integers(0, 65536, points).astype(np.uint16)
    cloud.classification = generator.integers(0, 5, points).astype(np.uint8)
    for name, values in fields.items():
        cloud.add_extra_dim(laspy.ExtraBytesParams(name, values.dtype))
        cloud[name] = values
    cloud.write(str(path))
    return {"xyz": xyz, "rgb": rgb, "intensity": np.array(cloud.intensity), "label": np.array(cloud.classification)}


PCD_HEADER = """# .PCD v0.7 - Point Cloud Data file format
VERSION 0.7
FIELDS x y z rgb intensity label _
SIZE 4 4 4 4 4 2 1
TYPE F F F F F U U
COUNT 1 1 1 1 1 1 3
WIDTH {points}
HEIGHT 1
VIEWPOINT 0 0 0 1 0 0 0
POINTS {points}
DATA {kind}
"""


def pcd(path, kind, points=50, seed=0):
    """Returns xyz, rgb, intensity and label."""
    path.parent.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    xyz = generator.uniform(0, (4, 3, 2), (points, 3)).astype("<f4")
    rgb = generator.integers(0, 256, (points, 3)).astype(np.uint32)
    packed = (rgb[:, 0] << 16 | rgb[:, 1] << 8 | rgb[:, 2]).astype("<u4").view("<f4")
    intensity = generator.integers(0, 8, points).astype("<f4")
    label = generator.integers(0, 4, points).astype("<u2")
    padding = np.zeros((points, 3), np.uint8)
    if kind == "ascii":
        rows = zip(xyz.tolist(), packed.tolist(), intensity.tolist(), label.tolist())
        body = "".join(f"{x!r} {y!r} {z!r} {color!r} {i} {n} 0 0 0\n" for (x, y, z), color, i, n in rows).encode()
    elif kind == "binary":
        parts = [
            array[number].tobytes() for number in range(points) for array in (xyz, packed, intensity, label, padding)
        ]
        body = b"".join(parts)
    else:
        planes = b"".join(array.tobytes() for array in (*xyz.T, packed, intensity, label, padding))
        compressed = lzf(planes)
        body = np.array([len(compressed), len(planes)], "<u4").tobytes() + compressed
    path.write_bytes(PCD_HEADER.format(points=points, kind=kind).encode() + body)
    return {"xyz": xyz, "rgb": rgb, "intensity": intensity, "label": label}


def lzf(content):
    """LZF by searching all of what was before: literals, short and long copies, also of what they write themselves."""
    out, literals, position = bytearray(), bytearray(), 0

    def flush():
        for start in range(0, len(literals), 32):
            part = literals[start : start + 32]
            out.extend([len(part) - 1, *part])
        literals.clear()

    while position < len(content):
        length, source = 0, 0
        for candidate in range(max(0, position - 8192), position):
            same = 0
            while (
                same < 264 and position + same < len(content) and content[candidate + same] == content[position + same]
            ):
                same += 1
            if same > length:
                length, source = same, candidate
        if length < 3:
            literals.append(content[position])
            position += 1
            continue
        flush()
        distance = position - source - 1
        if length - 2 < 7:
            out.extend([(length - 2) << 5 | distance >> 8, distance & 255])
        else:
            out.extend([7 << 5 | distance >> 8, length - 2 - 7, distance & 255])
        position += length
    flush()
    return bytes(out)
