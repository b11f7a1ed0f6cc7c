"""Which images a teacher was trained on, by the description beside its export, and what a run says of them."""

import pytest
import yaml

from paddlevit_dist import UserError
from paddlevit_dist.core import settings as config
from paddlevit_dist.images.classification.teacher_input import TeacherInput, find_exported_input, find_weights_input

WHOLE = {
    **{"mean": [0.25, 0.5, 1], "standard_deviation": [0.125, 0.5, 0.75], "input_shape": ["batch", 3, 48, 32]},
    "preprocessing": {"interpolation": "lanczos, as PIL's LANCZOS"},
}
FOUND = ((0.25, 0.5, 1.0), (0.125, 0.5, 0.75), [48, 32], "lanczos")


@pytest.mark.parametrize(
    "change, expected",
    [
        ({}, FOUND),
        ({"mean": None}, ((), *FOUND[1:])),
        ({"standard_deviation": "none"}, (FOUND[0], (), *FOUND[2:])),
        ({"input_shape": ["batch", 3, 48, 48]}, (*FOUND[:2], 48, "lanczos")),
        ({"input_shape": ["batch", 3, None, 48]}, (*FOUND[:2], None, "lanczos")),
        ({"input_shape": None}, (*FOUND[:2], None, "lanczos")),
        ({"preprocessing": None}, (*FOUND[:3], None)),
        ({"preprocessing": {}}, (*FOUND[:3], None)),
    ],
)
def test_the_input_of_an_exported_teacher_is_that_of_its_description(change, expected, tmp_path):
    file = tmp_path / "net.about.yaml"
    file.write_text(yaml.safe_dump({**WHOLE, **change}))
    found, about = find_exported_input(str(tmp_path / "net"))
    assert found == TeacherInput(str(file), *expected) and about == {**WHOLE, **change}


def test_a_teacher_without_a_description_has_no_known_input_and_others_are_refused(tmp_path):
    found, about = find_exported_input(str(tmp_path / "net"))
    assert (found.mean, found.deviation, found.image_size, found.interpolation, about) == ((), (), None, None, {})
    for change, message in (
        ({"input_type": "uint8"}, r"takes pixels \(.*net.about.yaml\), .* export it without -input=uint8"),
        ({"mean": [0.5, "x", 1]}, "mean and deviation of images are not lists of numbers"),
        ({"mean": [0.5, float("nan"), 1]}, "mean and deviation of images are not lists of numbers"),
    ):
        (tmp_path / "net.about.yaml").write_text(yaml.safe_dump({**WHOLE, **change}))
        with pytest.raises(UserError, match=message):
            find_exported_input(str(tmp_path / "net"))


@pytest.mark.parametrize(
    "teacher, told",
    [
        (
            TeacherInput(),
            "its normalization is not known: it gets images with mean 0.5 and deviation 0.25, the student's",
        ),
        (
            TeacherInput("run", (0.5,), (0.25,), 16, "bilinear"),
            "it gets images with mean 0.5 and deviation 0.25 (run), as the student",
        ),
        (
            TeacherInput("run", (0.25,), (0.5,), [16, 24], "lanczos"),
            "it gets images with mean 0.25 and deviation 0.5 (run), unlike the student; it expects 16 x 24 pixels, "
            "lanczos, and gets the student's 16 pixels, bilinear",
        ),
    ],
)
def test_a_run_says_what_its_teacher_gets_and_expects(teacher, told):
    words = "-cfg=vit_digits DATA.IMAGENET_MEAN 0.5 DATA.IMAGENET_STD 0.25 DATA.INTERPOLATION bilinear"
    assert teacher.format_for(config.load(words.split()).values.DATA) == told


def test_weights_have_the_input_of_their_run_or_else_of_published_ones(tmp_path):
    (tmp_path / "net.pdparams").touch()
    weights = str(tmp_path / "net")
    published = TeacherInput("resnet18", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), 224, "bicubic")
    assert find_weights_input("resnet18", weights) == published
    assert find_weights_input("of_a_user", weights) == TeacherInput()
    data = {"IMAGENET_MEAN": [0.5], "IMAGENET_STD": [0.25], "IMAGE_SIZE": [32, 16], "INTERPOLATION": "lanczos"}
    (tmp_path / "net.about.yaml").write_text(yaml.safe_dump({"settings": {"DATA": data}}))
    found = find_weights_input("resnet18", weights)
    assert found == TeacherInput(f"{weights}.pdparams", (0.5,), (0.25,), [32, 16], "lanczos")
    data.pop("IMAGENET_MEAN")
    (tmp_path / "net.about.yaml").write_text(yaml.safe_dump({"settings": {"DATA": data}}))
    assert find_weights_input("resnet18", weights) == published
