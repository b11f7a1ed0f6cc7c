"""Images to predict are looked at before, and what will be seen otherwise than programs show it is told."""

import os
import pickle
import tarfile

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist import UserError
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.protocols import Predictable
from paddlevit_dist.core.tasks.sample_checks import BadSample
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.images.data.inputs import AnnotatedImages, open_image_inputs
from paddlevit_dist.images.data.reading import ReadConfig, UnreadableImage

TASKS = {
    "classification": ("vit_tiny_patch16_224", "TASK", "classification"),
    "detection": ("detr_resnet50", "TASK", "detection"),
    "masks": ("mask_rcnn_resnet50_fpn", "TASK", "detection"),
    "segmentation": ("upernet_swin_tiny", "TASK", "image_segmentation"),
}


def write_images(folder):
    for number, orientation in enumerate((1, 6, 3, 0)):
        exif = Image.Exif()
        exif[0x0112] = orientation
        Image.new("RGB", (20, 10), (90, 20 * number, 0)).save(folder / f"{number}.jpg", exif=exif)


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize("turned", [None, False, True])
@pytest.mark.parametrize("name", TASKS)
def test_an_orientation_that_is_not_applied_is_one_line_with_the_key(tmp_path, name, turned, in_memory):
    (tmp_path / "photos").mkdir()
    write_images(tmp_path / "photos")
    network, *words = TASKS[name]
    words += ["MODEL.NAME", network] + ([] if turned is None else ["DATA.EXIF_ROTATE", str(turned)])
    aspect = get_aspect(make_task(load(words).values), Predictable)
    inputs = [str(tmp_path / "photos")]
    if in_memory:
        inputs = [Image.open(tmp_path / "photos" / f"{number}.jpg") for number in range(4)]
        inputs.append(np.zeros((10, 20, 3), np.uint8))
    samples = aspect.open_inputs(inputs, tmp_path)
    lines = [line for line in samples.notices if "EXIF" in line]
    if turned:
        assert not lines and samples.image(1).size == (10, 20)
    else:
        example = "image 1" if in_memory else str(tmp_path / "photos" / "1.jpg")
        amount = "2 of 5" if in_memory else "2 of 4"
        message = "images are to be turned by the EXIF orientation, but DATA.EXIF_ROTATE is false"
        assert lines == [f"{amount} {message}: {example}"] and samples.image(1).size == (20, 10)


def _pass(image, _):
    return image


def open_inputs(inputs, folder):
    return open_image_inputs(inputs, folder, _pass, "RGB", ReadConfig())


def test_names_can_be_sliced(tmp_path):
    (tmp_path / "photos").mkdir()
    write_images(tmp_path / "photos")
    names = open_inputs([str(tmp_path / "photos")], tmp_path).names
    expected = [f"{tmp_path}/photos/{number}.jpg" for number in range(4)]
    assert names[1:3] == expected[1:3] and names[::-2] == expected[::-2] and names[2] == expected[2]


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (3.5, "expected a path, a PIL image, an array or a file.s content as bytes, got float"),
        (np.zeros((4, 5, 2), np.uint8), r"expected uint8 .*, got uint8 \(4, 5, 2\)"),
        (np.zeros((4, 5), np.int32), r"expected uint8 .*, got int32 \(4, 5\)"),
        (np.zeros((0, 5), np.uint8), r"expected uint8 .*, got uint8 \(0, 5\)"),
        (np.zeros(5, np.uint8), r"expected uint8 .*, got uint8 \(5,\)"),
    ],
)
def test_what_is_not_an_image_in_memory_is_refused(tmp_path, image, message):
    shapes = [(4, 5), (4, 5, 1), (4, 5, 3), (4, 5, 4)]
    samples = open_inputs([*(np.full(shape, 9, np.uint8) for shape in shapes), image], tmp_path)
    for index in range(4):
        assert (samples.image(index).size, samples.image(index).getpixel((4, 3))) == ((5, 4), (9, 9, 9))
    with pytest.raises(BadSample, match=message):
        samples.image(4)


def test_annotated_copies_are_named_after_their_inputs_and_keep_colors_of_single_pixels(tmp_path):
    pixels = np.zeros((16, 24, 3), np.uint8)
    pixels[:, ::2] = 255, 0, 0  # red next to black, which shared color samples would mix
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        Image.fromarray(pixels).save(tmp_path / folder / "a.v1.png")
    images = AnnotatedImages(tmp_path, open_inputs([str(tmp_path / "x"), str(tmp_path / "y")], tmp_path))
    names = [images.write(index, lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)) for index in (1, 0)]
    assert names == ["pictures/a.v1_2.jpg", "pictures/a.v1.jpg"]
    with Image.open(tmp_path / names[0]) as saved:
        assert abs(np.asarray(saved).astype(int) - pixels[:, ::-1]).max() < 40
    in_memory = AnnotatedImages(tmp_path, open_inputs([pixels], tmp_path))
    assert in_memory.write(0, lambda image: image) == "pictures/image 0.jpg"


def test_paths_and_images_are_not_mixed(tmp_path):
    with pytest.raises(UserError, match="paths and images in memory are mixed"):
        open_inputs([str(tmp_path), np.zeros((4, 5), np.uint8)], tmp_path)


@pytest.mark.parametrize(("kept", "message"), [(600, "has become shorter since it was listed"), (None, "No such file")])
def test_an_archive_that_changed_after_it_was_listed_is_named(tmp_path, kept, message):
    write_images(tmp_path)
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        tar.add(tmp_path / "1.jpg", "1.jpg")
    samples = open_inputs([str(tmp_path / "x.tar")], tmp_path)
    assert samples.image(0).size == (20, 10)
    if kept:
        os.truncate(tmp_path / "x.tar", kept)
    else:
        samples = pickle.loads(pickle.dumps(samples))  # without open files
        os.unlink(tmp_path / "x.tar")
    with pytest.raises(UnreadableImage, match=rf"x\.tar/1\.jpg.*{message}"):
        samples.image(0)
