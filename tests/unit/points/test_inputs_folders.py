"""Folders with scenes of several formats: all are found, and what belongs to a scene is not another one."""

import numpy as np
from support.files.other_scenes import las, pcd, semantic_kitti
from support.files.raw_scenes import make_points
from support.files.scene_inputs import make_inputs

from paddlevit_dist.points.data.ply import write_points
from paddlevit_dist.points.inputs import InputScenes, find_scenes


def test_a_folder_has_the_scenes_that_its_files_are_alone(tmp_path):
    columns = make_points(30)
    write_points(tmp_path / "a.ply", columns)
    pcd(tmp_path / "below" / "b.pcd", "ascii")
    np.save(tmp_path / "c.npy", np.stack([columns[axis] for axis in "xyz"], axis=1))
    (tmp_path / "d.txt").write_text("x y z\n1 2 3\n4 5 6\n")
    (tmp_path / "e.XYZ").write_text("# a scan\n2\n1,2,3\n4,5,6\n")
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    (tmp_path / "notes.txt").write_text("a.ply is of 2021,\n12 12 scans more to come\n")
    (tmp_path / "mesh.obj").write_text("v 1 2 3\n")
    (tmp_path / "below" / "f.e57").write_bytes(b"ASTM-E57")
    found, unreadable, notices = find_scenes([str(tmp_path)])
    assert sorted(found) == sorted(find_scenes([str(file) for file in files])[0]) and len(found) == 5
    alone = [make_inputs(file, needs_colors=False)[0].read(0).xyz for file in files]
    together = InputScenes(sorted(found), None, False, ["a"])
    for index, xyz in enumerate(alone):
        np.testing.assert_array_equal(together.read(index).xyz, xyz)
    (notice,) = notices
    assert notice.startswith(
        f"note: 2 files below {tmp_path} skipped (1 .obj, 1 .e57), such as mesh.obj: not scenes by"
    )
    assert unreadable == []


def test_poses_and_times_next_to_scans_are_not_scenes(tmp_path, monkeypatch):
    semantic_kitti(tmp_path, sequences=("11",), labeled=False)
    for name in ("poses.txt", "times.txt"):
        (tmp_path / "sequences" / "11" / name).write_text("1 0 0 5 0 1 0 6 0 0 1 7\n" * 3)
    las(tmp_path / "a.las", points=9)
    monkeypatch.chdir(tmp_path / "sequences")
    for folder, kinds in ((str(tmp_path), {"semantic_kitti", "las"}), ("11", {"semantic_kitti"})):
        found, unreadable, notices = find_scenes([folder])
        assert {scene.kind for scene in found} == kinds and not unreadable and not notices


def test_a_folder_of_text_alone_has_all_its_files(tmp_path):
    (tmp_path / "a.txt").write_text("1 2 3\n")
    (tmp_path / "b.txt").write_text("no points\n")
    found, _, notices = find_scenes([str(tmp_path)])
    assert [scene.name for scene in found] == ["a", "b"] and notices == []
