"""Unusual image files are converted as Pillow does; unreadable ones are named, or replaced on request."""

import io
import os
import pickle
import struct
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps

from paddlevit_dist import StorageOutage, UserError
from paddlevit_dist.core.runtime import outages
from paddlevit_dist.images.data import reading
from paddlevit_dist.images.data.class_folders import ClassFolders
from paddlevit_dist.images.data.quarantine import (
    ReplacementReader,
    UnreadableFile,
    merge_quarantine,
    read_quarantine,
    write_quarantine,
)
from paddlevit_dist.images.data.reading import ReadConfig, UnreadableImage, decode_image

# What the package silences for a run, pytest shows again.
pytestmark = pytest.mark.filterwarnings("ignore:Palette images with Transparency", "ignore:Corrupt EXIF data")

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 17, 3), dtype=np.uint8)
RGB = Image.fromarray(PIXELS)


def encode(image, form, **options):
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def palette(transparency):
    return encode(RGB.quantize(16), "PNG", transparency=transparency)


def animation():
    return encode(RGB, "GIF", save_all=True, append_images=[Image.new("RGB", (17, 12)), RGB.rotate(180)])


def wide_gray():
    return encode(Image.fromarray(PIXELS[..., 0].astype(np.uint16) * 257), "PNG")


KINDS = {
    "CMYK": encode(RGB.convert("CMYK"), "JPEG"),
    "16 bit": wide_gray(),
    "palette": encode(RGB.quantize(16), "PNG"),
    "palette with one transparent color": palette(3),
    "palette with transparency per color": palette(bytes(range(16))),
    "alpha": encode(Image.fromarray(np.dstack([PIXELS, PIXELS[..., 0]])), "PNG"),
    "gray with alpha": encode(RGB.convert("LA"), "PNG"),
    "one bit": encode(RGB.convert("1"), "PNG"),
    "gray": encode(RGB.convert("L"), "JPEG"),
    "float": encode(Image.fromarray(PIXELS[..., 0].astype(np.float32)), "TIFF"),
    "animated GIF": animation(),
    "WebP": encode(RGB, "WEBP"),
    "BMP": encode(RGB, "BMP"),
    "PPM": encode(RGB, "PPM"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_odd_kinds_are_converted_as_pillow_does_and_without_a_word(kind, mode):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = Image.open(io.BytesIO(KINDS[kind])).convert(mode)
    image = decode_image(KINDS[kind], "x", mode)
    assert image.mode == mode
    np.testing.assert_array_equal(np.asarray(image), np.asarray(expected), strict=True)


@pytest.mark.parametrize("rotates", [False, True])
@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("dtype, white", [(np.uint8, 255), (np.uint16, 65535)])
def test_a_tiff_whose_0_is_white_is_that_whose_0_is_black_with_inverted_numbers(dtype, white, mode, rotates):
    """Bytes as TIFF 6.0 defines them, as Pillow inverts some numbers when it writes."""
    pixels = (np.arange(12) * 20).astype(dtype).reshape(3, 4)  # Pillow cuts larger numbers off

    def encode(numbers, photometric):
        entries = [
            *((256, 4), (257, 3), (258, 8 * dtype().itemsize), (259, 1), (262, photometric)),
            *((273, 8 + 2 + 9 * 12 + 4), (277, 1), (278, 3), (279, numbers.nbytes)),
        ]
        tags = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in entries)
        return b"II*\0" + struct.pack("<IH", 8, 9) + tags + bytes(4) + numbers.astype(f"<u{dtype().itemsize}").tobytes()

    reading = ReadConfig(exif_rotate=rotates)
    expected, inverted = (
        decode_image(encode(*each), "x", mode, reading) for each in ((pixels, 1), (white - pixels, 0))
    )
    np.testing.assert_array_equal(np.asarray(inverted), np.asarray(expected))
    assert len(np.unique(np.asarray(expected))) > 2


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation_is_an_option(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    encoded = encode(RGB, "PNG", exif=exif)
    np.testing.assert_array_equal(decode_image(encoded, "x", "RGB"), PIXELS, strict=True)
    turned = decode_image(encoded, "x", "RGB", ReadConfig(exif_rotate=True))
    np.testing.assert_array_equal(turned, ImageOps.exif_transpose(Image.open(io.BytesIO(encoded))), strict=True)
    assert (turned.size != RGB.size) == (orientation >= 5)


@pytest.mark.parametrize(("kind", "stored", "is_transparent"), [("CMYK", "CMYK", False), ("alpha", "RGBA", True)])
def test_an_examined_image_has_its_height_before_its_width_and_its_mode_as_it_is_stored(kind, stored, is_transparent):
    found = reading.examine_image(KINDS[kind], "a", "RGB", ReadConfig())
    assert found == (1, stored, is_transparent, PIXELS.shape[:2], False) and PIXELS.shape[0] != PIXELS.shape[1]


@pytest.mark.parametrize(
    ("kind", "is_told"), [("TIFF", True), ("GIF", True), ("WEBP", True), ("PNG", True), ("MPO", False)]
)
def test_pages_after_the_first_are_told_but_no_previews_of_a_photograph(kind, is_told):
    others = [Image.fromarray(255 - PIXELS), Image.fromarray(PIXELS // 2)]
    encoded = encode(RGB, kind, save_all=True, append_images=others)
    found = reading.examine_image(encoded, "a", "RGB", ReadConfig())
    assert found.has_more_pages == is_told
    assert not reading.examine_image(encode(RGB, kind), "a", "RGB", ReadConfig()).has_more_pages
    first = Image.open(io.BytesIO(encoded)).convert("RGB")
    np.testing.assert_array_equal(decode_image(encoded, "a", "RGB"), first, strict=True)


def test_damaged_exif_data_do_not_make_an_image_unreadable():
    encoded = encode(RGB, "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff" + b"\x01" * 30)
    np.testing.assert_array_equal(
        decode_image(encoded, "x", "RGB", ReadConfig(exif_rotate=True)), decode_image(encoded, "x", "RGB"), strict=True
    )


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        (b"", "the file is empty"),
        (bytes(100), "not an image in a format that Pillow knows"),
        (b"some words", "not an image in a format that Pillow knows"),
        (encode(RGB, "JPEG")[:-200], "truncated"),
        (encode(RGB, "PNG")[:-200], "truncated|broken|incomplete"),
        (encode(RGB, "PNG")[:20], "."),
    ],
)
def test_unreadable_kinds_are_named_with_the_reason(encoded, reason):
    with pytest.raises(UnreadableImage, match=rf"^a/b.jpg cannot be read as an image: .*({reason})") as caught:
        decode_image(encoded, "a/b.jpg", "RGB")
    assert "\n" not in str(caught.value)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.path, copy.reason, str(copy)) == ("a/b.jpg", caught.value.reason, str(caught.value))


def test_a_gigantic_image_names_its_size_and_the_key_before_it_is_decoded():
    large = encode(Image.new("1", (300, 200)), "PNG")
    head = b"IHDR" + struct.pack(">II", 30_000, 20_000) + large[24:29]
    gigantic = large[:12] + head + struct.pack(">I", zlib.crc32(head)) + large[33:]
    with pytest.raises(UnreadableImage, match=r"x.png .* size 300 x 200 pixels .* 1000 pixels; raise DATA.MAX_PIXELS"):
        decode_image(large, "x.png", "RGB", ReadConfig(max_pixels=1000))
    with pytest.raises(UnreadableImage, match=r"size 600000000 pixels is above the limit of 89478485 pixels; raise"):
        decode_image(gigantic, "x.png", "RGB")


def test_the_limit_can_be_above_pillows_own_which_the_program_keeps(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    encoded = encode(RGB, "PNG")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        image = decode_image(encoded, "x", "RGB", ReadConfig(max_pixels=12 * 17))
        assert image.size == reading.crop_image(image, (0, 0, 17, 12)).size == (17, 12)
    with pytest.raises(UnreadableImage, match="DATA.MAX_PIXELS"):
        decode_image(encoded, "x", "RGB", ReadConfig(max_pixels=12 * 17 - 1))
    with pytest.raises(Image.DecompressionBombError):
        Image.open(io.BytesIO(encoded))


@pytest.fixture
def images(tmp_path):
    """Six images of two classes, of which 1, 2 and 5 cannot be read."""
    for name in ("ant", "bee"):
        folder = tmp_path / "data" / "train" / name
        folder.mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (4, 4), (number, ord(name[0]), 0)).save(folder / f"{number}.png")
    for bad in ("ant/1.png", "ant/2.png", "bee/2.png"):
        (tmp_path / "data" / "train" / bad).write_bytes(b"")
    (tmp_path / "cache").mkdir()
    return ClassFolders(str(tmp_path / "data"), "train", tmp_path / "cache")


def test_the_next_readable_image_takes_the_place_and_brings_its_label(images, tmp_path):
    replacements = ReplacementReader(tmp_path)
    for _ in range(2):
        read = [replacements.read(images.read, index, images) for index in range(6)]
        assert [image.getpixel((0, 0))[:2] for image, _ in read] == [
            (0, ord("a")), (0, ord("b")), (0, ord("b")), (0, ord("b")), (1, ord("b")), (0, ord("a"))
        ]  # fmt: skip
        assert [label for _, label in read] == [0, 1, 1, 1, 1, 0]
    other = pickle.loads(pickle.dumps(replacements))
    assert other.read(images.read, 2, images)[1] == 1  # whatever was read before


def test_images_of_a_folder_that_is_away_are_waited_for_and_read_again(images, tmp_path, simulated_time, monkeypatch):
    monkeypatch.setattr(outages, "_ends", -outages.SECONDS)
    replacements, folder, away = ReplacementReader(tmp_path), tmp_path / "data" / "train" / "ant", tmp_path / "away"
    folder.rename(away)
    simulated_time.meanwhile = lambda number: away.rename(folder) if number == 3 else None
    assert replacements.read(images.read, 0, images)[1] == 0 and replacements.collect() == []
    folder.rename(away)
    with pytest.raises(StorageOutage, match=r"ant/0.png cannot be reached"):
        replacements.read(images.read, 0, images)
    images.absent_folders = frozenset([str(folder)])  # it was not there when the data were opened
    assert replacements.read(images.read, 0, images)[1] == 1 and len(replacements.collect()) == 3


def test_a_folder_that_cannot_be_written_is_named(images, tmp_path):
    ReplacementReader(tmp_path).read(images.read, 1, images)
    (parts,) = (folder for folder in tmp_path.iterdir() if list(folder.glob("*.tsv")))
    parts.rename(tmp_path / "moved")
    parts.write_text("a file")
    with pytest.raises(UserError, match=f"^cannot write {parts}: .*; free space or choose another -output"):
        ReplacementReader(tmp_path).read(images.read, 1, images)


def test_each_unreadable_image_is_listed_once(images, tmp_path):
    replacements = ReplacementReader(tmp_path)
    assert replacements.collect() == []
    for copy in (replacements, pickle.loads(pickle.dumps(replacements))):
        for index in (5, 1, 2, 1):
            copy.read(images.read, index, images)
    root = tmp_path / "data" / "train"
    expected = [UnreadableFile(str(root / bad), "the file is empty") for bad in ("ant/1.png", "ant/2.png", "bee/2.png")]
    assert replacements.collect() == expected
    write_quarantine(tmp_path / "list.tsv", expected)
    assert (tmp_path / "list.tsv").read_text().splitlines()[:2] == [
        "path\treason",
        f"{root}/ant/1.png\tthe file is empty",
    ]
    assert read_quarantine(tmp_path / "list.tsv") == expected


def test_odd_names_do_not_break_the_list(tmp_path):
    path = os.fsdecode(b"a\tb\nc\xe9.jpg")
    write_quarantine(tmp_path / "list.tsv", [UnreadableFile.from_error(UnreadableImage(path, "two\nlines"))])
    assert read_quarantine(tmp_path / "list.tsv") == [("a\\tb\\nc\udce9.jpg", "two\\nlines")]
    (tmp_path / "list.tsv").write_bytes(b"a.jpg\tempty\nno reason\nb.jp")  # the last line is still being written
    assert read_quarantine(tmp_path / "list.tsv") == [("a.jpg", "empty")]


def test_nothing_but_unreadable_images_is_another_mistake(images, tmp_path):
    for file in (tmp_path / "data" / "train").rglob("*.png"):
        file.write_bytes(b"")
    with pytest.raises(UserError, match=r"6 images in a row from .*/bee/1.png on cannot be read.*check -data_path"):
        ReplacementReader(tmp_path).read(images.read, 4, images)
    with pytest.raises(ZeroDivisionError):  # a mistake in the program
        ReplacementReader(tmp_path).read(lambda index: 1 // 0, 0, images)


def test_the_list_of_unreadable_images_is_told_when_it_grows(tmp_path):
    def read_damaged(index):
        if index in damaged:
            raise UnreadableImage(f"{index}.jpg", "truncated")
        return index

    replacements, file = ReplacementReader(tmp_path), tmp_path / "quarantine.tsv"
    told, damaged = [], set()
    for more in ([], [2], [], [5], []):
        damaged.update(more)
        for index in range(8):
            replacements.read(read_damaged, index, range(8))
        told.append(merge_quarantine(replacements, tmp_path))
    told = [[line.removesuffix(f" so far replaced by the next readable one, listed in {file}") for line in lines]
            for lines in told]  # fmt: skip
    assert told == [[], ["1 unreadable image"], [], ["2 unreadable images"], []]
    assert read_quarantine(file) == [("2.jpg", "truncated"), ("5.jpg", "truncated")]
    damaged = set(range(1, 100))
    assert replacements.read(read_damaged, 1, range(200)) == 100  # the last that is tried
    damaged.add(100)
    with pytest.raises(UserError, match="^100 images in a row from 1 on cannot be read, too many to skip"):
        replacements.read(read_damaged, 1, NumberedImages(range(200)))


class NumberedImages(list):
    """Images whose names are their numbers."""

    def describe(self, index):
        return str(index)


@pytest.mark.parametrize("number", [50, (1 << 22) + 3])
def test_labels_are_counted_however_many_there_are(number):
    labels = np.random.default_rng(0).integers(0, 5, number).astype(np.uint8)
    parts = list(reading.label_parts(labels))
    assert max(map(len, parts)) <= 1 << 22 and np.array_equal(np.concatenate(parts), labels)
    for classes in (3, 5, 8):  # more labels than classes, as many, and fewer
        expected = [int((labels == label).sum()) for label in range(max(classes, 5))]
        assert reading.count_labels(labels, classes).tolist() == expected
