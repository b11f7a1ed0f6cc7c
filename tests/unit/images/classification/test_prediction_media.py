"""``predict``: frames of videos, names of ImageNet's classes, classes beside images."""

import sys

import cv2
import numpy as np
import pytest
from PIL import Image
from support.refusals import refusal_of
from support.trainings.trained import write_weights

from paddlevit_dist import Predictor
from paddlevit_dist.images.classification import prediction
from paddlevit_dist.images.data import listing
from paddlevit_dist.images.data.inputs import InMemoryImages
from paddlevit_dist.images.data.reading import ReadConfig, UnreadableImage
from paddlevit_dist.images.imagenet_classes import names_by_synset

NAMES = ["cat", "ant", "bee"]
FRAMES = 7


@pytest.fixture(scope="module")
def predictor(tmp_path_factory):
    return Predictor(write_weights(tmp_path_factory.mktemp("weights"), NAMES))


def frames(path):
    """All frames of a video, RGB, by a plain loop."""
    capture = cv2.VideoCapture(str(path))
    while True:
        is_there, pixels = capture.read()
        if not is_there:
            return
        yield cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)


def write_video(path, code="MJPG"):
    """Seven frames of noise at 10 a second."""
    generator = np.random.default_rng(0)
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*code), 10, (64, 48))
    for _ in range(FRAMES):
        writer.write(np.repeat(np.repeat(generator.integers(0, 255, (6, 8, 3), np.uint8), 8, 0), 8, 1))
    writer.release()
    return path


def without_inputs(rows):
    return [{key: value for key, value in row.items() if key != "input"} for row in rows]


# ---- videos --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, code", [("walk.avi", "MJPG"), ("walk.MP4", "mp4v")])
def test_each_frame_of_a_video_gets_a_row_with_its_number_and_time(predictor, tmp_path, name, code):
    path = write_video(tmp_path / name, code)
    Image.new("RGB", (20, 20)).save(tmp_path / "zebra.png")
    rows = predictor(tmp_path)  # what a folder holds
    assert [row["input"] for row in rows[:-1]] == [f"{path}/walk_{n:06d}_{100 * n}ms" for n in range(FRAMES)]
    assert rows[-1]["input"].endswith("zebra.png") and predictor.unreadable == []
    expected = predictor([*frames(path), Image.open(tmp_path / "zebra.png")])  # as many at once: the same bits
    assert without_inputs(rows) == without_inputs(expected)
    assert len({row["score"] for row in rows[:-1]}) == FRAMES


def test_a_frame_may_be_asked_for_again(tmp_path):
    path = write_video(tmp_path / "walk.avi")
    video, expected = listing.VideoFile(str(path)), list(frames(path))
    for number in (5, 2, 2, 6):
        np.testing.assert_array_equal(np.asarray(video.frame(number)), expected[number], strict=True)
    with pytest.raises(UnreadableImage, match="it has no frame 7 any more"):
        video.frame(7)


def test_without_opencv_a_video_is_a_line_that_names_it(predictor, tmp_path, monkeypatch):
    write_video(tmp_path / "walk.avi")
    monkeypatch.setitem(sys.modules, "cv2", None)  # not installed
    assert "nothing was predicted" in refusal_of(predictor, tmp_path / "walk.avi")
    assert predictor.unreadable == [
        (str(tmp_path / "walk.avi"), "a video, which OpenCV reads: python -m pip install opencv-python-headless")
    ]


# ---- names and images --------------------------------------------------------------------------------------------


def test_the_table_of_imagenet_has_its_classes_in_their_order():
    names = list(names_by_synset().values())
    assert list(names_by_synset()) == sorted(names_by_synset()) and len(set(names)) == 1000
    known = {0: "tench", 1: "goldfish", 207: "golden retriever", 281: "tabby", 388: "giant panda", 999: "toilet tissue"}
    assert {label: names[label] for label in known} == known
    assert names[134] == "crane (bird)" and names[517] == "crane (machine)"


def test_classes_are_drawn_as_bars_beside_the_first_images_only(tmp_path, monkeypatch):
    monkeypatch.setattr(prediction, "_MOST_IMAGES", 2)
    given, two = (
        InMemoryImages([Image.new("RGB", (400, 200), "red")] * number, None, "RGB", ReadConfig()) for number in (3, 2)
    )
    outputs = prediction.ImageClassWriter(tmp_path, given, ["n02510455", "bee"])
    for index in range(3):
        assert outputs.write(index, np.array([0.25, 0.75])) == {}
    (line,) = outputs.finish([])
    assert line == f"the classes are drawn next to the first 2 images in {tmp_path / 'pictures'}"
    all_drawn = prediction.ImageClassWriter(tmp_path, two, ["n02510455", "bee"])
    assert all_drawn.finish([]) == [f"the classes are drawn next to the images in {tmp_path / 'pictures'}"]
    assert sorted(path.name for path in (tmp_path / "pictures").iterdir()) == ["image 0.jpg", "image 1.jpg"]
    drawn = np.asarray(Image.open(tmp_path / "pictures" / "image 0.jpg")).astype(int)
    is_bar = np.abs(drawn[:, 330:] - prediction._BAR).sum(axis=2) < 30  # right of the image
    rows = [is_bar[at : at + prediction.LINE_PX].any(axis=0).sum() for at in (0, prediction.LINE_PX)]
    assert rows[0] == pytest.approx(3 * rows[1], rel=0.05) and rows[1] > 40
    plain = prediction.draw_classes(Image.new("RGB", (400, 200)), ["giant panda", "bee"], [0.25, 0.75])
    named = prediction.draw_classes(Image.new("RGB", (400, 200)), ["n02510455", "bee"], [0.25, 0.75])
    assert plain.tobytes() == named.tobytes()
