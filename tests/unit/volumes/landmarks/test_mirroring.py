"""Left and right: pairs are named, proposed, or declared absent, never guessed."""

import re
import shlex

import numpy as np
import pytest
from support.files.volume_files import write_landmarks, write_volume
from support.processes import ROOT
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.volumes.landmarks.mirroring import propose_pairs

EYES = {"eye_left": (3.0, 4.0, 5.0), "eye_right": (9.0, 4.0, 5.0), "nose": (6.0, 8.0, 4.0)}


@pytest.fixture
def data(tmp_path):
    for split in ("train", "val"):
        write_volume(tmp_path / "data" / split / "case.npz")
        write_landmarks(tmp_path / "data" / split / "case.csv", EYES)
    return tmp_path / "data"


def arguments(data, *more: str) -> list:
    recipe = [f"-cfg={ROOT}/configs/landmark_unet3d.yaml", "-dataset=landmarks", f"-data_path={data}"]
    return [*recipe, "VOLUMES.LANDMARK_UNITS", "voxel", "VOLUMES.CROP_SIZE", "[10,12,14]", *more]


def built(data, split: str, *more: str):
    values = settings.load(arguments(data, *more)).values
    task = resolve("task", values.TASK)(values)
    return task, task.build_dataset(split, data / "cache")


def test_mirroring_without_pairs_is_an_error_that_proposes_them(data):
    message = refusal_of(built, data, "train", "VOLUMES.MIRROR_PAIRS", "[]")
    assert message.startswith("VOLUMES.FLIP 0.5 exchanges left and right")
    assert "set VOLUMES.MIRROR_PAIRS [eye_left:eye_right] (proposed" in message and "MIRROR_PAIRS none" in message


@pytest.mark.parametrize("word", ["none", "None", "[none]", "[eye_left:eye_right]"])
def test_pairs_or_none_are_taken_as_said(data, word):
    task, samples = built(data, "train", "VOLUMES.MIRROR_PAIRS", word, "VOLUMES.FLIP", "1.0")
    whole = samples.dataset.read(0)[1]
    crop = samples.sample(0, np.random.default_rng(0))["points"]
    mirrored = whole.copy()
    mirrored[:, 2] = 13 - mirrored[:, 2]
    np.testing.assert_allclose(crop, mirrored[[1, 0, 2]] if "left" in word else mirrored, atol=1e-5)
    assert len([notice for notice in samples.notices if "eye_left:eye_right" in notice]) == ("left" not in word)


def test_pairs_that_others_leave_out_are_noticed(data):
    for split in ("train", "val"):
        write_landmarks(data / split / "case.csv", {**EYES, "ear_l": (1.0, 4.0, 5.0), "ear_r": (12.0, 4.0, 5.0)})
    _, samples = built(data, "train", "VOLUMES.MIRROR_PAIRS", "[eye_left:eye_right]")
    assert [n for n in samples.notices if "MIRROR" in n] == [
        "note: VOLUMES.MIRROR_PAIRS does not contain ear_l:ear_r: mirrored crops keep these names"
    ]


def test_nothing_is_asked_where_nothing_is_mirrored(data):
    for split, more in (("train", ["VOLUMES.FLIP", "0"]), ("val", [])):
        for pairs in (["VOLUMES.MIRROR_PAIRS", "[]"], []):  # the recipe's own pairs are of other landmarks
            _, samples = built(data, split, *pairs, *more)
            assert list(samples.notices) == []


def test_pairs_of_other_landmarks_are_told_with_those_of_these(data):
    message = refusal_of(built, data, "train")
    assert "'ear_left' is not a landmark (eye_left, eye_right, nose)" in message
    assert (
        "come from a recipe for other landmarks" in message
        and "set VOLUMES.MIRROR_PAIRS [eye_left:eye_right] (proposed" in message
    )
    assert "VOLUMES.MIRROR_PAIRS none if no landmark" in message and message.endswith("VOLUMES.FLIP 0")


def test_a_proposal_can_be_pasted_into_a_shell(data):
    for split in ("train", "val"):
        write_landmarks(data / split / "case.csv", {"left eye": (3.0, 4.0, 5.0), "right eye": (9.0, 4.0, 5.0)})
    for pairs in ([], ["VOLUMES.MIRROR_PAIRS", "[]"]):
        message = refusal_of(built, data, "train", *pairs)
        typed = re.search("(VOLUMES.MIRROR_PAIRS .*) [(]proposed", message.split("set ")[-1]).group(1)
        assert typed == 'VOLUMES.MIRROR_PAIRS "[left eye:right eye]"'
    built(data, "train", *shlex.split(typed))


def test_the_order_within_a_pair_does_not_matter(data):
    crops = []
    for pair in ("eye_left:eye_right", "eye_right:eye_left"):
        task, samples = built(data, "train", "VOLUMES.MIRROR_PAIRS", f"[{pair}]", "VOLUMES.FLIP", "1.0")
        assert list(samples.notices) == []
        crops.append(samples.sample(0, np.random.default_rng(0))["points"])
    assert np.array_equal(*crops)


def test_none_stands_alone(data):
    with pytest.raises(UserError, match="none means that no landmark has a counterpart; remove none or the pairs"):
        built(data, "train", "VOLUMES.MIRROR_PAIRS", "[none,eye_left:eye_right]")


@pytest.mark.parametrize(
    "left, right",
    [
        ("eye_left", "eye_right"),
        ("LeftEye", "RightEye"),
        ("LEFT EYE", "RIGHT EYE"),
        ("ear_l", "ear_r"),
        ("L_ear", "R_ear"),
        ("earL", "earR"),
        ("LPorion", "RPorion"),
        ("Or-L", "Or-R"),
        ("ORL", "ORR"),
        ("left_eye_right_corner", "right_eye_left_corner"),
        ("EYE LEFT", "EYE RIGHT"),
        ("EAR_L", "EAR_R"),
        ("eyeL", "eyeR"),
    ],
)
def test_pairs_are_proposed_by_names(left, right):
    for names in ([left, right, "nose"], ["nose", right, left]):
        assert propose_pairs(names) == [f"{left}:{right}"]


def test_names_that_only_hold_such_letters_are_no_pairs():
    assert (
        propose_pairs(["sella", "serra", "nasal", "nasar", "lip", "rip", "eye_left", "ear_right", "L", "nose_l"]) == []
    )


def test_proposed_pairs_are_sorted_by_the_left_names():
    names = [f"{part}_{side}" for part in "ebdac" for side in ("r", "l")]
    assert propose_pairs(names) == [f"{part}_l:{part}_r" for part in "abcde"]
