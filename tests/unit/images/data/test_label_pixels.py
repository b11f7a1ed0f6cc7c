"""Label maps of every mode and format: numbers, colors and palettes, and what is refused."""

import io
import sys

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist import UserError
from paddlevit_dist.images.data.label_pixels import (
    find_label_numbers,
    pack_colors,
    read_label_file,
    read_label_numbers,
    read_label_pixels,
)
from paddlevit_dist.images.data.reading import UnreadableImage

NUMBERS = np.array([[0, 1, 7], [200, 3, 1]])
PALETTE = np.random.default_rng(0).integers(0, 256, (256, 3))


def encode(image, format="PNG"):
    out = io.BytesIO()
    image.save(out, format)
    return out.getvalue()


def make(mode, alpha=255):
    """NUMBERS in a mode; two other values in one bit."""
    gray = Image.fromarray(NUMBERS.astype(np.uint8))
    if mode == "1":
        return Image.fromarray((NUMBERS % 2 == 1).astype(np.uint8) * 255).convert("1")
    if mode in ("P", "PA"):
        gray.putpalette(PALETTE.astype(np.uint8).tobytes())
    if mode in ("I", "I;16", "I;16B"):
        return Image.fromarray((NUMBERS * 300).astype({"I": "<i4", "I;16": "<u2", "I;16B": ">u2"}[mode]))
    if mode in ("LA", "PA"):
        image = Image.new(mode, gray.size)
        if mode == "PA":
            image.putpalette(PALETTE.astype(np.uint8).tobytes())
        image.putdata([(int(number), alpha if place == 5 else 255) for place, number in enumerate(NUMBERS.ravel())])
        return image
    return gray


@pytest.mark.parametrize(
    "mode, format, expected",
    [
        ("1", "PNG", NUMBERS % 2),
        ("L", "PNG", NUMBERS),
        ("P", "PNG", NUMBERS),
        ("LA", "PNG", NUMBERS),
        ("I;16", "PNG", NUMBERS * 300),
        ("I;16B", "TIFF", NUMBERS * 300),
        ("I", "TIFF", NUMBERS * 300),
    ],
)
def test_numbers_are_those_of_the_pixels(mode, format, expected, tmp_path):
    encoded = encode(make(mode), format)
    found = read_label_pixels(encoded, "a.png", 6)
    assert Image.open(io.BytesIO(encoded)).mode.startswith(mode[:4]) and not found.is_color
    assert found.values.dtype == (np.int32 if mode.startswith("I") else np.uint8)
    np.testing.assert_array_equal(found.values, expected)
    if mode == "P":
        np.testing.assert_array_equal(found.palette[:201], PALETTE[:201] @ [1, 256, 65536])
    else:
        assert found.palette is None
    with pytest.raises(UnreadableImage, match=r"a\.png .*its size 3 x 2 pixels is above the limit of 5 pixels"):
        read_label_pixels(encoded, "a.png", 5)
    (tmp_path / "a.png").write_bytes(encoded)
    np.testing.assert_array_equal(read_label_file(str(tmp_path / "a.png"), 6).values, found.values, strict=True)
    assert read_label_numbers(found, "a.png") is found.values


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_colors_are_packed_and_equal_channels_are_numbers(mode):
    colors = np.random.default_rng(1).integers(0, 256, (2, 3, 3)).astype(np.uint8)
    found = read_label_pixels(encode(Image.fromarray(colors).convert(mode)), "a.png")
    packed = colors[..., 0] + 256 * colors[..., 1].astype(int) + 65536 * colors[..., 2].astype(int)
    assert found.is_color and found.palette is None and found.values.dtype == np.int32
    np.testing.assert_array_equal(found.values, packed)
    np.testing.assert_array_equal(pack_colors(colors.reshape(-1, 3)), packed.ravel())
    with pytest.raises(UserError, match=r"^a\.png has colors, and no list defines their classes: add classes\.csv"):
        read_label_numbers(found, "a.png")
    gray = read_label_pixels(encode(make("L").convert(mode)), "a.png")
    numbers = read_label_numbers(gray, "a.png")
    assert gray.is_color and numbers.dtype == np.uint8
    np.testing.assert_array_equal(numbers, NUMBERS)


def test_numbers_of_files_are_found_once_each_in_their_order(tmp_path):
    files = [str(tmp_path / f"{name}.png") for name in "abc"]
    for file, image in zip(files, (make("L"), make("I;16"), make("L").convert("RGB"))):
        image.save(file)
    assert find_label_numbers(files) == sorted({*NUMBERS.ravel().tolist(), *(300 * NUMBERS).ravel().tolist()})
    assert find_label_numbers([]) == []


def test_a_file_of_matlab_needs_scipy(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(UserError, match=r"^a\.mat is a MATLAB file, which SciPy reads: pip install scipy$"):
        read_label_file("a.mat")


def test_a_file_of_matlab_has_the_numbers_of_its_variable(tmp_path):
    scipy_io = pytest.importorskip("scipy.io")
    scipy_io.savemat(tmp_path / "a.MAT", {"S": NUMBERS * 2.0, "other": NUMBERS}, appendmat=False)
    found = read_label_file(str(tmp_path / "a.MAT"))
    assert not found.is_color and found.palette is None and found.values.dtype == np.int32
    np.testing.assert_array_equal(found.values, NUMBERS * 2)
    (tmp_path / "b.mat").write_bytes(b"no MATLAB")
    with pytest.raises(UnreadableImage, match=r"b\.mat"):
        read_label_file(str(tmp_path / "b.mat"))


@pytest.mark.parametrize(
    "image, format, message",
    [
        (make("L"), "JPEG", "a JPEG file, which changes class numbers: save label maps as PNG"),
        (make("LA", 254), "PNG", r"transparent at row 1, column 2 \(alpha 254\), which defines no class"),
        (make("PA", 0), "TIFF", r"transparent at row 1, column 2 \(alpha 0\), which defines no class"),
        (make("PA"), "TIFF", "has a palette with transparency: save it as PNG with a palette"),
        (make("L").convert("CMYK"), "TIFF", "of Pillow's mode CMYK, expected a class number for each pixel"),
    ],
)
def test_files_that_define_no_classes_are_refused(image, format, message):
    with pytest.raises(UserError, match=rf"^a\.png (is|has).*{message.removeprefix('has ')}"):
        read_label_pixels(encode(image, format), "a.png")


@pytest.mark.parametrize(
    ("format", "options", "is_lossy"),
    [
        ("WEBP", {"lossless": True}, False),
        ("WEBP", {"lossless": True, "icc_profile": b"odd"}, False),
        ("WEBP", {"quality": 90}, True),
        ("WEBP", {"quality": 90, "icc_profile": b"odd"}, True),
        ("JPEG2000", {}, False),
        ("JPEG2000", {"irreversible": True}, True),
        ("TIFF", {"compression": "tiff_lzw"}, False),
        ("TIFF", {"compression": "jpeg"}, True),
    ],
)
def test_formats_with_and_without_loss_are_told_apart(format, options, is_lossy):
    out = io.BytesIO()
    make("L").convert("RGB").save(out, format, **options)
    if is_lossy:
        with pytest.raises(UserError, match=f"^a is a {format} file with loss, which changes class numbers"):
            read_label_pixels(out.getvalue(), "a")
    else:
        numbers = read_label_numbers(read_label_pixels(out.getvalue(), "a"), "a")
        np.testing.assert_array_equal(numbers, np.asarray(make("L")))


def test_a_damaged_file_is_unreadable():
    encoded = encode(Image.fromarray(np.random.default_rng(2).integers(0, 9, (40, 50), np.uint8)))
    with pytest.raises(UnreadableImage, match=r"a\.png"):
        read_label_pixels(encoded[: len(encoded) // 2], "a.png")


def test_a_header_that_announces_more_than_the_file_can_contain_is_refused_before_decoding():
    largest = encode(Image.new("1", (4_000, 2_000)))  # of one value: nearly as much as the format can deflate
    assert read_label_pixels(largest, "a.png").values.shape == (2_000, 4_000)
    cut = largest[: len(largest) // 2]
    with pytest.raises(UnreadableImage, match=rf"a\.png .* 4000 x 2000 pixels, more than its {len(cut)} bytes"):
        read_label_pixels(cut, "a.png")
