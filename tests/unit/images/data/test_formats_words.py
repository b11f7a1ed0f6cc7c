"""Names, suffixes, first bytes and modes of images, each alone."""

from pathlib import Path

import pytest
from PIL import Image

from paddlevit_dist.core.tasks.sample_checks import BadSample
from paddlevit_dist.images.data.class_lists import find_class_list
from paddlevit_dist.images.data.formats import (
    HEIF_HINT,
    SkippedFiles,
    detect_image_type,
    find_hint,
    is_hidden,
    is_hidden_path,
)
from paddlevit_dist.images.data.listing import InputListing, is_video
from paddlevit_dist.images.data.map_layouts import find_layout
from paddlevit_dist.images.data.map_pairs import find_pairs
from paddlevit_dist.images.data.reading import is_transparent, require_8_bits

CAMERAS = "3fr arw cr2 cr3 dng erf iiq kdc mrw nef nrw orf pef raf raw rw2 sr2 srf srw x3f"
OTHERS = "jxl jxr wdp hdp exr hdr svg svgz eps ps wmf emf dcm xcf webp jp2 j2k jpx tif tiff"
SIGNATURES = {
    "JPEG": [b"\xff\xd8\xff\xe0", b"\xff\xd8\xff\xe1"],
    "PNG": [b"\x89PNG\r\n\x1a\n"],
    "GIF": [b"GIF87a", b"GIF89a"],
    "TIFF": [b"II*\0", b"MM\0*"],
    "JPEG 2000": [b"\0\0\0\x0cjP  \r\n\x87\n"],
    "JPEG XL": [b"\xff\x0a", b"\0\0\0\x0cJXL \r\n\x87\n"],
    "WebP": [b"RIFF1234WEBP"],
    "HEIC": [b"\0\0\0\x18ftyp" + brand for brand in b"heic heix heim heis hevc hevx heif".split()],
    "AVIF": [b"\0\0\0\x18ftyp" + brand for brand in b"avif avis".split()],
    None: [b"", b"II", b"\0\0\0\x18ftypmp42", b"RIFF1234WAVE", b"\xff\xd8", b"GIF88a", b"BM1234"],
}


def test_first_bytes_of_each_type():
    for kind, heads in SIGNATURES.items():
        for head in heads:
            assert detect_image_type(head.ljust(16, b"\1")[:16]) == kind, head


def test_suffixes_of_images_that_may_not_be_opened_have_a_remedy():
    for suffix in f"{CAMERAS} {OTHERS}".split():
        assert find_hint(f".{suffix}") == "convert to PNG or JPEG", suffix
    for suffix in ("heic", "heics", "heif", "heifs", "hif"):
        assert find_hint(f".{suffix}") == HEIF_HINT == "pip install pillow-heif"
    assert [find_hint(suffix) for suffix in (".avif", ".avifs", ".txt")] == ["pip install -U pillow"] * 2 + [None]


def test_names_that_systems_leave_are_hidden_or_harmless():
    for name in (b".DS_Store", b"Thumbs.db", b"ehthumbs.DB", b"desktop.ini", b"__MACOSX", b"@eaDir", b"$RECYCLE.BIN"):
        assert is_hidden(name) and is_hidden_path(b"a/" + name + b"/b.png") and not is_hidden(b"a" + name), name
    assert not is_hidden_path(b"../a/./b.png")
    skipped = SkippedFiles("x")
    for name in (b"Thumbs.db", b"ehthumbs.db", b"Desktop.ini", b"README", b"readme.txt", b"README.md", b"LICENSE"):
        skipped.add(name, name, lambda: b"")
        assert not skipped.counts, name
    texts = "txt json csv tsv xml yaml yml md cls html".split()
    for suffix in texts:
        skipped.add(f"a.{suffix}".encode(), b"a", lambda: pytest.fail("it is read"))
    assert dict(skipped.counts) == {f".{suffix}": 1 for suffix in texts} and not skipped.images


def test_archives_and_videos_are_told_from_other_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    packed = "tar tar.gz tgz tar.bz2 tbz tar.xz txz tar.zst TGZ".split()
    films = "mp4 m4v mov avi mkv webm mpg mpeg wmv MKV".split()
    for suffix in (*packed, *films, "mp3", "gz"):
        Path(f"a.{suffix}").write_bytes(b"no content")
        listing = InputListing()
        listing.add(f"a.{suffix}".encode())
        assert is_video(f"a.{suffix}") == (suffix in films), suffix
        reasons = [reason for _, reason in listing.unreadable]
        assert any("is not a tar file" in reason for reason in reasons) == (suffix in packed), (suffix, reasons)


LISTS = (
    "classes.txt labelmap.txt labels.txt class_names.txt label_colors.txt classes.csv _classes.csv class_dict.csv "
    "labels.csv labelmap.csv classes.json labels.json id2label.json class_dict.json meta.json"
).split()


def test_each_file_of_classes_is_found_before_those_that_follow(tmp_path):
    for name in reversed(LISTS):
        (tmp_path / name).write_text('{"0": "sky", "1": "road"}' if name.endswith("json") else "sky\nroad\n")
        found = find_class_list([str(tmp_path)])
        assert found is not None and found.file == str(tmp_path / name)


MAPS = (
    "labels label masks mask annotations annotation segmentationclass segmentations segmentationclasspng segmentation "
    "labelmaps label_maps ground_truth groundtruth gt targets Masks SegmentationClass"
).split()
IMAGES = "images image imgs img pictures photos jpegimages rgb inputs JPEGImages Images".split()
ENDS = "_mask _masks _label _labels _labelIds _gt _seg _segmentation _L -mask _m".split()


def write_pairs(root, images, labels, end=""):
    for folder, suffix in ((images, ".jpg"), (labels, f"{end}.png")):
        (root / folder).mkdir(parents=True, exist_ok=True)
        for stem in ("a", "b"):
            Image.new("L", (4, 3)).save(root / folder / f"{stem}{suffix}")


@pytest.mark.parametrize("form", ["{kind}/train", "train/{kind}", "{kind}"])
def test_folders_of_images_and_of_label_maps(tmp_path, form):
    pairs = [("images", labels) for labels in MAPS] + [(images, "masks") for images in IMAGES]
    for number, (images, labels) in enumerate(pairs):
        root = tmp_path / str(number)
        write_pairs(root, form.format(kind=images), form.format(kind=labels))
        found = find_pairs(find_layout(str(root), "label_maps"), "train")
        assert found.images == [f"{root}/{form.format(kind=images)}/{stem}.jpg" for stem in "ab"], images
        assert found.labels == [f"{root}/{form.format(kind=labels)}/{stem}.png" for stem in "ab"], labels


def test_ends_of_the_names_of_label_maps_and_of_their_folders(tmp_path):
    for end in ENDS:
        for images, labels in (("images", "masks"), ("train", "train")):
            root = tmp_path / f"{images}{end}"
            write_pairs(root, images, labels, end)
            found = find_pairs(find_layout(str(root), "label_maps"), "train")
            assert found.labels == [f"{root}/{labels}/{stem}{end}.png" for stem in "ab"], end
    for end in ("_labels", "_masks", "_mask", "_label", "_annotations", "annot", "_gt"):
        root = tmp_path / f"of folders {end}"
        write_pairs(root, "train", f"train{end}")
        found = find_pairs(find_layout(str(root), "label_maps"), "train")
        assert found.labels == [f"{root}/train{end}/{stem}.png" for stem in "ab"], end


def test_modes_of_8_bits_and_those_with_a_transparent_color():
    for mode in ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV"):
        require_8_bits(Image.new(mode, (2, 2)))
    for mode in ("I", "F", "I;16", "LAB"):
        with pytest.raises(BadSample, match=f"mode {mode}: scale its numbers to 8 bits"):
            require_8_bits(Image.new(mode, (2, 2)))
    for mode, color in (("P", 0), ("RGB", (0, 0, 0)), ("L", 0), ("1", 0)):
        image = Image.new(mode, (2, 2))
        assert not is_transparent(image)
        image.info["transparency"] = color
        assert is_transparent(image), mode
    for mode in ("RGBA", "LA", "PA"):
        assert is_transparent(Image.new(mode, (2, 2))), mode
