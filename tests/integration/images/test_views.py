"""Several views of a test image: evaluations and predictions equal the mean of the views' probabilities by hand."""

import csv
import sys

import numpy as np
import paddle
import pytest
from PIL import Image
from support.processes import run_command, run_main
from support.trainings.runs import IMAGES, last_line, read_events, refused, well, write_images

from paddlevit_dist import Predictor, create_model
from paddlevit_dist.images.transforms.crops import EvaluationTransform

WORDS = [word for word in IMAGES if not word.startswith("-image_size")]
COMMAND = [sys.executable, "-m", "paddlevit_dist"]
SIZE, CROP_PCT = (16, 24), 0.8
VIEWS = ["DATA.TEST_VIEWS", "[five_crops,mirrored]", "DATA.TEST_SCALES", "[1.0,1.25]"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run without views in "run", and its images in "data"."""
    folder = tmp_path_factory.mktemp("views")
    write_images(folder / "data", 8, 5)
    data = [*WORDS, f"-data_path={folder}/data", "-image_size=16x24", "DATA.CROP_PCT", str(CROP_PCT)]
    well(run_main(*data, f"-output={folder}/run", "TRAIN.WARMUP_EPOCHS", "0", "TRAIN.BASE_LR", "0.01", "-epochs=3"))
    return folder


def average_by_hand(folder):
    """Compute the mean probabilities of 20 views of each image of val, with Pillow and one forward pass for each."""
    model, rows = create_model(folder / "run", pretrained=True), []
    for path in sorted((folder / "data" / "val").glob("*/*.jpg")):
        shares = []
        for scale in (1.0, 1.25):
            rows_px, columns_px = (int(side / CROP_PCT * scale + 1e-9) for side in SIZE)
            plain = EvaluationTransform(SIZE, CROP_PCT / scale)
            image = Image.open(path).convert("RGB")
            resized = image.resize(plain.resized(image.size), Image.Resampling.BICUBIC)
            assert resized.width == columns_px or resized.height == rows_px
            pixels = np.asarray(resized, np.float32)
            lower, right = pixels.shape[0] - SIZE[0], pixels.shape[1] - SIZE[1]
            for top, left in ((round(lower / 2), round(right / 2)), (0, 0), (0, right), (lower, 0), (lower, right)):
                crop = pixels[top : top + SIZE[0], left : left + SIZE[1]]
                for view in (crop, crop[:, ::-1]):
                    images = np.ascontiguousarray(((view / 255 - 0.5) / 0.5).transpose(2, 0, 1))
                    logits = model(paddle.to_tensor(images[None])).numpy()[0].astype(np.float64)
                    shares.append(np.exp(logits) / np.exp(logits).sum())
        assert len(shares) == 20
        rows.append(np.mean(shares, axis=0))
    return np.array(rows)


def evaluate(folder, name, *words, processes=1):
    command = ["evaluate", f"-pretrained={folder}/run", f"-cfg={folder}/run/config.yaml", f"-ngpus={processes}"]
    files = [f"-data_path={folder}/data", f"-output={folder}/{name}", f"-per_sample={folder}/{name}.csv"]
    ended = well(run_command([*COMMAND, *command, *files, *words], timeout=600))
    with (folder / f"{name}.csv").open(newline="") as file:
        return ended, list(csv.DictReader(file))


def test_evaluations_and_predictions_are_the_mean_by_hand(folder):
    expected, names = average_by_hand(folder), ["ant", "bee", "cow"]
    ended, rows = evaluate(folder, "one", *VIEWS)
    assert last_line(ended).endswith("(mean of 20 views: five crops, mirrored, scales 1, 1.25)")
    assert [row["prediction"] for row in rows] == [names[best] for best in expected.argmax(axis=1)]
    np.testing.assert_allclose([float(row["confidence"]) for row in rows], expected.max(axis=1), rtol=2e-6)
    truth = [names.index(row["truth"]) for row in rows]
    losses = -np.log(expected[range(len(truth)), truth])
    np.testing.assert_allclose([float(row["loss"]) for row in rows], losses, rtol=2e-5)
    event = read_events(folder / "one")[-1]
    assert event["protocol"].startswith("mean of 20 views") and event["loss"] == pytest.approx(losses.mean(), rel=1e-5)
    assert evaluate(folder, "two", *VIEWS, processes=2)[1] == rows
    _, plain = evaluate(folder, "plain")
    difference = [abs(float(one["confidence"]) - float(other["confidence"])) for one, other in zip(rows, plain)]
    assert max(difference) > 1e-3
    predictor = Predictor(
        str(folder / "run"), **{"DATA.TEST_VIEWS": ["five_crops", "mirrored"]}, **{"DATA.TEST_SCALES": [1.0, 1.25]}
    )
    found = list(predictor([str(folder / "data" / "val")]))
    assert [row["class"] for row in found] == [row["prediction"] for row in rows]
    np.testing.assert_allclose([row["score"] for row in found], expected.max(axis=1), rtol=2e-6)


def test_predictions_with_other_views_have_a_folder_of_their_own(folder):
    command = [*COMMAND, "predict", f"{folder}/run", f"{folder}/data/val"]
    target = f"-output={folder}/predicted"
    ended = well(run_command([*command, target, "DATA.TEST_VIEWS", "mirrored"], timeout=600))
    assert "probabilities are the mean of 2 views: mirrored" in ended.out
    first = (folder / "predicted" / "predictions.csv").read_bytes()
    other = well(run_command([*command, target], timeout=600))
    assert other.out.startswith(f"output folder: {folder}/predicted-2, as ") and "mean of 2 views" not in other.out
    second = (folder / "predicted-2" / "predictions.csv").read_bytes()
    assert (folder / "predicted" / "predictions.csv").read_bytes() == first != second


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["DATA.TEST_VIEWS", "ten_crops"], "DATA.TEST_VIEWS is 'ten_crops': expected one of mirrored, five_crops"),
        (["DATA.TEST_VIEWS", "[mirrored,mirrored]"], "expected each only once"),
        (["DATA.TEST_SCALES", "[1.0,0.5]"], "each at least DATA.CROP_PCT 0.875, as a crop cannot exceed its image"),
        (["DATA.TEST_SCALES", "[]"], "expected at least one number"),
    ],
)
def test_wrong_views_are_one_line(folder, words, said):
    assert said in refused(*IMAGES, f"-data_path={folder}/data", *words, f"-output={folder}/refused")
