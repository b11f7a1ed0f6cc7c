"""Tiny scans in the layout of nuScenes-lidarseg, with its tables."""

import hashlib
import json

import numpy as np

# The categories of nuScenes-lidarseg in the order of their numbers.
CATEGORIES = """noise animal human.pedestrian.adult human.pedestrian.child human.pedestrian.construction_worker
human.pedestrian.personal_mobility human.pedestrian.police_officer human.pedestrian.stroller human.pedestrian.wheelchair
movable_object.barrier movable_object.debris movable_object.pushable_pullable movable_object.trafficcone
static_object.bicycle_rack vehicle.bicycle vehicle.bus.bendy vehicle.bus.rigid vehicle.car vehicle.construction
vehicle.emergency.ambulance vehicle.emergency.police vehicle.motorcycle vehicle.trailer vehicle.truck
flat.driveable_surface flat.other flat.sidewalk flat.terrain static.manmade static.other static.vegetation
vehicle.ego""".split()


def token(*parts):
    return hashlib.md5(repr(parts).encode(), usedforsecurity=False).hexdigest()


def draw_scan(generator, points):
    """Points (P, 5) around a scanner, and categories (P,) that mostly follow the place."""
    cloud = np.zeros((points, 5), "<f4")
    cloud[:, :3] = generator.uniform((-8, -6, -2), (8, 6, 2), (points, 3))
    cloud[:, 3:] = generator.integers(0, (256, 32), (points, 2))
    quadrant = 2 * (cloud[:, 0] > 0) + (cloud[:, 1] > 0)
    usual = np.array([24, 28, 17, 30])[quadrant]
    drawn = generator.integers(0, len(CATEGORIES), points)
    return cloud, np.where(generator.random(points) < 0.7, usual, drawn).astype(np.uint8)


def draw_objects(cloud, categories):
    """Numbers of Panoptic nuScenes, uint16 (P,): things of a category are two objects by their height, or in no box."""
    numbers = 1000 * categories.astype(np.uint16)
    is_thing = (categories > 0) & (categories < 24)
    objects = numbers + 1 + (cloud[:, 2] > 0).astype(np.uint16)
    return np.where(is_thing, np.where(cloud[:, 4] < 2, 0, objects), numbers).astype(np.uint16)


def nuscenes(root, version="v1.0-mini", drives=("scene-0061", "scene-0103"), scans=2, points=80, seed=0):
    """Keyframes of each drive, with a sweep and an image each; returns points and categories by name of the scan."""
    generator, written = np.random.default_rng(seed), {}
    tables = {"scene": [], "sample": [], "sample_data": [], "lidarseg": [], "panoptic": []}
    tables["category"] = [{"token": token(name), "name": name, "index": i} for i, name in enumerate(CATEGORIES)]
    for folder in (f"lidarseg/{version}", f"panoptic/{version}", "samples/LIDAR_TOP", "sweeps/LIDAR_TOP", version):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for drive in drives:
        tables["scene"].append({"token": token(drive), "name": drive, "nbr_samples": scans})
        for number in range(scans):
            sample, own = token(drive, number), token(drive, number, "LIDAR_TOP")
            time = 1_532_402_927_000_000 + 500_000 * number
            tables["sample"].append({"token": sample, "timestamp": time, "scene_token": token(drive)})
            name = f"n015__LIDAR_TOP__{drive[-4:]}{time}.pcd.bin"
            for kind, file in (("LIDAR_TOP", f"samples/LIDAR_TOP/{name}"), ("sweep", f"sweeps/LIDAR_TOP/{name}")):
                row = {"token": token(drive, number, kind), "sample_token": sample, "timestamp": time, "filename": file}
                tables["sample_data"].insert(0, {**row, "is_key_frame": kind != "sweep", "height": 0})
            image = {"token": token(drive, number, "CAM"), "filename": f"samples/CAM_FRONT/{number}.jpg"}
            tables["sample_data"].append({**image, "sample_token": sample, "timestamp": time})
            cloud, categories = draw_scan(generator, points)
            (root / "samples/LIDAR_TOP" / name).write_bytes(cloud.tobytes())
            (root / "sweeps/LIDAR_TOP" / name).write_bytes(cloud[: points // 2].tobytes())
            label_file = f"lidarseg/{version}/{own}_lidarseg.bin"
            if "test" not in version:
                (root / label_file).write_bytes(categories.tobytes())
                file = f"panoptic/{version}/{own}_panoptic.npz"
                np.savez_compressed(root / file, data=draw_objects(cloud, categories))
                tables["panoptic"].append({"token": own, "sample_data_token": own, "filename": file})
                tables["lidarseg"].append({"token": own, "sample_data_token": own, "filename": label_file})
            written[f"{drive}_{own}"] = cloud, categories
    for name, rows in tables.items():
        if "test" not in version or name not in ("lidarseg", "panoptic"):
            (root / version / f"{name}.json").write_text(json.dumps(rows, indent=0))
    return written
