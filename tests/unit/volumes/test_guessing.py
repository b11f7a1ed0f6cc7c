"""What is said of folders of volumes as published: the description that they need, with their first volume."""

import json

import pytest
from support.files.volume_files import write_volume

from paddlevit_dist import UserError
from paddlevit_dist.volumes.guessing import guess
from paddlevit_dist.volumes.segmentation.nnunet import read_description


def refuse(root) -> str:
    with pytest.raises(UserError) as refusal:
        guess(str(root), "volume_segmentation", "the place")
    return str(refusal.value)


@pytest.mark.parametrize(
    "images, label, name, channels",
    [
        (["G-{}/G-{}-t1n.nii.gz", "G-{}/G-{}-t2w.nii.gz"], "G-{}/G-{}-seg.nii.gz", "G-7", ["t1n", "t2w"]),  # BraTS
        (["data/case_{}/imaging.nii.gz"], "data/case_{}/segmentation.nii.gz", "case_7", ["CT"]),  # KiTS
        (["train/volume-{}.nii"], "train/segmentation-{}.nii", "7", ["CT"]),
        (["img/img000{}.nii.gz"], "label/label000{}.nii.gz", "0007", ["CT"]),  # BTCV
        (["p{}/p{}_frame01.nii.gz"], "p{}/p{}_frame01_gt.nii.gz", "p7_frame01", ["CT"]),  # ACDC
        (["images/p{}_0000.nii.gz", "images/p{}_0001.nii.gz"], "labels/p{}.nii.gz", "p7", ["0000", "0001"]),
    ],
)
def test_a_folder_of_volumes_is_told_the_description_that_opens_it(tmp_path, images, label, name, channels):
    for number in (7, 8):
        for file in (*images, label):
            write_volume(tmp_path / file.replace("{}", str(number)))
    told = refuse(tmp_path)
    assert told.startswith("the place: there are 2 volumes with label maps")
    content, _ = json.JSONDecoder().raw_decode(told[told.index("{") :])
    (tmp_path / "dataset.json").write_text(json.dumps(content))
    description = read_description(str(tmp_path / "dataset.json"))  # it requires that the files exist
    (case,) = description.cases
    assert (description.channels, case[0]) == (channels, name)
    expected = [str(tmp_path / file.replace("{}", "7")) for file in (*images, label)]
    assert [*case[1], case[2]] == expected


def test_several_label_maps_of_a_volume_are_told(tmp_path):
    for file in ("s1/ct", "s1/segmentations/liver", "s1/segmentations/spleen"):
        write_volume(tmp_path / f"{file}.nii.gz")
    assert "s1 has 2 label maps" in refuse(tmp_path) and "dataset.json" in refuse(tmp_path)
