"""Images do not vanish: whatever Pillow opens is used, and the rest is counted by suffix and reported."""

import io
import os
import shutil
import tarfile

import pytest
from PIL import Image, ImageFile

from paddlevit_dist import UserError
from paddlevit_dist.images.data.class_folders import ClassFolders
from paddlevit_dist.images.data.formats import readable_formats, readable_suffixes
from paddlevit_dist.images.data.imagenet import ImageNet2012
from paddlevit_dist.images.data.inspection import SplitInspection
from paddlevit_dist.images.data.reading import UnreadableImage, decode_image
from paddlevit_dist.images.data.tar import TarImages

Image.init()  # for what this Pillow can write
HEIC_HEAD = b"\0\0\0\x18ftypheic\0\0\0\0" + bytes(40)
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 5 5\n%%EndComments\n5 5 moveto showpage\n%%EOF\n"


def encode(form, mode="RGB", **options):
    out = io.BytesIO()
    Image.new("RGB", (12, 9), (10, 200, 30)).convert(mode).save(out, form, **options)
    return out.getvalue()


JPEG = encode("JPEG")


def put(path, content=JPEG):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@pytest.fixture
def root(tmp_path):
    """Two classes with two images each in train and one in val."""
    for name in ("train/ant/1.jpg", "train/ant/2.jpg", "train/bee/1.jpg", "train/bee/2.jpg", "val/ant/1.jpg"):
        put(tmp_path / "data" / name)
    put(tmp_path / "data" / "val" / "bee" / "1.jpg")
    return tmp_path / "data"


PILLOWS = """.avif=AVIF .jp2=JPEG2000 .apng=PNG .tga=TGA .pnm=PPM .sgi=SGI .dib=DIB .pcx=PCX .mpo=JPEG .jpe=JPEG
    .jpg=JPEG .jpeg=JPEG .jfif=JPEG .png=PNG .bmp=BMP .webp=WEBP .gif=GIF .tif=TIFF .tiff=TIFF .ppm=PPM
    .pgm=PPM .pbm=PPM"""
MODES = {".pbm": "1", ".pgm": "L"}


def test_what_pillow_opens_is_an_image_of_the_set(root, cache):
    forms = [entry.split("=") for entry in PILLOWS.split()]
    written = [(suffix, form) for suffix, form in forms if form in Image.SAVE]
    assert len(written) >= 20  # of AVIF and JPEG 2000 not every Pillow can write all
    for suffix, form in written:
        for spelled in (suffix, suffix.upper()):
            put(root / "train" / "ant" / spelled[1:] / f"3{spelled}", encode(form, MODES.get(suffix, "RGB")))
    dataset = ClassFolders(str(root), "train", cache)
    assert len(dataset) == 4 + 2 * len(written) and dataset.skipped_files.lines() == []
    for index in range(len(dataset)):
        image, _ = dataset.read(index)
        assert image.mode == "RGB" and image.size == (12, 9)


def test_the_suffixes_are_pillows_but_for_formats_that_it_only_recognizes_or_hands_on():
    stubs = {
        name
        for name, (factory, _) in Image.OPEN.items()
        if isinstance(factory, type) and issubclass(factory, ImageFile.StubImageFile)
    }
    assert {"BUFR", "GRIB", "HDF5", "WMF"} <= stubs and not stubs & set(readable_formats())
    for suffix in (".eps", ".ps", ".pdf", ".mpg", ".h5", ".hdf", ".wmf", ".grib", ".txt"):
        assert suffix.encode() not in readable_suffixes()
    assert b".psd" in readable_suffixes()


def test_a_jpg_that_is_postscript_starts_no_other_program():
    with pytest.raises(UnreadableImage, match="not an image in a format"):
        decode_image(EPS, "x.jpg", "RGB")


def test_left_out_files_are_counted_by_suffix_images_first(root, cache):
    for number in range(3):
        put(root / "train" / "bee" / f"{number}.HEIC", HEIC_HEAD)
    for number in range(4):
        put(root / "train" / "ant" / "deeper" / f"{number}.txt", b"words")
    put(root / "train" / "ant" / "labels.csv", b"a,b")
    put(root / "train" / "ant" / "NOTES", b"words")
    put(root / "train" / "ant" / "film.mpg", bytes(30))
    skipped_files = ClassFolders(str(root), "train", cache).skipped_files
    assert skipped_files.lines() == [
        f"skipped below {root}/train: 3 .heic (pip install pillow-heif), 4 .txt, 1 without suffix, 1 .csv, 1 .mpg"
    ]
    assert (skipped_files.num_images, skipped_files.example) == (3, f"{root}/train/bee/0.HEIC")


def test_images_without_a_suffix_of_theirs_are_known_by_their_content(root, cache):
    put(root / "val" / "ant" / "8f3a77")
    put(root / "val" / "ant" / "words", b"words")
    put(root / "val" / "bee" / "large.jpg_large")
    put(root / "val" / "bee" / "2.jpg~", encode("PNG"))
    skipped_files = ClassFolders(str(root), "val", cache).skipped_files
    assert skipped_files.num_images == 3
    assert skipped_files.lines() == [
        f"skipped below {root}/val: 2 without suffix (1 of them images by their content: rename them, for example to "
        ".jpg), 1 .jpg_large (images by their content: rename them, for example to .jpg), "
        "1 .jpg~ (images by their content: rename them, for example to .jpg)"
    ]


@pytest.mark.parametrize("name", [".DS_Store", "._1.jpg", ".hidden.heic", "Thumbs.db", "desktop.ini", "@eaDir/1.jpg"])
def test_what_systems_leave_beside_images_is_neither_taken_nor_told(name, root, cache):
    put(root / "train" / "ant" / name)
    put(root / "train" / "__MACOSX" / "ant" / "1.jpg")
    dataset = ClassFolders(str(root), "train", cache)
    assert len(dataset) == 4 and dataset.num_classes == 2 and dataset.skipped_files.lines() == []


def test_images_beside_the_class_folders_are_told(root, cache):
    put(root / "train" / "b.png")
    put(root / "train" / "a.heic", HEIC_HEAD)
    put(root / "train" / "list.txt", b"words")
    assert ClassFolders(str(root), "train", cache).skipped_files.lines() == [
        f"2 images are next to the class folders of {root}/train, without a class, and not used: {root}/train/a.heic"
    ]


def test_a_class_whose_only_images_cannot_be_opened_says_why(root, cache):
    shutil.rmtree(root / "train" / "bee")
    put(root / "train" / "bee" / "1.heic", HEIC_HEAD)
    with pytest.raises(UserError, match=r"train/bee contains no images; .*: 1 \.heic \(pip install pillow-heif\)"):
        ClassFolders(str(root), "train", cache)


def test_a_tree_deeper_than_pythons_stack_is_listed(tmp_path, cache):
    folders = [str(tmp_path / "data"), f"{tmp_path}/data/train", f"{tmp_path}/data/train/ant"]
    folders += [folders[-1] + "/a" * depth for depth in range(1, 1200)]
    for folder in folders:
        os.mkdir(folder)
    image = f"{folders[-1]}/1.jpg"
    with open(image, "wb") as file:
        file.write(JPEG)
    dataset = ClassFolders(folders[0], "train", cache)
    assert len(dataset) == 1 and dataset.read(0)[0].size == (12, 9)
    os.unlink(image)
    for folder in reversed(folders):  # the standard library's own removal would need a deep stack, too
        os.rmdir(folder)


def test_heic_under_another_name_says_which_package_reads_it():
    if "HEIF" in readable_formats():
        pytest.skip("pillow-heif is installed")
    with pytest.raises(UnreadableImage, match=r"x.jpg cannot be read .* HEIC .*pip install pillow-heif"):
        decode_image(HEIC_HEAD, "x.jpg", "RGB")


def pack(path, **members):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def test_tar_files_count_what_they_hold_beside_images_now_and_from_the_index(tmp_path, cache):
    contents = {"a/1.avif": encode("AVIF")} if "AVIF" in Image.SAVE else {"a/1.tga": encode("TGA")}
    contents.update({"b/2.JPG": JPEG, "b/3.heic": HEIC_HEAD, "b/4": JPEG, "b/._2.jpg": b"junk", "b/notes.txt": b"x"})
    pack(tmp_path / "data" / "train-0.tar", **contents)
    for _ in range(2):
        dataset = TarImages(str(tmp_path / "data"), "train", cache)
        assert len(dataset) == 2 and dataset.num_classes == 2 and dataset.read(0)[0].size == (12, 9)
        (line,) = dataset.skipped_files.lines()
        assert line.startswith(f"skipped below {tmp_path}/data/train-0.tar: ")
        assert "1 .heic (pip install pillow-heif)" in line and "1 .txt" in line
        assert "1 without suffix (images by their content" in line


def test_shards_do_not_lose_a_sample_whose_name_has_dots(tmp_path, cache):
    pack(tmp_path / "data" / "train-0.tar", **{"1.jpg": JPEG, "1.seg.png": JPEG, "1.cls": b"0", "2.old.jpg": JPEG})
    with pytest.raises(UserError, match=r"2\.old\.jpg: the key of a sample ends at the first dot, and 2 has no image"):
        TarImages(str(tmp_path / "data"), "train", cache)


def test_a_compressed_archive_among_others_is_not_passed_over(tmp_path, cache):
    pack(tmp_path / "data" / "train-0.TAR", **{"a/1.jpg": JPEG})
    assert len(TarImages(str(tmp_path / "data"), "train", cache)) == 1
    put(tmp_path / "data" / "train-0.tar.gz", b"\x1f\x8b")  # what the first was unpacked from
    assert len(TarImages(str(tmp_path / "data"), "train", cache)) == 1
    put(tmp_path / "data" / "train-1.tar.gz", b"\x1f\x8b")
    with pytest.raises(UserError, match=r"train-1\.tar\.gz is compressed"):
        TarImages(str(tmp_path / "data"), "train", cache)


@pytest.mark.parametrize("dataset", ["folder", "imagenet2012"])
def test_an_evaluation_stops_over_images_but_not_over_text(dataset, root, cache):
    put(root / "val" / "ant" / "notes.txt", b"words")
    build = {"folder": ClassFolders, "imagenet2012": ImageNet2012}[dataset]
    lines = SplitInspection(is_evaluation=True, replaces_bad=False).inspect(build(str(root), "val", cache), "val", 2)
    assert lines == [f"skipped below {root}/val: 1 .txt", "opened all 2 images of val"]
    put(root / "val" / "ant" / "x.heic", HEIC_HEAD)
    for is_evaluation in (True, False):
        with pytest.raises(UserError, match=r"1 \.heic \(pip install pillow-heif\).*a different set.*move them away"):
            SplitInspection(is_evaluation, replaces_bad=False).inspect(build(str(root), "val", cache), "val", 2)
    lines = SplitInspection(True, False, allows_skipped_files=True).inspect(build(str(root), "val", cache), "val", 2)
    assert lines[0] == f"skipped below {root}/val: 1 .heic (pip install pillow-heif), 1 .txt"
    put(root / "train" / "ant" / "x.heic", HEIC_HEAD)  # which a training run does without
    lines = SplitInspection(False, False).inspect(build(str(root), "train", cache), "train", 2)
    assert lines[0] == f"skipped below {root}/train: 1 .heic (pip install pillow-heif)"
    with pytest.raises(UserError, match="a score without them is of a different set"):
        SplitInspection(True, False).inspect(build(str(root), "train", cache), "train", 2)


@pytest.mark.parametrize("given", [".", "ILSVRC"])
def test_imagenet_is_found_in_what_its_archive_unpacks(tmp_path, cache, given):
    put(tmp_path / "ILSVRC/Data/CLS-LOC/train/n01440764/1.jpg")
    put(tmp_path / "ILSVRC/Annotations/CLS-LOC/train/n01440764/1.xml", b"<annotation/>")
    for kind in (ClassFolders, ImageNet2012):
        assert len(kind(tmp_path / given, "train", cache)) == 1


def test_files_that_systems_leave_are_not_named(root, cache):
    for name in ("Thumbs.db", "desktop.ini", "readme.txt", "README.md"):
        put(root / "train" / "ant" / name, b"words")
    assert ClassFolders(str(root), "train", cache).skipped_files.lines() == []
