"""What the landmark task hands to the report: errors as the metrics count them, hardest volumes first."""

import numpy as np
import paddle
import pytest

from paddlevit_dist import settings
from paddlevit_dist.tasks.aspects import get_aspect
from paddlevit_dist.tasks.figures import Chart, Gallery
from paddlevit_dist.tasks.protocols import Reportable
from paddlevit_dist.tasks.step_types import EvaluationStep
from paddlevit_dist.volumes.landmarks.results import LandmarkRecord
from paddlevit_dist.volumes.landmarks.task import LandmarkDetection

TINY = ["TASK", "landmarks", "MODEL.NAME", "unet3d", "VOLUMES.UNET_WIDTH", "2", "VOLUMES.UNET_DEPTH", "1"]
TINY += ["-dataset=synthetic_landmarks", "VOLUMES.CROP_SIZE", "[40,48,56]", "VOLUMES.OVERLAP", "0"]


def test_figures_are_of_the_errors_that_the_metrics_count():
    task = LandmarkDetection(settings.load(TINY).values)
    samples = task.build_dataset("val", None)
    model = task.build_model()
    model.eval()
    metrics, kept = task.build_metrics(), []
    for index in range(2):
        batch = task.collate([samples.sample(index, np.random.default_rng(0))])
        batch = {name: paddle.to_tensor(values) for name, values in batch.items()}
        with paddle.no_grad():
            kept += zip([index], task.eval_step(model, batch, EvaluationStep(metrics, keeps_records=True))())
    errors, curves, volumes, gallery = get_aspect(task, Reportable).figures(samples, kept, model)
    values = metrics.compute(metrics.state)
    rows = {row[0]: dict(zip(errors.columns, row)) for row in errors.rows}
    assert rows["all"]["mean mm"] == pytest.approx(values["mre_mm"], abs=2e-3)
    assert rows["all"]["deviation mm"] == pytest.approx(values["sd_mm"], abs=2e-3)
    assert rows["all"]["volumes"] == values["landmarks"]
    for name in task.names:
        if name in rows and rows[name]["volumes"]:
            assert rows[name]["mean mm"] == pytest.approx(values[f"{name} mre_mm"], abs=2e-3)
    assert isinstance(curves, Chart) and all(y[-1] == 100 for _, y in curves.lines.values())
    assert [row[1] for row in volumes.rows] == sorted((row[1] for row in volumes.rows), reverse=True)
    assert isinstance(gallery, Gallery) and gallery.images[0][1].startswith(volumes.rows[0][0])
    assert "largest mean error" in gallery.note
    assert all(image.dtype == np.uint8 and image.ndim == 3 for image, _ in gallery.images)


def test_unknown_landmarks_count_nowhere():
    task = LandmarkDetection(settings.load(TINY).values)
    samples = task.build_dataset("val", None)
    known = np.full(len(task.names), np.nan, np.float32)
    known[1] = 3.0
    nothing, voxels = np.full_like(known, np.nan), np.zeros((len(known), 3), np.float32)
    records = [(0, LandmarkRecord(nothing, voxels)), (3, LandmarkRecord(known, voxels))]
    errors, curves, volumes, gallery = get_aspect(task, Reportable).figures(samples, records, None)
    rows = {row[0]: row for row in errors.rows}
    assert rows[task.names[0]][1] is None and rows[task.names[1]][1] == 3.0 and rows["all"][-1] == 1
    assert set(curves.lines) == {"all", task.names[1]}
    assert [row[1] for row in volumes.rows] == [3.0, None]
    assert "no landmark is known" in gallery.images[1][1]
