"""Point clouds, for the table."""

import laspy
import numpy as np
from laspy.vlrs.known import WktCoordinateSystemVlr

from paddlevit_dist.points.data.scene import Scene
from paddlevit_dist.points.data.scene_store import scene_file, write_lines, write_scene
from paddlevit_dist.points.data.scenes import PreparedScenes
from paddlevit_dist.points.prepare.formats import detect_format, get_reader
from paddlevit_dist.points.prepare.listing import SceneChoices
from paddlevit_dist.points.prepare.pointgroup import PthReader
from paddlevit_dist.points.prepare.scannet import ScanNetReader
from paddlevit_dist.points.prepare.tables import PlyReader
from paddlevit_dist.points.shapes.data import ModelNet40
from support.files.nuscenes import nuscenes
from support.files.other_scenes import las, pcd, pointcept, s3dis, semantic_kitti
from support.files.raw_scenes import legacy, make_points, write_labeled_ply, write_scannet, zipped

_HEADER = """ply
format {form} 1.0
comment two elements, one with lists
element face 2
property list uchar int vertex_indices
property uchar flag
element vertex 3
property float x
property float y
property float z
property uchar red
property uchar green
property uchar blue
property uchar label
end_header
"""
_POINTS = [(0.5, 1.5, -2.25, 10, 20, 30, 1), (1.5, 0.25, 3.0, 40, 50, 60, 2), (2.0, 0.0, 1.0, 70, 80, 90, 0)]
_ROW = np.dtype([*((axis, "<f4") for axis in "xyz"), *((name, "u1") for name in ("r", "g", "b", "label"))])


def make_ply(folder):
    """As we write it, with lists before the points, and with lists among them in the other byte order."""
    write_labeled_ply(folder / "plain.ply", 20)
    faces = b"".join(b"\x03" + np.array(face, "<i4").tobytes() + b"\x01" for face in ((0, 1, 2), (2, 1, 0)))
    points = np.array(_POINTS, _ROW)
    (folder / "faces.ply").write_bytes(_HEADER.format(form="binary_little_endian").encode() + faces + points.tobytes())
    header = _HEADER.replace("property uchar label\n", "property uchar label\nproperty list uchar float more\n")
    turned = points.astype(_ROW.newbyteorder(">"))
    rows = b"".join(row.tobytes() + b"\x01" + np.array(1, ">f4").tobytes() for row in turned)
    faces = b"".join(b"\x03" + np.array(face, ">i4").tobytes() + b"\x01" for face in ((0, 1, 2), (2, 1, 0)))
    (folder / "lists.ply").write_bytes(header.format(form="binary_big_endian").encode() + faces + rows)
    return sorted(folder.iterdir())


def make_text_ply(folder):
    rows = "3 0 1 2 1\n3 2 1 0 1\n" + "".join(" ".join(map(str, row)) + "\n" for row in _POINTS)
    for name in ("a.ply", "b.ply"):
        (folder / name).write_text(_HEADER.format(form="ascii") + rows)
    return sorted(folder.iterdir())


def _read_all(reader, folder):
    for scenes in reader.sources(str(folder), {}).values():
        for source in scenes:
            scene = reader.read(source)
            assert np.isfinite(scene.xyz).all() and len(scene.xyz) == len(scene.semantic) == len(scene.instance)


def read_ply(folder):
    _read_all(PlyReader(), folder)


def make_las(folder):
    """Not LAZ of the newer formats: lazrs takes memory for the sizes in it, and ends the process if there is less."""
    for name, point_format, version in (("a.las", 7, "1.4"), ("b.laz", 3, "1.2")):
        las(folder / name, points=20, point_format=point_format, version=version, height=np.ones(20))
    scan = laspy.read(folder / "a.las")
    scan.vlrs.append(WktCoordinateSystemVlr('PROJCS["p",GEOGCS["g",UNIT["degree",0.01745]],UNIT["foot",0.3048]]'))
    scan.write(folder / "a.las")
    return sorted(folder.iterdir())


def make_pcd(folder):
    for kind in ("binary", "binary_compressed"):
        pcd(folder / f"{kind}.pcd", kind, points=20)
    return sorted(folder.iterdir())


def make_text_pcd(folder):
    for name in ("a.pcd", "b.pcd"):
        pcd(folder / name, "ascii", points=20)
    return sorted(folder.iterdir())


def make_text(folder):
    rows = [f"{x / 2} {x} {-x} {x} {x} 9 {x % 3}" for x in range(20)]
    (folder / "a.txt").write_text("\n".join(["//X Y Z R G B Label", "20", *rows]) + "\n")
    (folder / "b.csv").write_text("\n".join(["x,y,z,red,green,blue,label", *(row.replace(" ", ",") for row in rows)]))
    return sorted(folder.iterdir())


def make_arrays(folder):
    points, labels = np.arange(60, dtype=np.float32).reshape(20, 3), np.arange(20)
    for name, save in (("a.npz", np.savez), ("b.npz", np.savez_compressed)):
        save(folder / name, points=points, colors=points.astype(np.uint8), label=labels)
    return sorted(folder.iterdir())


def make_named_arrays(folder):
    named = np.zeros(20, [("xyz", "f4", 3), ("rgb", "u1", 3), ("label", "i4")])
    named["xyz"] = np.arange(60).reshape(20, 3)
    for name in ("a.npy", "b.npy"):
        np.save(folder / name, named)
    return sorted(folder.iterdir())


def make_s3dis(folder):
    s3dis(folder, points=9)
    return sorted(folder.rglob("Annotations/*.txt"))


def make_kitti(folder):
    semantic_kitti(folder, points=9)
    return sorted(folder.rglob("*.label")) + sorted(folder.rglob("*.bin"))


def make_nuscenes(folder):
    nuscenes(folder, points=9)
    return sorted(folder.rglob("*_lidarseg.bin")) + sorted(folder.glob("samples/*/*.bin"))


def make_nuscenes_tables(folder):
    nuscenes(folder, points=9)
    return sorted(folder.rglob("*.json"))


def make_pointcept(folder):
    pointcept(folder, points=9)
    return sorted(folder.rglob("*.npy"))


def read_scenes(folder):
    """As ``prepare scenes`` does, which finds out the format."""
    _read_all(get_reader(detect_format(str(folder)), SceneChoices()), folder)


def make_pth(folder):
    columns = make_points(9)
    arrays = (
        np.stack([columns[axis] for axis in "xyz"], axis=1),
        np.zeros((9, 3), np.float32),
        np.arange(9, dtype=np.float64),
        np.arange(9, dtype=np.float64) - 1,
    )
    zipped(folder / "a_inst_nostuff.pth", arrays)
    legacy(folder / "b_inst_nostuff.pth", arrays)
    return [folder / "a_inst_nostuff.pth"]


def read_pth(folder):
    _read_all(PthReader(), folder)


def make_scannet(folder):
    write_scannet(folder / "scans", "scene0000_00")
    write_lines(folder / "scannetv2_train.txt", ["scene0000_00"])
    return sorted((folder / "scans").glob("*.ply"))


def make_scannet_objects(folder):
    make_scannet(folder)
    return [*sorted((folder / "scans").glob("*.json")), folder / "scannetv2_train.txt"]


def read_scannet(folder):
    _read_all(ScanNetReader(), folder)


def make_store(folder):
    (folder / "scenes").mkdir()
    xyz = np.array([row[:3] for row in _POINTS], np.float32)
    labels = np.array([0, 1, -100], np.int16)
    for name in ("a", "b"):
        scene = Scene(xyz - xyz.mean(axis=0), np.zeros((3, 3), np.uint8), labels, labels, name, skipped_rows=(1,))
        write_scene(folder / "scenes" / f"{name}.scene", scene)
    write_lines(folder / "classes.txt", ["wall", "chair"])
    write_lines(folder / "train.txt", ["a", "b"])
    (folder / "prepared.json").write_text('{"version": 5, "kind": "ply", "centered": true, "remarks": {}}')
    return [folder / "scenes" / "a.scene"]


def make_store_texts(folder):
    make_store(folder)
    return [folder / "classes.txt", folder / "train.txt", folder / "prepared.json"]


def read_store(folder):
    (folder / "cache").mkdir()
    scenes = PreparedScenes(str(folder), "train", folder / "cache")
    for index in range(len(scenes)):
        scene = scenes.read(index)
        assert scene_file(folder, scene.name) == scenes.describe(index)
        assert scene.xyz.shape == (len(scene.semantic), 3) == scene.rgb.shape


def make_meshes(folder):
    for split in ("train", "test"):
        (folder / "ball" / split).mkdir(parents=True)
    mesh = "OFF\n4 4 0\n0 0 0\n1 0 0\n0 1 0\n0 0 1.5\n3 0 1 2\n3 0 1 3\n3 0 2 3\n4 1 2 3 1\n"
    (folder / "ball" / "train" / "ball_0001.off").write_text(mesh.replace("OFF\n", "OFF"))
    (folder / "ball" / "test" / "ball_0002.off").write_text(mesh)
    return sorted(folder.rglob("*.off"))


def make_resampled(folder):
    (folder / "ball").mkdir()
    for split in ("train", "test"):
        (folder / "ball" / f"ball_{split}.txt").write_text("1,2,3,0,0,1\n-1,0.5,0,1,0,0\n0,0,2,0,1,0\n")
        (folder / f"modelnet40_{split}.txt").write_text(f"ball_{split}\n")
    (folder / "modelnet40_shape_names.txt").write_text("ball\ncube\n")
    return sorted(folder.rglob("*.txt"))


def read_shapes(folder):
    for split in ("train", "test"):
        dataset = ModelNet40(str(folder), split, None)
        for index in range(len(dataset)):
            shape = dataset.read(index)
            assert shape.xyz.shape[1] == 3 and 0 <= shape.label < dataset.num_classes
