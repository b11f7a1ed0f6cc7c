"""Parts of images: the pixels of the whole, whatever the file's form."""

import io

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist.images.data.class_folders import ClassFolders
from paddlevit_dist.images.data.image_dataset import ImageDataset
from paddlevit_dist.images.data.parts import ImagePage, PartReader, UndecodedImage, crop_jpeg_rows, read_layout
from paddlevit_dist.images.data.reading import ReadConfig, UnreadableImage
from paddlevit_dist.images.transforms.crops import TrainingTransform

SIZE = (150, 110)


def noise(size=SIZE, mode="RGB", seed=0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1] // 4 + 1, size[0] // 4 + 1, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC).convert(mode)


def jpeg(mode="RGB", size=SIZE, **options) -> bytes:
    out = io.BytesIO()
    noise(size, mode).save(out, "JPEG", quality=90, **options)
    return out.getvalue()


def make_folder(path, files) -> ClassFolders:
    """A data set of these files, ``name: content``, all of one class."""
    for split in ("train", "val"):
        (path / split / "a").mkdir(parents=True)
        for name, content in files.items():
            (path / split / "a" / name).write_bytes(content)
    (path / "cache").mkdir()
    return ClassFolders(str(path), "train", path / "cache")


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("restarts", [{}, {"rows": 2}, {"blocks": 7}])  # markers that other programs write
def test_parts_of_jpegs_have_the_pixels_of_the_whole(mode, subsampling, restarts):
    options = {f"restart_marker_{name}": value for name, value in restarts.items()}
    encoded = jpeg(mode, subsampling=subsampling, **options)
    whole = np.asarray(Image.open(io.BytesIO(encoded)))
    draw = np.random.default_rng(3)
    boxes = [(0, 0, 1, 1), (149, 109, 150, 110), (0, 0, 150, 110), (16, 16, 32, 32), (15, 17, 33, 31)]
    corners = (np.sort(draw.integers(0, side + 1, (30, 2)), axis=1).tolist() for side in SIZE)
    boxes += [
        (left, top, right, bottom) for (left, right), (top, bottom) in zip(*corners) if left < right and top < bottom
    ]
    for box in boxes:
        left, top, right, bottom = box
        pixels = np.asarray(Image.open(io.BytesIO(crop_jpeg_rows(encoded, read_layout(encoded), box))))
        assert len(pixels) <= bottom + 17  # two rows more, and the rest of their blocks
        np.testing.assert_array_equal(
            pixels[top:bottom, left:right], whole[top:bottom, left:right], str(box), strict=True
        )


@pytest.mark.parametrize(
    "encoded",
    [
        *(
            jpeg(progressive=True),
            jpeg()[:-2],
            jpeg()[:-900],
            b"",
            b"\xff\xd8\xff\xd9",
            noise().tobytes(),
            jpeg("CMYK"),
        ),
        jpeg().replace(b"\xff\xc0\x00\x11\x08", b"\xff\xc1\x00\x11\x0c"),  # 12 bits
        jpeg().replace(b"\xff\xda\x00\x0c\x03", b"\xff\xda\x00\x08\x01"),  # a scan of one component
    ],
    ids=[
        *("progressive", "no end", "cut off", "empty", "only ends", "not a JPEG", "four components", "more bits"),
        "several scans",
    ],
)
def test_other_files_are_decoded_whole(encoded):
    assert read_layout(encoded) is None


def test_of_several_images_in_a_file_none_is_read_in_parts_but_one_with_a_color_profile_is():
    first, encoded = len(b"\xff\xd8"), jpeg()
    for content, has_layout in ((b"ICC_PROFILE\0\1\1", True), (b"MPF\0II*\0", False)):
        segment = b"\xff\xe2" + (2 + len(content)).to_bytes(2, "big") + content
        assert (read_layout(encoded[:first] + segment + encoded[first:]) is not None) == has_layout
    comment = b"\xff\xfe\0\6MPF\0"
    assert read_layout(encoded[:first] + comment + encoded[first:]) is not None


@pytest.mark.parametrize(("subsampling", "rows"), [(0, 8), (1, 8), (2, 16)])
def test_rows_are_decoded_in_blocks_of_the_color_sampling(subsampling, rows):
    encoded = jpeg(subsampling=subsampling)
    part = crop_jpeg_rows(encoded, read_layout(encoded), (0, 0, 9, 30))
    assert Image.open(io.BytesIO(part)).size == (150, 32)
    part = crop_jpeg_rows(encoded, read_layout(encoded), (0, 0, 9, 31))
    assert Image.open(io.BytesIO(part)).size == (150, 32 + rows)


def test_blocks_of_one_component_may_be_announced_as_larger():
    encoded = jpeg("L").replace(b"\x01\x11\x00\xff", b"\x01\x22\x00\xff")
    whole = np.asarray(Image.open(io.BytesIO(encoded)))
    part = np.asarray(Image.open(io.BytesIO(crop_jpeg_rows(encoded, read_layout(encoded), (0, 0, 9, 31)))))
    assert encoded != jpeg("L") and whole.shape == (110, 150)
    np.testing.assert_array_equal(part[:31], whole[:31])


def test_the_end_of_a_file_is_behind_its_header():
    encoded = jpeg()
    scan = encoded.index(b"\xff\xda")
    header = encoded[: scan + 2 + int.from_bytes(encoded[scan + 2 : scan + 4], "big")]
    assert read_layout(header[:-1] + b"\xff\xd9") is None and read_layout(header + b"\xff\xd9") is not None


def test_a_header_without_rows_is_no_layout():
    encoded, layout = jpeg(), read_layout(jpeg())
    for at in (layout.size_at, layout.size_at + 2):
        assert read_layout(encoded[:at] + b"\0\0" + encoded[at + 2 :]) is None


def test_cut_and_changed_headers_are_not_believed():
    """Whatever is in a damaged header, the answer is a layout or none, and the part a file or the same one."""
    encoded = jpeg(restart_marker_blocks=5)
    draw = np.random.default_rng(0)
    for _ in range(500):
        changed = bytearray(encoded)
        for place in draw.integers(2, 700, size=3):
            changed[place] = draw.integers(0, 256)
        layout = read_layout(bytes(changed))
        if layout is not None:
            right, bottom = min(20, layout.width), min(20, layout.height)
            assert crop_jpeg_rows(bytes(changed), layout, (0, 0, right, bottom))[:2] == b"\xff\xd8"


def test_a_training_sample_is_the_same_from_parts_and_from_the_whole(tmp_path):
    page = io.BytesIO()
    noise(seed=4).save(page, "PPM")
    gray = io.BytesIO()
    noise(mode="L", seed=5).save(gray, "PPM")
    progressive, turned = jpeg(progressive=True), Image.Exif()
    turned[0x0112] = 6
    files = {
        "a.jpg": jpeg(), "b.jpg": jpeg("L"), "c.jpg": jpeg(restart_marker_blocks=5), "d.ppm": page.getvalue(),
        "e.pgm": gray.getvalue(), "f.jpg": progressive, "g.jpg": jpeg(exif=turned), "h.png": page.getvalue(),
    }  # fmt: skip
    dataset = make_folder(tmp_path, files)
    for reading in (ReadConfig(), ReadConfig(exif_rotate=True)):
        dataset.read_with(reading)
        for channels in (3, 1):
            transform = TrainingTransform(32, channels=channels)
            for index in range(len(dataset)):
                from_parts, _ = PartReader(dataset)(index)
                whole, label = dataset.read(index)
                assert label == 0
                for seed in range(4):
                    expected = transform(whole, np.random.default_rng(seed))
                    np.testing.assert_array_equal(
                        transform(from_parts, np.random.default_rng(seed)), expected, strict=True
                    )


def test_what_is_left_undecoded(tmp_path):
    page = io.BytesIO()
    noise().save(page, "PPM")
    dataset = make_folder(tmp_path, {"a.jpg": jpeg(), "b.jpg": jpeg(progressive=True), "c.ppm": page.getvalue()})
    found = [PartReader(dataset)(index)[0] for index in range(3)]
    assert [isinstance(image, UndecodedImage) for image in found] == [True, False, True]
    assert isinstance(found[2], ImagePage) and found[2].around((3, 10, 7, 15))[0].shape == (5, 150, 3)
    assert [image.size for image in found] == [SIZE] * 3


def test_images_of_more_pixels_than_allowed_are_refused_as_a_whole(tmp_path):
    page = io.BytesIO()
    noise().save(page, "PPM")
    dataset = make_folder(tmp_path, {"a.jpg": jpeg(), "b.ppm": page.getvalue()})
    dataset.read_with(ReadConfig(max_pixels=150 * 110))
    assert all(isinstance(PartReader(dataset)(index)[0], UndecodedImage) for index in (0, 1))
    dataset.read_with(ReadConfig(max_pixels=150 * 110 - 1))
    for index in (0, 1):
        with pytest.raises(UnreadableImage, match="150 x 110"):
            PartReader(dataset)(index)


def test_bytes_of_a_file_are_read_from_any_place_and_a_missing_file_has_no_size(tmp_path):
    dataset = make_folder(
        tmp_path, {"a.jpg": jpeg(), "b.ppm": b"P6\n5 4 255\n" + bytes(60), "c.ppm": b"P3\n1 1\n9\n1 2 3"}
    )
    encoded = (tmp_path / "train/a/a.jpg").read_bytes()
    found = ImageDataset.part(dataset, 0, 7, 20)
    assert found.tobytes() == encoded[7:27] and found.dtype == np.uint8 and found.flags.writeable
    with pytest.raises(UnreadableImage, match="has become shorter"):
        ImageDataset.part(dataset, 0, len(encoded) - 5, 6)
    assert PartReader(dataset)(1)[0].size == (5, 4) and PartReader(dataset)(2)[0].size == (1, 1)
    assert dataset.num_bytes(0) == len(encoded)
    (tmp_path / "train/a/a.jpg").unlink()
    assert dataset.num_bytes(0) == -1


def test_damaged_images_are_reported(tmp_path):
    page = io.BytesIO()
    noise().save(page, "PPM")
    large = b"P6\n99999 99999\n255\n" + bytes(100)
    files = {"a.jpg": jpeg()[:-900], "b.ppm": page.getvalue()[:-1], "c.ppm": large}
    for index, file in enumerate(files):
        with pytest.raises(UnreadableImage, match=file):
            PartReader(make_folder(tmp_path / file, files))(index)


def test_damage_that_the_header_does_not_show_is_told_with_the_file_where_a_part_needs_it(tmp_path):
    encoded = bytearray(jpeg())
    tables = encoded.index(b"\xff\xc4") + 5  # numbers of Huffman codes of each length
    encoded[tables : tables + 16] = b"\xff" * 16
    dataset = make_folder(tmp_path, {"a.jpg": bytes(encoded)})
    image, _ = PartReader(dataset)(0)
    assert isinstance(image, UndecodedImage)
    with pytest.raises(UnreadableImage, match=r"train/a/a\.jpg cannot be read"):
        image.around((0, 0, 150, 110))
