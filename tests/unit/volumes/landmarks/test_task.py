"""The landmark task: one process or several, what it writes, and what it says about bad input."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.files.landmark_folders import TINY, small_folder
from support.files.volume_files import world, write_landmarks
from support.processes import ROOT

from paddlevit_dist import UserError, settings
from paddlevit_dist.registry.lookup import resolve
from paddlevit_dist.tasks.aspects import get_aspect
from paddlevit_dist.tasks.protocols import CheckpointMatching, Drawable, describe_samples
from paddlevit_dist.volumes.geometry import VolumeGeometry
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
    import paddle

    task = make_task("VOLUMES.CROP_SIZE", "[40,48,56]")
    task.build_dataset("val", Path("unused"))
    points = paddle.to_tensor([[[20.0, 24.0, 24.0]] * 7 + [[np.nan] * 3]])
    target = task.target(points, (40, 48, 56)).dense()
    for factor, cost in ((0, 1.0), (3, 4.0)):
        batch = {"points": points, "volume": points}
        term = task.train_step(lambda volume, factor=factor: target * factor, batch, None)["heatmap"]
        assert term.count.item() == 7 and term.sum.item() / 7 == pytest.approx(cost, rel=1e-3)


def test_the_network_has_the_normalization_and_activation_that_are_set():
    import paddle

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
