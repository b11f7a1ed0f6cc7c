"""The OpenCV path draws what the exact path draws, closely matches its pixels, and leaves it all unusual files."""

import io
import sys

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist import UserError
from paddlevit_dist.images.data.class_folders import ClassFolders
from paddlevit_dist.images.data.reading import UnreadableImage

cv2 = pytest.importorskip("cv2")

from paddlevit_dist.images.transforms.crops import TrainingTransform  # noqa: E402
from paddlevit_dist.images.transforms.decoding_opencv import FastReader, FastTransform  # noqa: E402


def photograph(width=500, height=375, mode="RGB") -> Image.Image:
    """A smooth image with edges, which JPEG keeps well."""
    y, x = np.mgrid[:height, :width]
    waves = [127 + 100 * np.sin(x / a) * np.cos(y / b) for a, b in ((31, 47), (53, 29), (19, 67))]
    pixels = np.stack(waves, axis=-1).astype(np.uint8)
    pixels[height // 3 : height // 2, width // 4 : width // 2] = (250, 20, 90)
    return Image.fromarray(pixels).convert(mode)


def folder(tmp_path, content: bytes, name="a.jpg") -> ClassFolders:
    target = tmp_path / "data" / "train" / "class"
    target.mkdir(parents=True)
    (target / name).write_bytes(content)
    cache = tmp_path / "cache"
    cache.mkdir()
    return ClassFolders(str(tmp_path / "data"), "train", cache)


def encoded(image: Image.Image, **options) -> bytes:
    stream = io.BytesIO()
    image.save(stream, **{"format": "JPEG", "quality": 95, **options})
    return stream.getvalue()


@pytest.mark.parametrize("size", [64, 224, 400], ids=["shrinking", "mostly shrinking", "growing"])
def test_pixels_are_close_to_the_exact_way_with_the_same_draws(tmp_path, size):
    dataset = folder(tmp_path, encoded(photograph()))
    exact = TrainingTransform(size)
    deviations = []
    for seed in range(20):
        ours = FastTransform(exact)(FastReader(dataset, 3)(0)[0], np.random.default_rng(seed))
        reference = exact(dataset.read(0)[0], np.random.default_rng(seed))
        assert ours.shape == reference.shape == (3, size, size) and ours.dtype == np.uint8
        assert ours.flags.c_contiguous
        deviations.append(np.abs(ours.astype(float) - reference).mean())
    assert np.mean(deviations) < 1.5  # of 255; another crop or a missing flip is off by more than 20


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_pages_are_not_decoded_and_give_what_their_pixels_give(tmp_path, mode):
    dataset = folder(tmp_path, encoded(photograph(mode=mode), format="PPM"), "a.ppm" if mode == "RGB" else "a.pgm")
    transform = FastTransform(TrainingTransform(64))
    pixels = np.asarray(photograph(mode=mode))
    for seed in range(5):
        from_page = transform(FastReader(dataset, 3)(0)[0], np.random.default_rng(seed))
        np.testing.assert_array_equal(from_page, transform(pixels, np.random.default_rng(seed)), strict=True)


@pytest.mark.parametrize("size, kind", [((24, 30), "AREA"), ((52, 70), "LINEAR"), ((104, 130), "CUBIC")])
def test_crops_are_resized_by_how_much_they_shrink(size, kind):
    """By the side that shrinks least: to half or less, to more, or not at all."""
    pixels = np.random.default_rng(0).integers(0, 256, (100, 125, 3)).astype(np.uint8)
    whole = TrainingTransform(size, (1.0, 1.0), (1.25, 1.25), 0.0)  # the crop is the image
    found = FastTransform(whole)(pixels, np.random.default_rng(0))
    expected = cv2.resize(pixels, size[::-1], interpolation=getattr(cv2, f"INTER_{kind}"))
    np.testing.assert_array_equal(found, expected.transpose(2, 0, 1), strict=True)


@pytest.mark.parametrize("shape", [(40, 50, 3), (40, 50)])
def test_an_augmentation_gets_the_crop_as_a_color_image(shape):
    pixels, seen = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8), []

    def augment(image, generator):
        seen.append(image)
        return image.rotate(180)

    for channels in (3, 1) if len(shape) == 2 else (3,):
        plain = TrainingTransform((16, 24), flip_probability=1.0, channels=channels)
        augmented = TrainingTransform((16, 24), flip_probability=1.0, channels=channels, augment=augment)
        expected = FastTransform(plain)(pixels, np.random.default_rng(3))
        found = FastTransform(augmented)(pixels, np.random.default_rng(3))
        assert seen[-1].mode == ("RGB" if channels == 3 else "L") and seen[-1].size == (24, 16)
        np.testing.assert_array_equal(found, expected[:, ::-1, ::-1], strict=True)


def test_a_pillow_image_is_resized_exactly():
    image, exact = photograph(60, 40), TrainingTransform(16)
    found = FastTransform(exact)(image, np.random.default_rng(3))
    np.testing.assert_array_equal(found, exact(image, np.random.default_rng(3)), strict=True)


def test_the_label_is_the_data_sets(tmp_path):
    assert FastReader(folder(tmp_path, encoded(photograph())), 3)(0)[1] == 0


def test_one_channel_is_gray(tmp_path):
    dataset = folder(tmp_path, encoded(photograph()))
    pixels, _ = FastReader(dataset, 1)(0)
    gray = np.asarray(dataset.read(0)[0].convert("L"), dtype=float)
    assert pixels.shape == gray.shape and np.abs(pixels - gray).mean() < 1.5


@pytest.mark.parametrize(
    "name, content",
    [
        ("png", encoded(photograph(), format="PNG")),
        ("cmyk", encoded(photograph(mode="CMYK"))),
        ("trailing bytes", encoded(photograph()) + b"more"),
    ],
)
def test_what_is_not_a_plain_jpeg_is_read_exactly(tmp_path, name, content):
    dataset = folder(tmp_path, content)
    image, _ = FastReader(dataset, 3)(0)
    assert isinstance(image, Image.Image)
    np.testing.assert_array_equal(np.asarray(image), np.asarray(dataset.read(0)[0]), strict=True)


def test_exif_orientation_is_treated_as_the_exact_way_treats_it(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    dataset = folder(tmp_path, encoded(photograph(), exif=exif))
    assert FastReader(dataset, 3)(0)[0].shape[:2] == (375, 500)
    dataset.reading = dataset.reading._replace(exif_rotate=True)
    assert FastReader(dataset, 3)(0)[0].size == dataset.read(0)[0].size == (375, 500)


@pytest.mark.parametrize("decoded", [None, np.zeros((500, 375, 3), np.uint8), cv2.error("no room")], ids=str)
def test_what_opencv_decodes_otherwise_is_read_exactly(tmp_path, monkeypatch, decoded):
    def decode(*words):
        if isinstance(decoded, Exception):
            raise decoded
        return decoded

    dataset = folder(tmp_path, encoded(photograph()))
    monkeypatch.setattr(cv2, "imdecode", decode)
    np.testing.assert_array_equal(np.asarray(FastReader(dataset, 3)(0)[0]), np.asarray(dataset.read(0)[0]), strict=True)


@pytest.mark.parametrize("content", [encoded(photograph())[:5000], b"", b"no image"])
def test_damaged_files_are_refused_as_the_exact_way_refuses_them(tmp_path, content):
    with pytest.raises(UnreadableImage, match=r"a\.jpg"):
        FastReader(folder(tmp_path, content), 3)(0)


def test_too_many_pixels_are_refused_before_decoding(tmp_path):
    dataset = folder(tmp_path, encoded(photograph()))
    dataset.reading = dataset.reading._replace(max_pixels=1000)
    with pytest.raises(UnreadableImage, match="MAX_PIXELS"):
        FastReader(dataset, 3)(0)


def test_a_data_set_without_image_files_is_refused(tmp_path):
    from paddlevit_dist.core import settings
    from paddlevit_dist.core.registry.lookup import resolve

    values = settings.load(["-image_size=16", "DATA.IMAGE_CHANNELS", "1", "DATA.DECODER", "fast"]).values
    with pytest.raises(UserError, match="fast .*not for digits"):
        resolve("task", "classification")(values).build_dataset("train", tmp_path)


def test_opencv_has_to_be_installed(tmp_path, monkeypatch):
    dataset = folder(tmp_path, encoded(photograph()))
    monkeypatch.setitem(sys.modules, "cv2", None)
    message = "^DATA.DECODER fast needs OpenCV: pip install opencv-python-headless, or use DATA.DECODER exact$"
    with pytest.raises(UserError, match=message):
        FastReader(dataset, 3)(0)


def test_opencv_uses_no_threads_of_its_own(tmp_path):
    FastReader(folder(tmp_path, encoded(photograph())), 3)(0)
    assert cv2.getNumThreads() <= 1
