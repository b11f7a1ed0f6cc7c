"""The landmark task: one process or several, what it writes, and what it says about bad input."""

from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from support.files.landmark_folders import TINY, small_folder
from support.files.volume_files import world, write_landmarks
from support.processes import ROOT

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.registry.register import register_model
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.model import Model
from paddlevit_dist.core.tasks.protocols import CheckpointMatching, Drawable, LogContributor, describe_samples
from paddlevit_dist.volumes import sliding_window
from paddlevit_dist.volumes.geometry import VolumeGeometry
from paddlevit_dist.volumes.landmarks.heatmaps import decode, radius_factors
from paddlevit_dist.volumes.landmarks.losses import focal_loss, weighted_squared_error
from paddlevit_dist.volumes.phantoms import NAMES


def make_task(*arguments: str) -> Any:
    values = settings.load([f"-cfg={ROOT}/configs/landmark_unet3d.yaml", *TINY, *arguments]).values
    return resolve("task", values.TASK)(values)


def test_a_batch_carries_coordinates_not_heatmaps():
    task = make_task()
    samples = task.build_dataset("train", Path("unused"))
    batch = task.collate([samples.sample(index, np.random.default_rng(index)) for index in range(3)])
    assert batch["volume"].shape == (3, 1, 12, 20, 16)
    label_bytes = sum(array.nbytes for name, array in batch.items() if name != "volume") / 3
    assert label_bytes <= 1024
    batch["points"][0, 0, 1] = np.nan
    assert task.loss_normalizers(batch)["heatmap"] == int(np.isfinite(batch["points"]).all(axis=-1).sum()) <= 24


def test_whole_volumes_of_different_sizes_share_a_batch(tmp_path):
    data = small_folder(tmp_path)
    task = make_task("-dataset=landmarks", f"-data_path={data}", "VOLUMES.MIRROR_PAIRS", "none")
    samples = task.build_dataset("val", tmp_path / "cache")
    batch = task.collate([samples.sample(index, np.random.default_rng(0)) for index in range(2)])
    assert batch["volume"].shape == (2, 1, 16, 18, 20) and batch["sizes"].tolist() == [[10, 12, 14], [16, 18, 20]]
    geometry = VolumeGeometry((16, 18, 20), batch["affine"][1])
    np.testing.assert_allclose(geometry.world(batch["points"][1].astype(float))[1], world((3.0, 4.0, 5.0)), atol=1e-4)


def test_training_notes_what_is_odd_in_the_folder_and_pairs_that_are_not_exchanged(tmp_path):
    data = small_folder(tmp_path)
    (data / "train" / "plan.png").touch()
    for number in range(2):
        eyes = {"eye_left": world((3.0, 4.0, 5.0)), "eye_right": world((8.0, 4.0, 5.0))}
        write_landmarks(data / "train" / f"case{number}.csv", eyes)
    words = ("VOLUMES.MIRROR_PAIRS", "none", "VOLUMES.LANDMARKS", "[eye_left,eye_right]", "VOLUMES.FLIP", "0.5")
    task = make_task("-dataset=landmarks", f"-data_path={data}", *words)
    notices = task.build_dataset("train", tmp_path / "cache").notices
    assert f"note: {data}/train also contains 1 .png; not used" in notices
    pairs = "note: VOLUMES.MIRROR_PAIRS does not contain eye_left:eye_right: mirrored crops keep these names"
    assert notices[-1] == pairs


def test_the_log_counts_the_volumes_of_each_landmark():
    task = make_task()
    samples = task.build_dataset("val", Path("unused"))
    counted = samples.dataset.placed()
    said = describe_samples(task, samples)
    assert (
        said == "24 volumes: " + ", ".join(f"{name} {n}" for name, n in zip(NAMES, counted)) and len(set(counted)) > 1
    )
    assert describe_samples(task, range(1234)) == "1,234 volumes"  # samples of somebody's own
    log = get_aspect(task, LogContributor)
    assert log.count_classes(samples) == dict(zip(NAMES, counted)) and log.count_classes(range(1234)) is None


def test_weights_of_more_landmarks_name_the_key_that_sets_all_of_them():
    task = make_task()
    task.build_dataset("train", Path("unused"))
    advise, more = get_aspect(task, CheckpointMatching).mismatch_hint, [*task.names, "left ear"]
    assert advise("landmarks", more) == (
        f"set all landmarks of the weights with VOLUMES.LANDMARKS '{', '.join(task.names)}, left ear'"
    )
    for name, trained in (("landmarks", more[1:]), ("spacing_mm", more)):
        assert advise(name, trained) == "use the same settings"


def test_a_map_of_zeros_costs_one_per_landmark_and_three_times_the_target_four():
    task = make_task("VOLUMES.CROP_SIZE", "[40,48,56]")
    task.build_dataset("val", Path("unused"))
    points = paddle.to_tensor([[[20.0, 24.0, 24.0]] * 7 + [[np.nan] * 3]])
    target = task.target(points, (40, 48, 56)).dense()
    for factor, cost in ((0, 1.0), (3, 4.0)):
        batch = {"points": points, "volume": paddle.zeros([1, 1, 40, 48, 56])}
        term = task.train_step(lambda volume, factor=factor: target * factor, batch, None)["heatmap"]
        assert term.count.item() == 7 and term.sum.item() / 7 == pytest.approx(cost, rel=1e-3)


RADIUS = ["VOLUMES.HEATMAP", "radius", "VOLUMES.RADIUS", "2", "VOLUMES.DECODING", "soft_argmax"]
WINDOWS = ["VOLUMES.CROP_SIZE", "[5,6,7]", "VOLUMES.OVERLAP", "0.3", "VOLUMES.WINDOW_WEIGHTS", "gaussian"]


@pytest.mark.parametrize("loss", ["mse", "focal"])
def test_losses_and_places_are_those_of_the_keys(loss):
    task, generator = make_task("VOLUMES.LOSS", loss, *RADIUS, *WINDOWS), np.random.default_rng(0)
    task.names, task.spacing = ["nose", "chin", "ear"], np.array([2.0, 1.5, 1.0])
    points = paddle.to_tensor(generator.uniform(0, 5, (2, 3, 3)).astype(np.float32))
    points[0, 1], points[1, 2, 0] = float("nan"), float("nan")
    maps = paddle.to_tensor(generator.standard_normal((2, 3, 5, 6, 7)).astype(np.float32))
    target = radius_factors(points, (5, 6, 7), 2)
    if loss == "focal":
        losses = focal_loss(maps, target, points).numpy()
    else:
        cost = (5 / 6) ** 3 * (np.pi**1.5 + task.config.VOLUMES.PEAK_WEIGHT * (2 * np.pi / 3) ** 1.5)
        losses = weighted_squared_error(maps, target, task.config.VOLUMES.PEAK_WEIGHT).numpy() / cost
    batch = {"points": points, "volume": paddle.zeros([2, 1, 5, 6, 7])}
    term = task.train_step(lambda volume: maps.astype("float64"), batch, None)["heatmap"]
    assert term.count.item() == 4
    assert term.sum.item() == pytest.approx(losses[[0, 0, 1, 1], [0, 2, 0, 1]].sum(), rel=1e-5)

    biases = task.build_model().head.bias.numpy()
    assert biases.shape == (3,) and (biases == np.float32(-4.6)).all() == (loss == "focal")
    assert task.build_model(5).head.bias.shape == [5]

    volume = paddle.to_tensor(generator.standard_normal((1, 9, 8, 12)).astype(np.float32))
    model = lambda windows: paddle.concat([windows, -2 * windows, windows - 1], axis=1)  # noqa: E731
    shares = (lambda windows: paddle.nn.functional.sigmoid(model(windows))) if loss == "focal" else model
    blended = sliding_window.predict(shares, volume, (5, 6, 7), 0.3, "gaussian")
    for keys, reach in (([], (3, 3, 3)), (["VOLUMES.HEATMAP", "gaussian", "VOLUMES.SIGMA_MM", "[2,2,1]"], (3, 4, 3))):
        task.config = make_task("VOLUMES.LOSS", loss, *RADIUS, *WINDOWS, *keys).config
        for found, expected in zip(task.find(model, volume), decode(blended, "soft_argmax", reach), strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-5)


def test_an_input_is_described_with_rounded_spacing_and_the_window():
    task = make_task("VOLUMES.INTENSITY_WINDOW", "[-5,7.5]")
    task.names, task.spacing = ["nose", "chin"], np.array([2.0049, 12.3456, 0.5])
    expected = {
        "orientation": "RAS",
        "spacing_mm": [2.0, 12.3, 0.5],
        "intensity_window": [-5.0, 7.5],
        "normalize": ["percentiles"],
        "landmarks": ["nose", "chin"],
    }
    assert task.signature() == expected
    task.config = make_task("VOLUMES.INTENSITY_WINDOW", "None").config
    assert task.signature() == {**expected, "intensity_window": "percentiles"}
    with pytest.raises(UserError, match="volume"):
        task.check_sample({"points": np.full((1, 3), np.nan), "volume": np.array([1.0, np.nan], np.float32)})
    task.check_sample({"points": np.full((1, 3), np.nan), "volume": np.ones(2, np.float32)})


def test_the_network_has_the_normalization_and_activation_that_are_set():
    for words, norm, negative in (
        ([], "BatchNorm3D", 0.0),
        (["VOLUMES.UNET_NORM", "instance", "VOLUMES.UNET_ACTIVATION", "leaky_relu"], "InstanceNorm3D", -0.01),
    ):
        task = make_task(*words)
        task.names = ["nose", "chin"]
        model = task.build_model()
        assert model.head.bias.shape == [2] and model.activation(paddle.to_tensor(-1.0)).item() == pytest.approx(
            negative
        )
        kinds = {type(layer).__name__ for layer in model.sublayers()}
        assert [kind for kind in kinds if "Norm" in kind] == [norm]


class PlainNetwork(Model):
    """A network of somebody's own, without norms and activations to choose."""

    def forward(self): ...

    def __init__(self, num_classes: int = 1, width: int = 1, depth: int = 1, max_width: int = 0) -> None:
        super().__init__()
        self.given = num_classes, width, depth, max_width


def test_a_network_is_given_only_what_differs_from_the_defaults(registered_names):
    register_model("recorder", PlainNetwork)
    words = ["MODEL.NAME", "recorder", "VOLUMES.UNET_WIDTH", "5", "VOLUMES.UNET_DEPTH", "1"]
    task = make_task(*words)
    task.names = ["nose", "chin"]
    assert task.build_model().given == (2, 5, 1, 0)
    task.config = make_task(*words, "VOLUMES.UNET_MAX_WIDTH", "9").config
    assert task.build_model(7).given == (7, 5, 1, 9)
    for key, value in (("NORM", "instance"), ("ACTIVATION", "leaky_relu")):
        task.config = make_task(*words, f"VOLUMES.UNET_{key}", value).config
        with pytest.raises(UserError, match=key.lower()):
            task.build_model()


def test_images_show_training_crops_and_whole_volumes():
    task = make_task()
    samples = task.build_dataset("train", Path("unused"))
    batch = task.collate([samples.sample(index, np.random.default_rng(index)) for index in range(2)])
    for images in (
        get_aspect(task, Drawable).visualize_batch(samples, batch, 1),
        get_aspect(task, Drawable).visualize_eval_samples(samples, [0, 1]),
    ):
        assert len(images) == 2 and images[0][0].dtype == np.uint8 and images[0][1].endswith("of 8 landmarks")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            ["-dataset=digits"],
            "digits holds images, but TASK landmarks reads volumes; set DATA.DATASET to one of landmarks, syn",
        ),
        (
            ["TASK", "classification"],
            "VOLUMES.CROP_SIZE is read by tasks landmarks, volume_segmentation, not by classification",
        ),
        (["-num_classes=3"], "MODEL.NUM_CLASSES .* is 3, but there are 8 landmarks"),
        (["VOLUMES.INTENSITY_WINDOW", "[5,1]"], "write the smaller number first"),
        (["VOLUMES.MIRROR_PAIRS", "[nose]"], "VOLUMES.MIRROR_PAIRS 'nose'"),
    ],
)
def test_bad_settings_are_told(arguments, message):
    with pytest.raises(UserError, match=message):
        make_task(*arguments).build_dataset("train", Path("unused"))
