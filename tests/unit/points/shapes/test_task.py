"""Classification of shapes: reading ModelNet, sampling meshes, samples, the network, a training and a prediction."""

import math
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from scipy.spatial.transform import Rotation
from support.filled_cells import to_dense
from support.networks.narrow_minkunets import WIDTHS, narrow_networks  # noqa: F401
from support.networks.varied import vary

from paddlevit_dist import UserError, create_model
from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.prediction import CheckpointMeta
from paddlevit_dist.core.tasks.protocols import Checkable, Drawable, Predictable, Reportable
from paddlevit_dist.core.tasks.sample_checks import BadSample
from paddlevit_dist.core.tasks.step_types import EvaluationStep, StepPosition
from paddlevit_dist.core.tasks.task_factory import build_metrics
from paddlevit_dist.points.data.images import draw
from paddlevit_dist.points.data.ply import write_points
from paddlevit_dist.points.shapes.data import (
    ModelNet10,
    ModelNet40,
    SampledShape,
    make_shape,
    parse_off,
    read_shape,
    sample_mesh,
)
from paddlevit_dist.points.shapes.figures import draw_shape
from paddlevit_dist.points.shapes.solids import SOLIDS, SyntheticSolids, revolve_profile
from paddlevit_dist.points.shapes.task import ShapeClassification, ShapeMetrics, build_sample
from paddlevit_dist.points.sparse import SparseTensor

SMALL = "TASK shape_classification -dataset=synthetic_solids MODEL.NAME narrow_classifier SHAPES.VOXEL_SIZE 0.2"


def make_keys(*arguments: str):
    return settings.load([*SMALL.split(), *arguments]).values


CUBE = """OFF
8 6 0
0 0 0
1 0 0
1 1 0
0 1 0
0 0 1
1 0 1
1 1 1
0 1 1
4 0 3 2 1
4 4 5 6 7
4 0 1 5 4
4 1 2 6 5
4 2 3 7 6
4 3 0 4 7
"""


def resampled(folder, *, width=6):
    """modelnet40_normal_resampled with three shapes of two classes, and its lists."""
    (folder / "modelnet40_shape_names.txt").write_text("airplane\nnight_stand\n")
    (folder / "modelnet40_train.txt").write_text("airplane_0001\nnight_stand_0001\n")
    (folder / "modelnet40_test.txt").write_text("night_stand_0002\n")
    for name in ("airplane_0001", "night_stand_0001", "night_stand_0002"):
        place = folder / name.rpartition("_")[0]
        place.mkdir(exist_ok=True)
        rows = [[1, 2, 3, 0, 0, 2], [-1, 0.5, 0, 1, 0, 0], [0, 0, 0, 0, 1, 0]]
        (place / f"{name}.txt").write_text("".join(",".join(map(str, row[:width])) + "\n" for row in rows))
    return folder


def test_the_resampled_layout_is_read_by_its_lists(tmp_path):
    train, test = (ModelNet40(str(resampled(tmp_path)), split, None) for split in ("train", "val"))
    assert train.class_names == ["airplane", "night_stand"] and train.labels.tolist() == [0, 1]
    assert test.labels.tolist() == [1] and test.describe(0) == str(tmp_path / "night_stand" / "night_stand_0002.txt")
    xyz, normals, label = train.read(1)
    assert xyz.tolist() == [[1, 2, 3], [-1, 0.5, 0], [0, 0, 0]] and label == 1
    assert normals.tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
    assert ModelNet40(str(resampled(tmp_path, width=3)), "train", None).read(0).normals is None


def test_the_layout_of_meshes_is_read_by_its_folders(tmp_path):
    names = ["sofa/train/sofa_0001", "vase/train/vase_0002", "chair/test/chair_0003", "chair/train/chair_0001"]
    for name in [*names, "desk/train/desk_0002", "lamp/train/lamp_0001"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{name}.off").write_text(CUBE)
    (tmp_path / "README.txt").write_text("")
    train, test = (ModelNet10(str(tmp_path), split, None) for split in ("train", "test"))
    assert train.class_names == test.class_names == ["chair", "desk", "lamp", "sofa", "vase"]
    assert train.labels.tolist() == [0, 1, 2, 3, 4] and test.labels.tolist() == [0] and len(train.read(1).xyz) == 10_000


def test_points_of_a_mesh_lie_evenly_on_its_faces(tmp_path):
    colored = CUBE.replace("4 3 0 4 7", "4 3 0 4 7 0.5 0.5 1").replace("1 1 1", "1 1 1 255 0 9")
    (tmp_path / "cube.off").write_text(colored.replace("OFF\n8", "OFF8"))
    vertices, triangles = parse_off(str(tmp_path / "cube.off"))
    assert vertices.shape == (8, 3) and len(triangles) == 12
    xyz, normals = sample_mesh(vertices * [1, 1, 3], triangles, 20_000, np.random.default_rng(0))
    axis = np.abs(normals).argmax(axis=1)
    np.testing.assert_allclose(np.abs(normals).max(axis=1), 1, atol=1e-6)
    on_face = xyz[np.arange(20_000), axis]
    outside = np.where(normals[np.arange(20_000), axis] > 0, np.array([1, 1, 3])[axis], 0)
    np.testing.assert_allclose(on_face, outside, atol=1e-6)
    assert (axis == 2).mean() == pytest.approx(2 / 14, abs=0.01)  # 2 of 14 units of area
    sides = xyz[axis == 0]
    assert np.histogram2d(sides[:, 1], sides[:, 2], 4, [[0, 1], [0, 3]])[0].std() < 60


@pytest.mark.parametrize(
    "name, content, said",
    [
        ("a.txt", "1,2,3\n1,2\n", "line 2"),
        ("a.txt", "1,2,3\n1,x,3\n", "line 2"),
        ("a.txt", "1,2,3,4\n", "4 columns without names"),
        ("a.txt", "x,y,time\n1,2,3\n", "has columns x, y, time; expected x, y, z"),
        ("a.txt", "", "has no points"),
        ("a.off", "ply\n", "line 1: expected OFF"),
        ("a.off", "\n".join(CUBE.splitlines()[:9]), "is truncated after line 9"),
        (
            "a.off",
            CUBE.replace("4 3 0 4 7", "4 3 0 4 8"),
            "line 16: .*a corner is missing, or is not one of 8 vertices",
        ),
        ("a.off", CUBE.replace("1 1 1", "1 b 1"), "line 9: invalid in the OFF format"),
        ("a.off", CUBE.replace("1 1 1", "1 nan 1"), "a.off has no area, or coordinates that are not finite"),
        ("a.off", "OFF\n1 0 0\n0 0 0\n", "a.off has no area"),
        ("a.off", "OFF\n9999999999999 0 0\n0 0 0\n", "is truncated"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_with_its_line(name, content, said, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=said):
        read_shape(str(tmp_path / name))


def test_folders_that_are_no_modelnet_are_refused(tmp_path):
    for path, said in (
        (None, "needs -data_path"),
        (str(tmp_path), "has no shapes in modelnet40_train.txt or CLASS/train"),
    ):
        with pytest.raises(UserError, match=said):
            ModelNet40(path, "train", None)
    (resampled(tmp_path) / "airplane" / "airplane_0001.txt").unlink()
    with pytest.raises(UserError, match="1 shapes that do not exist, the first is airplane/airplane_0001.txt"):
        ModelNet40(str(tmp_path), "train", None)
    (tmp_path / "modelnet40_shape_names.txt").write_text("airplane\n")
    with pytest.raises(UserError, match="does not name the class of night_stand/night_stand_0002.txt"):
        ModelNet40(str(tmp_path), "val", None)


def test_points_of_every_format_of_scenes_are_the_same_shape(tmp_path):
    """Far from the origin, as in a survey, where float32 would leave nothing of a shape of one meter."""
    xyz, normals, _ = SyntheticSolids(8, "val").read(2)
    far = xyz + [512_345, 5_403_210, 300]
    rows = np.concatenate([far, 3 * normals], axis=1)
    np.savetxt(tmp_path / "a.xyz", rows, fmt="%.9f")
    np.save(tmp_path / "b.npy", rows)
    columns = {name: np.ascontiguousarray(column) for name, column in zip(("x", "y", "z", "nx", "ny", "nz"), rows.T)}
    write_points(tmp_path / "c.ply", columns)
    keys = make_keys("SHAPES.FEATURES", "[xyz, normals]", "SHAPES.POINTS", "3000").SHAPES
    expected = build_sample(SampledShape(xyz, normals, -1), keys)
    for name in ("a.xyz", "b.npy", "c.ply"):
        found = build_sample(read_shape(str(tmp_path / name)), keys)
        np.testing.assert_allclose(found.features, expected.features, atol=1e-5)


def test_the_points_that_are_evaluated_come_from_the_whole_scan():
    along = np.linspace(0, 1, 5_000)
    xyz = np.stack([np.r_[along, 0 * along], np.r_[0 * along, along], np.zeros(10_000)], axis=1)  # as it is scanned
    found = build_sample(SampledShape(xyz, None, 0), make_keys("SHAPES.POINTS", "200").SHAPES)
    assert (np.ptp(found.features, axis=0)[:2] > 1).all()


def test_an_evaluated_shape_fills_a_ball_and_a_trained_one_varies_with_its_generator():
    keys = make_keys("SHAPES.POINTS", "500", "SHAPES.FEATURES", "[xyz, normals, ones]").SHAPES
    shape = SyntheticSolids(8, "val").read(1)
    first = build_sample(shape, keys)
    np.testing.assert_array_equal(
        first.voxels, build_sample(shape._replace(xyz=shape.xyz * 7 + 3), keys).voxels, strict=True
    )
    taken = shape.xyz[np.random.default_rng(0).permutation(2048)[:500]]
    xyz = (taken - taken.mean(axis=0)) / np.linalg.norm(taken - taken.mean(axis=0), axis=1).max()
    xyz = xyz.astype(np.float32)
    assert np.array_equal(
        np.unique(first.voxels, axis=0), np.unique(np.floor(xyz / np.float32(0.2)).astype(int), axis=0)
    )
    assert first.features.shape == (len(first.voxels), 7) and first.label == 1
    np.testing.assert_allclose(np.linalg.norm(first.features[:, 3:6], axis=1), 1, atol=1e-5)
    varied, again, other = (build_sample(shape, keys, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert np.array_equal(varied.features, again.features) and not np.array_equal(varied.voxels, other.voxels)
    with pytest.raises(BadSample, match="this shape has no normals: remove"):
        build_sample(shape._replace(normals=None), keys)
    with pytest.raises(BadSample, match="no points"):
        make_shape(np.zeros((0, 3), np.float32), None, 0)


@pytest.mark.parametrize("up", ["x", "y", "z"])
def test_a_trained_shape_is_turned_scaled_and_moved_as_a_second_implementation_does(up):
    keys = make_keys("SHAPES.POINTS", "60", "SHAPES.FEATURES", "[normals, xyz, ones]", "SHAPES.UP_AXIS", up,
                     "SHAPES.ROTATION_DEGREES", "70", "SHAPES.VOXEL_SIZE", "0.001").SHAPES  # fmt: skip
    shape = SyntheticSolids(8, "val").read(1)
    for seed in range(3):
        found, draw = build_sample(shape, keys, np.random.default_rng(seed)), np.random.default_rng(seed)
        chosen = draw.permutation(2048)[:60]
        xyz = shape.xyz[chosen] - shape.xyz[chosen].mean(axis=0)
        xyz /= np.sqrt((xyz**2).sum(axis=1)).max()
        turn = Rotation.from_rotvec(np.radians(70) * draw.uniform(-1, 1) * np.eye(3)["xyz".index(up)])
        noise = 0.01 * draw.standard_normal((60, 3), np.float32)
        shift = draw.uniform(-0.1, 0.1, 3)
        moved = draw.uniform(0.8, 1.25) * turn.apply(xyz) + noise + shift
        normals = turn.apply(shape.normals[chosen])
        np.testing.assert_allclose(
            found.features, np.concatenate([normals, moved, np.ones((60, 1))], axis=1), atol=1e-5, err_msg=str(seed)
        )
        assert found.features.dtype == np.float32 and found.voxels.dtype == np.int32


def test_solids_are_drawn_from_their_split_and_number():
    for split, part in (("train", 0), ("val", 1)):
        solids = SyntheticSolids(16, split)
        for index in (1, 14):
            found, draw = solids.read(index), np.random.default_rng([part, index])
            name = sorted(SOLIDS)[index % 8]
            vertices, triangles = revolve_profile(*SOLIDS[name])
            stretched = vertices * draw.uniform(0.6, 1.4, 3)
            turned = Rotation.from_rotvec([0, 0, draw.uniform(0, 2 * np.pi)]).apply(stretched)
            xyz, normals = sample_mesh(turned, triangles, 2048, draw)
            np.testing.assert_allclose(found.xyz, xyz + 0.01 * draw.standard_normal((2048, 3)), atol=1e-9)
            np.testing.assert_allclose(found.normals, normals, atol=1e-9)
            keys = make_keys("SHAPES.SOLIDS.TRAIN", "17", "SHAPES.SOLIDS.VAL", "15")
            assert len(SyntheticSolids.open(keys, split, None)) == 17 - 2 * part
            assert found.label == index % 8 and solids.describe(index) == f"{split} {name} {index}"


def test_a_line_that_turns_makes_a_closed_solid_seen_from_outside():
    """Area and volume of a cylinder of radius 1 and height 2, and of a cone, from prisms of 200 sides."""
    cylinder, cone = [(0, -1), (1, -1), (1, 1), (0, 1)], [(0, 0), (1, 0), (0, 1)]
    for profile, area, volume in ((cylinder, 6 * np.pi, 2 * np.pi), (cone, np.pi * 2.41421, np.pi / 3)):
        vertices, triangles = revolve_profile(np.array(profile), 200)
        a, b, c = (vertices[triangles[:, corner]] for corner in range(3))
        assert np.linalg.norm(np.cross(b - a, c - a), axis=1).sum() / 2 == pytest.approx(area, rel=1e-3)
        assert (a * np.cross(b, c)).sum() / 6 == pytest.approx(volume, rel=1e-3)  # negative if normals point inside


def test_the_network_has_one_output_for_each_scene_and_takes_the_weights_of_a_u_net():
    paddle.seed(0)
    model = create_model("mink_classifier14", num_classes=5, widths=WIDTHS[:4], first_channels=8)
    unet = create_model("minkunet14a", widths=WIDTHS, first_channels=8)
    vary(model)
    generator = np.random.default_rng(0)
    parts = [generator.integers(0, 20, (number, 3)) for number in (50, 1, 80)]
    coordinates = [np.unique(np.c_[np.full(len(part), scene), part], axis=0) for scene, part in enumerate(parts)]
    features = [generator.normal(size=(len(part), 3)).astype(np.float32) for part in coordinates]

    def outputs(numbers):
        rows = [np.c_[np.full(len(coordinates[n]), at), coordinates[n][:, 1:]] for at, n in enumerate(numbers)]
        given = paddle.to_tensor(np.concatenate([features[n] for n in numbers]))
        return model(SparseTensor(given, np.concatenate(rows).astype(np.int32))).numpy()

    together = outputs([0, 1, 2])
    assert together.shape == (3, 5)
    for number in range(3):
        np.testing.assert_allclose(outputs([number])[0], together[number], rtol=1e-4, atol=1e-5)
    assert np.ptp(together, axis=0).min() > 0.1
    own, theirs = model.state_dict(), unet.state_dict()
    assert {name for name in own if name not in theirs} == {"head.weight", "head.bias"}
    assert all(list(own[name].shape) == list(theirs[name].shape) for name in own if name in theirs)


def test_scores_are_the_shares_of_shapes_and_the_mean_of_the_classes_shares():
    metrics = ShapeMetrics(3, list("abc"))
    labels = np.array([0, 0, 0, 1, 0, 1])
    logits = np.eye(3, dtype=np.float32)[[0, 0, 2, 1, 0, 0]]
    for part in (slice(0, 4), slice(4, 6)):
        metrics.update(paddle.to_tensor(logits[part]), paddle.to_tensor(labels[part]))
    values = metrics.compute(metrics.state)
    assert values["top-1"] == pytest.approx(100 * 4 / 6) and values["balanced accuracy"] == pytest.approx((75 + 50) / 2)
    assert "balanced accuracy 62.50" in metrics.summary(values)
    again = metrics.bootstrap_values(metrics.per_sample(), np.ones((1, 6)))
    assert again["balanced accuracy"][0] == pytest.approx(values["balanced accuracy"])


def test_classes_without_names_are_called_by_their_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(SyntheticSolids, "class_names", None)  # as a dataset of somebody's own may have it
    task = ShapeClassification(make_keys())
    task.build_dataset("train", tmp_path)
    assert task.class_names == [str(number) for number in range(SyntheticSolids.num_classes)]


def test_steps_of_training_and_evaluation(tmp_path):
    task = ShapeClassification(make_keys("TRAIN.SMOOTHING", "0.1"))
    samples = task.build_dataset("train", tmp_path)
    paddle.seed(0)
    model = task.build_model()
    batch = task.collate([samples.sample(index, np.random.default_rng(index)) for index in range(8)])
    tensors = {k: paddle.to_tensor(v) if isinstance(v, np.ndarray) else v for k, v in batch.items()}
    optimizer, losses = paddle.optimizer.AdamW(3e-3, parameters=model.parameters()), []
    for update in range(4):
        if update == 1:  # the same batch statistics as in the step that follows
            logits = task.logits(model, tensors).numpy().astype(np.float64)
        terms = task.train_step(model, tensors, StepPosition(1, update, 4))
        term = terms["loss"]
        if update == 1:
            logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
            smooth = 0.9 * np.eye(8)[batch["labels"]] + 0.1 / 8
            assert term.sum.item() == pytest.approx(-(smooth * logs).sum(), rel=1e-4) and (term.count, term.weight) == (
                8,
                1,
            )
            right = (logits.argmax(axis=1) == batch["labels"]).sum()
            assert 8 > right > (logits.argmin(axis=1) == batch["labels"]).sum()
            assert (terms["accuracy"].sum.item(), terms["accuracy"].count, terms["accuracy"].weight) == (right, 8, 0)
        (term.sum / term.count).backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(term.sum.item() / term.count)
    assert losses[-1] < losses[0]
    model.eval()
    metrics = task.build_metrics()
    kept = task.eval_step(model, tensors, EvaluationStep(metrics, keeps_records=True))()
    predicted = get_aspect(task, Predictable).predict_step(model, tensors)
    right = np.mean([shares.argmax() == label for shares, label in zip(predicted, batch["labels"])])
    assert metrics.compute(metrics.state)["top-1"] == pytest.approx(100 * right)
    assert all(shares.sum() == pytest.approx(1) for shares in predicted)
    figures = {
        figure.title: figure for figure in get_aspect(task, Reportable).figures(samples, list(enumerate(kept)), model)
    }
    assert {"Hardest shapes", "Confusion", "Classes", "Calibration"} < set(figures)
    counts = to_dense(figures["Confusion"].values, task.num_classes)
    assert np.trace(counts) == round(8 * right) and counts.sum() == 8
    pixels, caption = figures["Hardest shapes"].images[0]
    assert pixels.shape[1:] == (80, 3) and "train" in caption and (pixels != 255).any(axis=2).mean() > 0.1


class MissedShares(ShapeClassification):
    """The share that a network does not give to a shape's class."""

    def losses(self, outputs, batch):
        return 1 - (paddle.nn.functional.softmax(outputs) * paddle.eye(8)[batch["labels"]]).sum(axis=1)


def test_a_users_losses_of_shapes_are_summed_and_evaluated_alike():
    task = MissedShares(make_keys())
    samples = task.build_dataset("train", None)
    model = vary(task.build_model())
    model.eval()
    batch = task.collate([samples.sample(index, np.random.default_rng(index)) for index in range(5)])
    tensors = {name: paddle.to_tensor(one) if isinstance(one, np.ndarray) else one for name, one in batch.items()}
    logits = task.logits(model, tensors).numpy().astype(np.float64)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares = powers / powers.sum(axis=1, keepdims=True)
    expected = 1 - shares[np.arange(5), batch["labels"]]
    term = task.train_step(model, tensors, StepPosition(1, 0, 4))["loss"]
    assert (term.sum.item(), term.count) == (pytest.approx(expected.sum(), rel=1e-4), 5)
    metrics = build_metrics(task)
    task.eval_step(model, tensors, EvaluationStep(metrics))
    values = metrics.compute(metrics.state)
    assert values["loss"] == pytest.approx(expected.mean(), rel=1e-4) and "cross_entropy" in values


def test_training_shapes_are_drawn_as_they_are_evaluated_and_as_an_epoch_has_them(tmp_path):
    task = ShapeClassification(make_keys())
    samples = task.build_dataset("train", tmp_path)
    ((still, caption), *_), (again, *_) = (
        get_aspect(task, Drawable).visualize_eval_samples(samples, [3, 5]) for _ in range(2)
    )
    batch = task.collate([samples.sample(3, np.random.default_rng(0))])
    ((varied, _),) = get_aspect(task, Drawable).visualize_batch(samples, batch, 1)
    plain = build_sample(samples.dataset.read(3), samples.shapes).voxels
    assert caption == f"cylinder, {len(plain):,} voxels" and np.array_equal(still, draw_shape(plain, "z"))
    assert np.array_equal(still, again[0]) and not np.array_equal(still, varied)


def test_a_shape_stands_upright_in_its_image():
    """A plate on a pole: what is above is wide, whichever axis is up."""
    pole, plate = [(0, 0, z) for z in range(40)], [(x, y, 40) for x in range(-9, 10) for y in range(-9, 10)]
    upright = np.array(pole + plate)
    shares = (upright - [-9, -9, 0]) / [18, 18, 40]
    expected = draw(upright.astype(np.float32), np.rint(40 + 180 * shares).astype(np.uint8), np.ones(401, bool), 80)
    for shift, up in enumerate("zxy"):
        drawn = draw_shape(np.roll(upright, shift, axis=1), up)
        np.testing.assert_array_equal(drawn, expected, err_msg=up)
        image = (drawn != 255).any(axis=2)
        widths = image.sum(axis=1)
        assert widths[: len(widths) // 4].max() > 40 and widths[-len(widths) // 3 :].max() == 3


def test_files_are_predicted_as_an_evaluation_would_see_them(tmp_path):
    task = ShapeClassification(make_keys())
    task.load_meta(CheckpointMeta(8, tuple(SyntheticSolids.class_names)))
    model = vary(task.build_model())
    (tmp_path / "cube.OFF").write_text(CUBE)
    (tmp_path / "notes.md").write_text("1,2,3")
    (tmp_path / "folder.off").mkdir()
    xyz = SyntheticSolids(8, "val").read(3).xyz
    (tmp_path / "points.txt").write_text("".join(f"{x},{y},{z}\n" for x, y, z in xyz))
    inputs = get_aspect(task, Predictable).open_inputs([str(tmp_path), str(tmp_path / "nothing.off")], tmp_path)
    assert [name.rpartition("/")[2] for name in inputs.names] == ["cube.OFF", "points.txt"]
    assert inputs.unreadable == [(str(tmp_path / "nothing.off"), "no such file or folder")]
    batch = task.collate([inputs.sample(index, np.random.default_rng(0)) for index in range(2)])
    tensors = {k: paddle.to_tensor(v) if isinstance(v, np.ndarray) else v for k, v in batch.items()}
    predicted = get_aspect(task, Predictable).predict_step(model, tensors)
    (row,) = get_aspect(task, Predictable).prediction_rows(predicted[1])
    assert row["class"] == SyntheticSolids.class_names[predicted[1].argmax()]
    assert row["score"] == pytest.approx(predicted[1].max(), rel=1e-6) and len(row) == 10


def test_a_network_of_another_task_is_refused(tmp_path):
    task = ShapeClassification(make_keys("MODEL.NAME", "minkunet_tutorial"))
    samples = task.build_dataset("train", tmp_path)
    model = task.build_model()
    batch = task.collate([samples.sample(index, np.random.default_rng(index)) for index in range(2)])
    tensors = {k: paddle.to_tensor(v) if isinstance(v, np.ndarray) else v for k, v in batch.items()}
    with pytest.raises(
        UserError, match=r"TutorialNetwork returns Tensor float32 \(\d+, 8\) in training mode, expected logits \(shapes"
    ):
        task.train_step(model, tensors, StepPosition(1, 0, 1))
    with pytest.raises(
        UserError,
        match=r"function returns list of 2 \(Tensor float32 .*\) in evaluation mode, expected logits \(shapes",
    ):
        task.train_step(lambda x: [x.features, x.features], tensors, StepPosition(1, 0, 1))


def test_weights_record_voxels_features_and_classes(tmp_path):
    task = ShapeClassification(make_keys("SHAPES.FEATURES", "[ones, xyz]"))
    samples = task.build_dataset("val", tmp_path)
    assert task.signature() == {"SHAPES.VOXEL_SIZE": 0.2, "SHAPES.FEATURES": ["ones", "xyz"]}
    assert task.signature(samples)["classes"] == list(SOLIDS) == samples.class_names
    sample = samples.sample(1, np.random.default_rng(0))
    for label in (-1, 0, 7):  # -1: none
        task.check_sample(sample._replace(label=label))
    for changes, said in (({"label": 8}, "8"), ({"features": sample.features * np.nan}, "nan")):
        with pytest.raises(BadSample, match=said):
            task.check_sample(sample._replace(**changes))


def test_doctor_sees_labels_and_the_loss_of_a_guess():
    task = ShapeClassification(settings.load(["-cfg=configs/mink_classifier_solids.yaml"]).values)
    task.num_classes = 7
    checks = get_aspect(task, Checkable)
    labels = np.arange(3)
    assert checks.get_labels(SimpleNamespace(dataset=SimpleNamespace(labels=labels))) is labels
    assert checks.expected_losses() == {"loss": math.log(7)}
