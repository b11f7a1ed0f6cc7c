"""nuScenes on drawn scans, as its page says, on several processes: the files for the benchmarks have the scores."""

import re
import shlex
import sys

import numpy as np
import pytest
from nightly.pages.reading import make_commands
from support.files.nuscenes import draw_objects, nuscenes
from support.processes import ROOT, run_command
from support.trainings.runs import well

from paddlevit_dist.core.intervals import panoptic_scores
from paddlevit_dist.core.metrics.counts import count_confusion
from paddlevit_dist.points.instances.panoptic import count_segments
from paddlevit_dist.points.prepare.nuscenes import CLASS_NAMES

SMALL = ["MODEL.NAME", "minkunet_tutorial", "DATA.VOXEL_SIZE_M", "0.5"]


def test_the_pages_commands_train_score_and_write_a_submission(tmp_path):
    drives = [f"scene-{number:04d}" for number in (1, 2, 3, 12, 61)]
    written = nuscenes(tmp_path / "nuscenes", "v1.0-trainval", drives, scans=3, points=600)
    unlabeled = nuscenes(tmp_path / "nuscenes", "v1.0-test", ["scene-0077"], scans=3, points=500)
    commands = [words for words in make_commands("docs/tutorials/point_clouds.md") if "nuscenes" in words]
    assert len(commands) == 3
    prepare, train, test = (shlex.split(words.replace("/dataset/", f"{tmp_path}/")) for words in commands)
    well(run_command([sys.executable, *prepare[1:], "--workers=1"]))

    def run(words, *more):
        words = [word.replace("./output", str(tmp_path)) for word in words[1:]]
        return well(run_command([sys.executable, str(ROOT / "main_multi_gpu.py"), *words, *SMALL, *more]))

    run(train, "-epochs=1", "-batch_size=2", "-ngpus=1")
    run(test, "-eval", "-ngpus=2")
    out = tmp_path / "nuscenes_test" / "predictions"
    for name, (cloud, _) in unlabeled.items():
        classes = np.fromfile(out / "lidarseg" / "test" / f"{name[-32:]}_lidarseg.bin", np.uint8)
        assert len(classes) == len(cloud) and 1 <= classes.min() and classes.max() <= 16
    assert '"use_lidar": true' in (out / "test" / "submission.json").read_text()
    scores = set()
    for processes in (1, 3):
        on_val = [word.replace("-split=test", "-group=drive") for word in test]
        folder = tmp_path / f"on_{processes}"
        ended = run(on_val, "-eval", f"-ngpus={processes}", f"-output={folder}", "SAVE_PREDICTIONS", "true")
        scores.add(re.search(r"\bmIoU ([\d.]+)", ended.out)[1])
        counts = np.zeros((17, 17), np.int64)
        for name, (_, categories) in written.items():
            if name[:10] in ("scene-0003", "scene-0012"):
                file = folder / "predictions" / "lidarseg" / "val" / f"{name[-32:]}_lidarseg.bin"
                counts += count_confusion(_to_classes(categories), np.fromfile(file, np.uint8), 17)
        counts[0] = 0
        with np.errstate(invalid="ignore"):
            values = np.diag(counts) / (counts.sum(axis=0) + counts.sum(axis=1) - np.diag(counts))
        assert float(re.search(r"\bmIoU ([\d.]+)", ended.out)[1]) == pytest.approx(np.nanmean(values[1:]), abs=6e-5)
    assert len(scores) == 1


STUFF = "[driveable_surface,other_flat,sidewalk,terrain,manmade,vegetation]"
PANOPTIC = ["-cfg=pointgroup_synthetic_rooms", "-dataset=scenes", "POINTS.FEATURES", "[intensity/255]"]
PANOPTIC += ["DATA.VOXEL_SIZE_M", "0.5", "POINTS.INSTANCES.STUFF_CLASSES", STUFF, "MODEL.OPTIONS.width", "4"]
PANOPTIC += ["POINTS.INSTANCES.RADIUS_M", "2", "POINTS.INSTANCES.CLUSTER_POINTS", "5"]
PANOPTIC += ["POINTS.INSTANCES.MIN_PREDICTION_POINTS", "5", "POINTS.INSTANCES.SCORE_THRESHOLD", "0"]
PANOPTIC += ["POINTS.INSTANCES.PREPARE_EPOCHS", "0", "POINTS.INSTANCES.PANOPTIC_MIN_POINTS", "15"]


def test_written_segments_have_the_printed_quality_on_any_number_of_processes(tmp_path):
    drives = [f"scene-{number:04d}" for number in (1, 2, 3, 12)]
    written = nuscenes(tmp_path / "raw", "v1.0-trainval", drives, scans=3, points=600)
    words = ["scenes", str(tmp_path / "raw"), str(tmp_path / "store"), "--label=panoptic", "--workers=1"]
    well(run_command([sys.executable, "-m", "paddlevit_dist", "prepare", *words]))
    main = [sys.executable, str(ROOT / "main_multi_gpu.py"), *PANOPTIC, f"-data_path={tmp_path / 'store'}"]
    well(run_command([*main, "-epochs=1", "-batch_size=2", "-ngpus=1", f"-output={tmp_path / 'run'}"]))
    lines, is_thing = set(), np.arange(len(CLASS_NAMES)) < 10
    for processes in (1, 2, 3):
        folder = tmp_path / f"on_{processes}"
        more = [f"-pretrained={tmp_path / 'run'}", f"-ngpus={processes}", f"-output={folder}"]
        ended = well(run_command([*main, "-eval", *more, "SAVE_PREDICTIONS", "true"]))
        lines.add(ended.out.splitlines()[-1])
        scenes = []
        for name, (cloud, categories) in written.items():
            if name[:10] in ("scene-0003", "scene-0012"):
                with np.load(folder / "predictions" / "panoptic" / "val" / f"{name[-32:]}_panoptic.npz") as file:
                    found = file["data"].astype(int)
                true = draw_objects(cloud, categories).astype(int)
                classes = _to_classes(true // 1000) - 1, found // 1000 - 1
                scenes.append(count_segments(classes[0], true, classes[1], found, is_thing, 15))
        quality = panoptic_scores(*map(np.stack, zip(*scenes)), CLASS_NAMES, is_thing)(np.ones((1, len(scenes))))
        assert f"PQ {quality['PQ'][0]:.4f} " in ended.out and (found % 1000 > 0).any()
    assert len(lines) == 1


def _to_classes(categories):
    """Number of the challenge's class for each category, 0 for those without one; as Pointcept lists them."""
    table = [0, 0, 7, 7, 7, 0, 7, 0, 0, 1, 0, 0, 8, 0, 2, 3, 3, 4, 5, 0, 0, 6, 9, 10, 11, 12, 13, 14, 15, 0, 16, 0]
    return np.array(table)[categories]
