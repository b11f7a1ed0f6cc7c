"""Which samples belong together: said by a file, by a column of a table, or by the names of a data set's samples."""

import json

import numpy as np
import pytest
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks.sample_groups import FOLDER, SUBJECT, SampleGroups, find_groups, read_groups
from paddlevit_dist.points.data.scenes import GROUPS_BY

NAMES = ["val/a/1.png", "val/a/2.png", "val/b/3.png", "val/c/4.png"]


def written(folder, text: str, name: str = "groups.csv") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


@pytest.mark.parametrize(
    "text, given, by",
    [
        ("sample,group\na/1.png,x\na/2.png,x\nb/3.png,y\nc/4.png,z\n", "", "groups.csv"),
        ("image,video\na/1.png,x\na/2.png,x\nb/3.png,y\nc/4.png,z\n", "", "video"),
        ("video,picture\nx,a/1.png\nx,a/2.png\ny,b/3.png\nz,c/4.png\n", "", "video"),
        ("Video , PICTURE \n x, a/1.png \nx ,a/2.png\n y , b/3.png\nz,c/4.png\n", ":Video", "Video"),
        (" group , age, Name \nx,7,1\nx,7,2\ny,7,3\nz,7,4\n", "", "groups.csv"),
        ("val/a/1.png,x\nval/a/2.png,x\nval/b/3.png,y\nval/c/4.png,z\n", "", "groups.csv"),  # no headings
        ("group;name\nx;1\nx;2\n\ny;3\nq;of_another_split\nz;4\n", "", "groups.csv"),
        ("age\tpatient\tname\n7\tx\t1\n8\tx\t2\n9\ty\t3\n9\tz\t4\n", ":patient", "patient"),
        ("name,group,age\n1,x,7\n1,x,8\n2,x,8\n3,y,9\n4,z,9\n", "", "groups.csv"),  # a row for each of its landmarks
    ],
)
def test_a_file_says_the_group_of_each_sample(tmp_path, text, given, by):
    found = read_groups(written(tmp_path, text) + given, NAMES, "data")
    assert found.names.tolist() == ["x", "x", "y", "z"] and str(found) == f"by 3 groups ({by})"


def test_a_heading_of_the_command_s_tables_is_found_in_the_first_that_has_it(tmp_path):
    truth = written(tmp_path, "name,class\n1,0\n2,0\n3,1\n4,1\n", "truth.csv")
    results = written(tmp_path, "name,class,video\n4,1,w\n3,1,v\n2,0,v\n1,0,v\n", "results.csv")
    found = read_groups("video", NAMES, "data", None, [truth, results])
    assert found.names.tolist() == ["v", "v", "v", "w"] and found.to_dict() == {
        "by": "video",
        "number": 2,
        "source": results,
    }


def test_what_coco_s_annotations_say_of_images_is_a_column(tmp_path, monkeypatch):
    images = [{"id": 9 - n, "file_name": name, "width": 5, "video_id": n // 2} for n, name in enumerate(NAMES)]
    content = json.dumps({"annotations": [{"id": 1}], "images": images})
    truth, capitals = (written(tmp_path, content, name) for name in ("val.json", "OTHER.JSON"))
    for given, tables in ((f"{truth}:video_id", []), ("video_id", [truth]), (f"{capitals}:video_id", [])):
        assert read_groups(given, NAMES, "data", FOLDER, tables).names.tolist() == ["0", "0", "1", "1"]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        UserError, match="column; val.json has file_name, id, width, video_id; data has folder; expected"
    ):
        read_groups("scene", NAMES, "data", FOLDER, ["val.json"])


@pytest.mark.parametrize(
    "offered, word, names, groups",
    [
        (FOLDER, "folder", NAMES, ["val/a", "val/a", "val/b", "val/c"]),
        (GROUPS_BY, "scene", ["scenes/scene0011_00.scene", "scene0011_01", "scene0012_00"], [11, 11, 12]),
        (GROUPS_BY, "area", ["Area_1_office_1", "Area_1_office_10", "scenes/Area_6_hall_1.scene"], [1, 1, 6]),
        (SUBJECT, "subject", ["sub-01/ses-1/sub-01_ses-1_T1w.nii.gz", "sub-01/ses-2/x.nii.gz", "sub-2/y"], [1, 1, 2]),
    ],
)
def test_names_of_samples_say_what_they_are(offered, word, names, groups):
    found = read_groups(word, names, "data", offered)
    plain = {"scene": "scene{:04d}", "area": "Area_{}", "subject": "sub-{:02d}"}
    expected = [one if word == "folder" else plain[word].format(one) for one in groups]
    assert [name.replace("sub-2", "sub-02") for name in found.names.tolist()] == expected and found.by == word


def test_a_case_is_found_by_its_name_without_the_channel(tmp_path):
    file = written(tmp_path, "case,patient\nBRATS_001,p\nBRATS_002,p\nBRATS_003,q\n")
    names = [f"imagesTr/BRATS_00{number}_0000.nii.gz" for number in (1, 2, 3)]
    assert read_groups(file, names, "data").names.tolist() == ["p", "p", "q"]
    np.testing.assert_array_equal(
        read_groups(file, [name.replace("_0000", "") for name in names], "d").names, ["p", "p", "q"], strict=True
    )


@pytest.mark.parametrize(
    "text, given, complaint",
    [
        (
            "name,group\n1,x\n2,x\n4,y\n",
            "{}",
            "1 of 4 samples have no group in {}, such as val/b/3.png; each needs one",
        ),
        ("name,group\nq,x\nr,y\n", "{}", "4 of 4 samples have no group in {}, such as val/a/1.png"),
        ("name,group\n1,x\n2,x\n3,\n4,y\n", "{}", "1 of 4 samples have no group in {}, such as val/b/3.png"),
        ("name,group\n1,x\n2,y\n3,y\n4,y\n1,y\n", "{}", "{}, line 6: 1 is in y here and in x before; keep one"),
        ("name,group\n1,x\n2,x\n3,x\n4,x\n", "{}", "all samples are in one group, x; intervals need at least two"),
        ("name,group\n1,x\n2\n", "{}", "{}, line 3: 1 columns, but 2 in the first"),
        ("name,age,video\n1,2,3\n", "{}", "{} has the columns name, age, video; expected sample,group"),
        ("name,age\n1,2\n", "{}:video", "{} has the columns name, age; expected a column video"),
        ("", "{}", "{} has the columns nothing; expected"),
        (
            "name,video\n",
            "patient",
            "-group=patient: there is no such file or column; {} has name, video; data has folder",
        ),
        ("name,video\n", "{}s", "-group={}s: there is no such file or column"),
        ("a\0b,c\n", "{}", "{} is not UTF-8 text"),
    ],
)
def test_what_says_no_groups_is_refused_in_one_line(tmp_path, text, given, complaint):
    file = written(tmp_path, text)
    assert complaint.format(file, file) in refusal_of(read_groups, given.format(file), NAMES, "data", FOLDER, [file])


@pytest.mark.parametrize(
    "names, found",
    [
        (NAMES, ("folder", ["val/a", "val/a", "val/b", "val/c"])),
        (["a/1", "a/2", "3", "4"], ("folder", ["a", "a", "3", "4"])),  # those without a group are on their own
        (["a/sub-1_x", "a/sub-1_y", "a/sub-2_x"], ("subject", ["sub-1", "sub-1", "sub-2"])),  # one folder: of no use
        (["a/1", "b/2", "3"], None),  # none share a group
        (["a/1", "a/2"], None),  # all share one
        (["1", "2"], None),
    ],
)
def test_samples_that_stay_together_are_found_by_the_first_word_of_use(names, found):
    assert find_groups({**FOLDER, "subject": r"/(sub-\d+)_"}, names) == found


def test_some_samples_keep_their_groups():
    groups = SampleGroups("video", np.array(["x", "y", "x", "z"]), "table.csv")
    assert groups.units() == (3, "group")
    for rows in ([2, 1, 0], np.array([True, True, True, False])):
        kept = groups.select(rows)
        assert kept.names.tolist() == ["x", "y", "x"] and (kept.by, kept.source, kept.number()) == groups[::2] + (2,)


def test_tables_that_do_not_exist_have_no_columns(tmp_path):
    table = written(tmp_path, "name,video\n1,v\n2,v\n3,w\n4,w\n", "truth.csv")
    assert read_groups("video", NAMES, "data", None, [str(tmp_path / "none.csv"), table]).source == table


@pytest.mark.parametrize("content", ["{", '{"images": 3}', '{"images": [1]}'])
def test_annotations_that_are_damaged_are_named(tmp_path, content):
    file = written(tmp_path, content, "instances.json")
    with pytest.raises(UserError, match=r"instances\.json cannot be read as COCO's annotations: "):
        read_groups(file, ["1", "2"], "d")
