"""Labels of ImageNet's validation images from the development kit."""

import io
import tarfile

import pytest
from PIL import Image

from paddlevit_dist import UserError
from paddlevit_dist.images.data import imagenet
from paddlevit_dist.images.data.imagenet import ImageNet2012, read_kit_labels
from paddlevit_dist.images.data.tar import TarImages
from paddlevit_dist.images.imagenet_classes import names_by_synset

# The first ten lines of the published file, and the classes of these images by sorted WordNet id, as published lists
# have them: sea snake, alp, Shetland sheepdog, ...
TRUTH = [490, 361, 171, 822, 297, 482, 13, 704, 599, 164]
LABELS = [65, 970, 230, 809, 516, 57, 334, 415, 674, 332]


@pytest.fixture
def root(tmp_path):
    """Ten validation images in one folder; image n is n gray."""
    data = tmp_path / "ILSVRC2012_devkit_t12" / "data"
    data.mkdir(parents=True)
    (data / "ILSVRC2012_validation_ground_truth.txt").write_text("".join(f"{number}\n" for number in TRUTH))
    (tmp_path / "val").mkdir()
    for number in range(1, 11):
        Image.new("L", (3, 3), number).save(tmp_path / "val" / f"ILSVRC2012_val_{number:08d}.JPEG", "PNG")
    (tmp_path / "cache").mkdir()
    return tmp_path


def test_each_number_of_the_kit_is_another_class(root):
    numbers = range(1, 1001)
    truth = root / "ILSVRC2012_devkit_t12" / "data" / "ILSVRC2012_validation_ground_truth.txt"
    truth.write_text("".join(f"{number}\n" for number in numbers))
    labels = list(read_kit_labels(str(root)).values())
    assert sorted(labels) == list(range(1000))
    wnids = list(names_by_synset())
    assert wnids == sorted(wnids)
    # The first and the last of image-net.org's list of the challenge of 2012.
    assert [wnids[labels[0]], wnids[labels[1]], wnids[labels[999]]] == ["n02119789", "n02100735", "n03255030"]


def test_images_in_one_folder_get_the_kits_labels(root, monkeypatch):
    dataset = ImageNet2012(str(root), "val", root / "cache")
    assert dataset.labels.tolist() == LABELS and dataset.class_names is None
    assert [dataset.read(index)[0].getpixel((0, 0))[0] for index in range(10)] == list(range(1, 11))
    wnids = list(names_by_synset())
    for wnid in wnids:
        (root / "train" / wnid).mkdir(parents=True)
    assert ImageNet2012(str(root), "val", root / "cache").class_names == wnids


@pytest.mark.parametrize("mode", ["w:gz", "w"])  # the second as a browser unpacks it
def test_the_validation_archive_gets_them_too_and_the_kit_may_be_packed(root, mode):
    data = root / "ILSVRC2012_devkit_t12"
    with tarfile.open(root / "ILSVRC2012_devkit_t12.tar.gz", mode) as tar:
        tar.add(data, data.name)
    data.rename(root / "elsewhere")
    with tarfile.open(root / "ILSVRC2012_img_val.tar", "w") as tar:
        for image in sorted((root / "val").iterdir()):
            tar.add(image, image.name)
    assert TarImages(str(root), "val", root / "cache").labels.tolist() == LABELS
    assert ImageNet2012(str(root), "val", root / "cache").labels.tolist() == LABELS


def test_what_does_not_fit_is_told(root):
    def refused(message):
        with pytest.raises(UserError, match=message):
            ImageNet2012(str(root), "val", root / "cache")

    data = root / "ILSVRC2012_devkit_t12"
    (root / "val" / "ILSVRC2012_val_00000003.JPEG").rename(root / "x.JPEG")
    refused(r"val/ILSVRC2012_val_00000003.JPEG is missing, but the development kit has it")
    (root / "x.JPEG").rename(root / "val" / "ILSVRC2012_val_00000003.JPEG")
    (root / "train" / "n04").mkdir(parents=True)
    refused(rf"the development kit numbers {imagenet.NUM_IMAGENET_1K_CLASSES} classes, but .*/train has 1")
    (data / "data" / "ILSVRC2012_validation_ground_truth.txt").write_text("1001\n")
    refused(r"the development kit .* cannot be read: .*download it again")
    data.rename(root / "elsewhere")
    refused(r"val has no class folders, and .* no ILSVRC2012_devkit_t12")
    (root / "ILSVRC2012_devkit_t12.tar.gz").write_bytes(b"x")
    refused(r"the development kit .* cannot be read: .*download it again")
    truth = root / "elsewhere" / "data" / "ILSVRC2012_validation_ground_truth.txt"
    truth.unlink()
    truth.mkdir()  # as a folder of its own in the archive
    with tarfile.open(root / "ILSVRC2012_devkit_t12.tar.gz", "w:gz") as tar:
        tar.add(root / "elsewhere", data.name)
    refused(r"the development kit .* cannot be read: data/ILSVRC2012_.*_truth.txt is not a file; download it again")


def test_a_list_with_two_labels_for_one_name_is_refused(root):
    with tarfile.open(root / "val.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("1.JPEG"), io.BytesIO())
    (root / "val_list.txt").write_text("a/1.JPEG 0\nb/1.JPEG 1\n")
    with pytest.raises(UserError, match=r"val_list.txt: 1.JPEG has two labels"):
        TarImages(str(root), "val", root / "cache")
