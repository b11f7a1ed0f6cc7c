"""What the landmark task hands to the report: errors as the metrics count them, hardest volumes first."""

from types import SimpleNamespace

import numpy as np
import paddle
import pytest

from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.protocols import Drawable, Reportable
from paddlevit_dist.core.tasks.step_types import EvaluationStep
from paddlevit_dist.volumes.dataset import VolumeDataset
from paddlevit_dist.volumes.geometry import VolumeGeometry
from paddlevit_dist.volumes.images import orthogonal_slices
from paddlevit_dist.volumes.landmarks.results import LandmarkRecord
from paddlevit_dist.volumes.landmarks.task import LandmarkDetection
from paddlevit_dist.volumes.samples import AugmentationConfig, VolumeSamples
from paddlevit_dist.volumes.store import DecodedVolume

TINY = ["TASK", "landmarks", "MODEL.NAME", "unet3d", "VOLUMES.UNET_WIDTH", "2", "VOLUMES.UNET_DEPTH", "1"]
TINY += ["-dataset=synthetic_landmarks", "VOLUMES.CROP_SIZE", "[6,8,10]", "VOLUMES.OVERLAP", "0"]


class FourVolumes(VolumeDataset):
    """Landmark 8 lies outside of all volumes, and volume 1 has no other."""

    names, spacing = [f"mark {number}" for number in range(9)], np.array([2.0, 1.0, 0.5])

    def __init__(self) -> None:
        pass

    def read(self, index):
        array = np.random.default_rng(index).normal(0.5, 0.2, (6, 9, 14)).astype(np.float32)
        geometry = VolumeGeometry(array.shape, np.diag([0.5, 1.0, 2.0, 1.0]))
        found = np.random.default_rng([index, 1]).uniform(0, (5, 8, 13), (9, 3))
        found[8] = (2, 9.6, 3)
        found[: 8 * (index == 1)] = np.nan
        return DecodedVolume(array, geometry, (0.0, 1.0)), found

    def case(self, index):
        return f"case_{index}"


def test_errors_places_and_figures_of_an_evaluation_are_those_of_its_predictions():
    """Volumes of one batch, whose tables are in LPS and RAS."""
    task = LandmarkDetection(settings.load(TINY).values)
    task.names, task.spacing = FourVolumes.names, FourVolumes.spacing
    task.cases = [("case_0", "lps"), ("case_1", "ras"), ("case_2", "ras")]
    samples = VolumeSamples(FourVolumes(), None, AugmentationConfig(), range(9), (0.0, 1.0))
    model, metrics, indices, written = task.build_model(), task.build_metrics(), (2, 0, 1), []
    assert (model.width, model.depth) == (2, 1)
    model.eval()
    batch = task.collate([samples.sample(index, np.random.default_rng(0)) for index in indices])
    batch = {name: paddle.to_tensor(values) for name, values in batch.items()}
    with paddle.no_grad():
        found = task.locate(model, batch)
        writer = SimpleNamespace(add=lambda *given: written.append(given))
        records = task.eval_step(model, batch, EvaluationStep(metrics, writer, keeps_records=True))()
    ((predictions, truths),) = written
    assert [each.index for each in predictions] == list(indices)
    errors, columns = [], metrics.columns(metrics.per_sample())
    assert columns["world"] == ["RAS", "LPS", "RAS"]
    for row, (index, prediction, record) in enumerate(zip(indices, found, records)):
        assert prediction.index == index
        places = [prediction.voxels, samples.dataset.read(index)[1].astype(np.float32)]
        in_ras = [voxels[:, ::-1] * [0.5, 1.0, 2.0] for voxels in places]
        signs = (-1, -1, 1) if index == 0 else (1, 1, 1)
        errors.append(np.linalg.norm(in_ras[0] - in_ras[1], axis=1))
        values = [*(in_ras[0] * signs).T, *(in_ras[1] * signs).T, prediction.confidences]
        names = ("x_mm", "y_mm", "z_mm", "true x_mm", "true y_mm", "true z_mm", "confidence")
        for name, of_landmarks in zip(names, values):
            table = [columns[f"{landmark} {name}"][row] for landmark in task.names]
            np.testing.assert_allclose(table, of_landmarks, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(record.errors, errors[-1], rtol=1e-6)
        np.testing.assert_allclose(record.voxels, prediction.voxels, rtol=1e-6)
        np.testing.assert_array_equal(truths[row].errors, errors[-1])
        np.testing.assert_array_equal(truths[row].places, places[1])
        np.testing.assert_array_equal(predictions[row].world, prediction.world)
        assert record.errors.dtype == record.voxels.dtype == np.float32
    _, _, table, *_ = get_aspect(task, Reportable).figures(samples, list(zip(indices, records)), model)
    values, rows = metrics.compute(metrics.state), {row[0]: row for row in table.rows}
    assert rows["all"][1:3] == pytest.approx((np.nanmean(errors), np.nanstd(errors)), abs=6e-4)
    assert rows["all"][1:3] == pytest.approx((values["mre_mm"], values["sd_mm"]), abs=6e-4)
    assert rows["all"][-1] == values["landmarks"] == 19 and rows["mark 8"][-1] == 3


def test_tables_curves_and_pictures_of_known_errors():
    generator, nan = np.random.default_rng(0), np.nan
    errors = generator.gamma(2, 1.2, (4, 9)).astype(np.float32)
    errors[:, 0] = errors[1] = nan
    errors[3, 5] = errors[2, 4:7] = nan
    errors[0] *= 0.5
    task = LandmarkDetection(settings.load(TINY).values)
    task.names, task.spacing = FourVolumes.names, FourVolumes.spacing
    samples = VolumeSamples(FourVolumes(), None, AugmentationConfig(), range(9), (0.0, 1.0))
    voxels = generator.uniform(0, (5, 8, 13), (4, 9, 3)).astype(np.float32)
    indices = (3, 1, 0, 2)
    records = [(index, LandmarkRecord(*row)) for index, *row in zip(indices, errors, voxels)]
    gallery, slices, table, curves, volumes = get_aspect(task, Reportable).figures(samples, records, None)
    for nothing in ((samples, []), (object(), records)):
        assert get_aspect(task, Reportable).figures(*nothing, None) == []

    assert table.columns == (
        "landmark", "mean mm", "deviation mm", "median mm", "95 % below mm", "largest mm",
        "% within 2 mm", "% within 2.5 mm", "% within 3 mm", "% within 4 mm", "volumes",
    )  # fmt: skip
    assert table.rows[0] == ("mark 0", *[None] * 9, 0) and len(table.rows) == 10
    for (name, *row), column in zip(table.rows[1:], [*errors.T[1:], errors]):
        known = column[np.isfinite(column)].astype(float)
        statistics = known.mean(), known.std(), np.median(known), np.percentile(known, 95), known.max()
        rates = [100 * (known <= radius).mean() for radius in (2, 2.5, 3, 4)]
        assert row == pytest.approx([*statistics, *rates, len(known)], abs=6e-4), name
    assert [row[0] for row in table.rows[1:]] == [*FourVolumes.names[1:], "all"]

    means = np.nanmean(errors[[0, 2, 3]], axis=1)
    of_landmarks = {name: np.nanmean(errors[:, number]) for number, name in enumerate(FourVolumes.names) if number}
    worst_first = sorted(of_landmarks, key=of_landmarks.get, reverse=True)[:7]
    assert list(curves.lines) == ["all", *worst_first] and "of the 7 worst of 9 landmarks and of all" in curves.note
    for name, (x, y) in curves.lines.items():
        column = errors if name == "all" else errors[:, FourVolumes.names.index(name)]
        known = np.sort(column[np.isfinite(column)])
        assert x == [0, *known] and y == pytest.approx([0, *(100 * (known <= each).mean() for each in known)])

    order = [(0, 2, 3)[place] for place in np.argsort(-means)] + [1]
    worst = {place: int(np.nanargmax(errors[place])) for place in order[:3]}
    expected = [
        (f"case_{indices[at]}", np.nanmean(errors[at]), f"mark {worst[at]}", errors[at, worst[at]]) for at in order[:3]
    ]
    for row, (case, mean, name, error) in zip(volumes.rows, expected):
        assert row == (case, pytest.approx(mean, abs=6e-4), name, pytest.approx(error, abs=6e-4))
    assert volumes.rows[3:] == [("case_1", None, None, None)] and volumes.note == ""
    task.names = FourVolumes.names[1:8]
    of_seven = [(index, LandmarkRecord(errors[1:8], voxels[1:8])) for index, (errors, voxels) in records]
    _, _, _, all_curves, _ = get_aspect(task, Reportable).figures(samples, of_seven, None)
    assert len(all_curves.lines) == 8 and all_curves.note == "Percent of landmarks with an error up to a distance."
    task.names = FourVolumes.names
    assert volumes.columns == ("volume", "mean mm", "worst landmark", "its error mm")

    for at, (image, caption) in zip(order, gallery.images, strict=True):
        volume, true = samples.dataset.read(indices[at])[0].array, samples.dataset.read(indices[at])[1]
        center = true[worst[at]] if at in worst else None
        drawn = orthogonal_slices(
            volume, (2.0, 1.0, 0.5), voxels[at], true, center, shows_sides=True, names=FourVolumes.names
        )
        np.testing.assert_array_equal(image, drawn, err_msg=caption)
        said = "no landmark is known"
        if at in worst:
            said = f"mean {np.nanmean(errors[at]):.2f} mm, worst mark {worst[at]} {errors[at, worst[at]]:.2f} mm"
        assert caption == f"case_{indices[at]}\n{said}"

    batch = {"volume": np.stack([samples.dataset.read(n)[0].array[None] for n in (1, 2)])}
    batch["points"] = np.stack([samples.dataset.read(n)[1] for n in (1, 2)])
    drawing = get_aspect(task, Drawable)
    for pictures in (drawing.visualize_batch(samples, batch, 1), drawing.visualize_eval_samples(samples, [1, 2])):
        assert [caption for _, caption in pictures] == ["0 of 9 landmarks", "8 of 9 landmarks"]
        inside = np.concatenate([batch["points"][1, :8], [[nan] * 3]])  # the last one lies outside
        drawn = orthogonal_slices(batch["volume"][1, 0], (2.0, 1.0, 0.5), None, inside, names=FourVolumes.names)
        np.testing.assert_array_equal(pictures[1][0], drawn)


def test_long_tables_and_curves_are_cut():
    """Of 1,010 volumes the 12 worst are drawn and the 1,000 worst listed; a curve has 200 steps."""
    errors = np.random.default_rng(0).gamma(2, 1.2, (1010, 9)).astype(np.float32)
    task = LandmarkDetection(settings.load(TINY).values)
    task.names, task.spacing = FourVolumes.names, FourVolumes.spacing
    samples = VolumeSamples(FourVolumes(), None, AugmentationConfig(), range(9), (0.0, 1.0))
    records = [(index, LandmarkRecord(row, np.zeros((9, 3), np.float32))) for index, row in enumerate(errors)]
    gallery, slices, _, curves, volumes = get_aspect(task, Reportable).figures(samples, records, None)
    worst = np.argsort(-errors.mean(axis=1))
    assert [row[0] for row in volumes.rows] == [f"case_{n}" for n in worst[:1000]]
    assert volumes.note == "The 1,000 worst of 1,010."
    assert [caption.partition("\n")[0] for _, caption in gallery.images] == [f"case_{n}" for n in worst[:12]]
    assert [caption.partition("\n")[0] for _, caption in slices.stacks] == [f"case_{n}" for n in worst[:3]]
    assert [len(stack) for stack, _ in slices.stacks] == [6, 6, 6]  # every slice of a small volume
    x, y = curves.lines["mark 3"]
    assert len(x) == 201 and (x[0], y[0], y[-1]) == (0.0, 0.0, 100.0)
    assert y[1:] == pytest.approx([100 * (errors[:, 3] <= each).mean() for each in x[1:]])
