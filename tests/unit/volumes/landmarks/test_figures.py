"""What the landmark task hands to the report: errors as the metrics count them, hardest volumes first."""

from types import SimpleNamespace

import numpy as np
import paddle
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.protocols import Drawable, Predictable, Reportable
from paddlevit_dist.core.tasks.sample_checks import BadSample
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
        names = ("x_mm", "y_mm", "z_mm", "true_x_mm", "true_y_mm", "true_z_mm", "confidence")
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


def test_outputs_that_are_not_finite_are_neither_scored_nor_written():
    task = LandmarkDetection(settings.load(TINY).values)
    task.names, task.spacing, task.cases = (
        FourVolumes.names,
        FourVolumes.spacing,
        [("case_0", "ras"), ("case_1", "ras")],
    )
    samples = VolumeSamples(FourVolumes(), None, AugmentationConfig(), range(9), (0.0, 1.0))

    def evaluate(index, broken):
        batch = task.collate([samples.sample(index, np.random.default_rng(0))])
        shift = np.zeros((1, 9, 1, 1, 1), np.float32)
        shift[0, broken] = np.nan
        network = lambda windows: windows.tile([1, 9, 1, 1, 1]) + paddle.to_tensor(shift)  # noqa: E731
        batch = {name: paddle.to_tensor(values) for name, values in batch.items()}
        task.eval_step(network, batch, EvaluationStep(task.build_metrics()))
        return get_aspect(task, Predictable), task.locate(network, batch)[0]

    prediction, found = evaluate(1, broken=2)  # volume 1 has landmark 8 only
    with pytest.raises(BadSample, match="the model's outputs are not finite"):
        prediction.prediction_rows(found)
    for index, broken in ((0, 2), (1, 8)):
        with pytest.raises(UserError, match="outputs for a volume are not finite, so it cannot be scored"):
            evaluate(index, broken)


@pytest.fixture(scope="module")
def known() -> SimpleNamespace:
    """Four volumes with known errors: task, samples, index of each volume, errors, found voxels, records."""
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
    return SimpleNamespace(task=task, samples=samples, indices=indices, errors=errors, voxels=voxels, records=records)


def make_figures(known):
    return get_aspect(known.task, Reportable).figures(known.samples, known.records, None)


def find_worst(errors) -> dict[int, int | None]:
    """The worst landmark of each volume, None without any, hardest volumes first."""
    means = np.nanmean(errors[[0, 2, 3]], axis=1)
    order = [(0, 2, 3)[place] for place in np.argsort(-means)]
    return {place: int(np.nanargmax(errors[place])) for place in order} | {1: None}


def test_nothing_is_drawn_of_no_volume_or_of_samples_of_another_kind(known):
    for nothing in ((known.samples, []), (object(), known.records)):
        assert get_aspect(known.task, Reportable).figures(*nothing, None) == []


def test_a_table_has_statistics_and_rates_of_each_landmark_and_of_all(known):
    errors, (_, _, table, *_) = known.errors, make_figures(known)
    assert table.columns == (
        "landmark", "mean mm", "deviation mm", "median mm", "95 % below mm", "largest mm",
        "% within 2 mm", "% within 2.5 mm", "% within 3 mm", "% within 4 mm", "volumes",
    )  # fmt: skip
    assert table.rows[0] == ("mark 0", *[None] * 9, 0) and len(table.rows) == 10
    for (name, *row), column in zip(table.rows[1:], [*errors.T[1:], errors]):
        there = column[np.isfinite(column)].astype(float)
        statistics = there.mean(), there.std(), np.median(there), np.percentile(there, 95), there.max()
        rates = [100 * (there <= radius).mean() for radius in (2, 2.5, 3, 4)]
        assert row == pytest.approx([*statistics, *rates, len(there)], abs=6e-4), name
    assert [row[0] for row in table.rows[1:]] == [*FourVolumes.names[1:], "all"]


def test_curves_are_of_all_and_of_the_seven_worst_landmarks(known, monkeypatch):
    errors, (_, _, _, curves, _) = known.errors, make_figures(known)
    of_landmarks = {name: np.nanmean(errors[:, number]) for number, name in enumerate(FourVolumes.names) if number}
    worst_first = sorted(of_landmarks, key=of_landmarks.get, reverse=True)[:7]
    assert list(curves.lines) == ["all", *worst_first] and "of the 7 worst of 9 landmarks and of all" in curves.note
    for name, (x, y) in curves.lines.items():
        column = errors if name == "all" else errors[:, FourVolumes.names.index(name)]
        there = np.sort(column[np.isfinite(column)])
        assert x == [0, *there] and y == pytest.approx([0, *(100 * (there <= each).mean() for each in there)])
    monkeypatch.setattr(known.task, "names", FourVolumes.names[1:8])
    of_seven = [(index, LandmarkRecord(errors[1:8], voxels[1:8])) for index, (errors, voxels) in known.records]
    _, _, _, all_curves, _ = get_aspect(known.task, Reportable).figures(known.samples, of_seven, None)
    assert len(all_curves.lines) == 8 and all_curves.note == "Percent of landmarks with an error up to a distance."


def test_volumes_are_listed_with_their_worst_landmark(known):
    errors, (*_, volumes) = known.errors, make_figures(known)
    assert volumes.columns == ("volume", "mean mm", "worst landmark", "its error mm") and volumes.note == ""
    for row, (place, worst) in zip(volumes.rows, find_worst(errors).items(), strict=True):
        expected = (None, None, None)
        if worst is not None:
            mean, largest = (pytest.approx(one, abs=6e-4) for one in (np.nanmean(errors[place]), errors[place, worst]))
            expected = mean, f"mark {worst}", largest
        assert row == (f"case_{known.indices[place]}", *expected)


def test_volumes_are_drawn_at_their_worst_landmark(known):
    errors, (gallery, *_) = known.errors, make_figures(known)
    for (place, worst), (image, caption) in zip(find_worst(errors).items(), gallery.images, strict=True):
        decoded, true = known.samples.dataset.read(known.indices[place])
        center, said = None, "no landmark is known"
        if worst is not None:
            center = true[worst]
            said = f"mean {np.nanmean(errors[place]):.2f} mm, worst mark {worst} {errors[place, worst]:.2f} mm"
        drawn = orthogonal_slices(
            decoded.array, (2.0, 1.0, 0.5), known.voxels[place], true, center, shows_sides=True, names=FourVolumes.names
        )
        np.testing.assert_array_equal(image, drawn, err_msg=caption)
        assert caption == f"case_{known.indices[place]}\n{said}"


def test_samples_are_drawn_with_their_landmarks(known):
    samples, drawing = known.samples, get_aspect(known.task, Drawable)
    batch = {"volume": np.stack([samples.dataset.read(n)[0].array[None] for n in (1, 2)])}
    batch["points"] = np.stack([samples.dataset.read(n)[1] for n in (1, 2)])
    for pictures in (drawing.visualize_batch(samples, batch, 1), drawing.visualize_eval_samples(samples, [1, 2])):
        assert [caption for _, caption in pictures] == ["0 of 9 landmarks", "8 of 9 landmarks"]
        inside = np.concatenate([batch["points"][1, :8], [[np.nan] * 3]])  # the last one lies outside
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
    *_, all_volumes = get_aspect(task, Reportable).figures(samples, records[:1000], None)
    assert (all_volumes.note, len(all_volumes.rows)) == ("", 1000)
    assert [caption.partition("\n")[0] for _, caption in gallery.images] == [f"case_{n}" for n in worst[:12]]
    assert [caption.partition("\n")[0] for _, caption in slices.stacks] == [f"case_{n}" for n in worst[:3]]
    assert [len(stack) for stack, _ in slices.stacks] == [6, 6, 6]  # every slice of a small volume
    x, y = curves.lines["mark 3"]
    assert len(x) == 201 and (x[0], y[0], y[-1]) == (0.0, 0.0, 100.0)
    assert y[1:] == pytest.approx([100 * (errors[:, 3] <= each).mean() for each in x[1:]])
