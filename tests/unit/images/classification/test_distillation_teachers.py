"""Teachers of all kinds: which images they get, whose classes they teach, and which are refused."""

import numpy as np
import paddle
import pytest
import yaml
from support.registrations import forgotten
from support.trainings.small_runs import DIGITS
from support.trainings.trained import network, write_weights

from paddlevit_dist import UserError, create_model
from paddlevit_dist.core import settings
from paddlevit_dist.core.registry.register import register_model
from paddlevit_dist.images.classification.distillation import TeacherModel
from paddlevit_dist.images.classification.task import Classification
from paddlevit_dist.images.models.classifier import Classifier
from paddlevit_dist.images.multi_label.task import MultiLabel
from paddlevit_dist.images.transforms.on_device import PixelNormalizer

SMALL = "MODEL.NAME vit MODEL.EMBED_DIM 16 MODEL.DEPTH 1 MODEL.NUM_HEADS 2 MODEL.PATCH_SIZE 8".split()
MEANS, DEVIATIONS = [0.1, 0.9, 0.5], [0.1, 0.2, 0.3]  # the teacher's
RUN = {"IMAGENET_MEAN": MEANS, "IMAGENET_STD": DEVIATIONS, "IMAGE_SIZE": 32, "INTERPOLATION": "bilinear"}


class SmallTeacher(Classifier):
    """The means of colored edges."""

    def __init__(self, num_classes: int = 1000, in_channels: int = 3):
        super().__init__()
        self.in_channels, self.embed_dim = in_channels, 8
        self.stem = paddle.nn.Conv2D(in_channels, 8, 3, 2)
        self.reset_classifier(num_classes)

    def forward_features(self, images):
        features = paddle.nn.functional.relu(self.stem(images)).mean(axis=[2, 3])
        return paddle.nn.functional.dropout(features, 0.5, training=self.training)


STUDENT = SmallTeacher(2)


@pytest.fixture(autouse=True)
def registered():
    with forgotten():
        register_model("small_teacher", SmallTeacher)
        yield


def make_task(teacher, *arguments):
    """Build a student of 16 x 16 color images, whose mean is 0.4 and deviation 0.25 unless given otherwise."""
    words = [*DIGITS, *SMALL, "DATA.IMAGE_CHANNELS", "3", "DATA.IMAGENET_MEAN", "[0.4,0.4,0.4]"]
    words += ["DATA.IMAGENET_STD", "[0.25,0.25,0.25]", "DATA.INTERPOLATION", "bicubic", "-num_classes=5"]
    words += ["TRAIN.DISTILLATION_TYPE", "soft", "TRAIN.TEACHER_MODEL", *teacher]
    task = Classification(settings.load([*words, *arguments]).values)
    task.build_model()
    return task


def pixels(channels=3, size=16):
    return np.random.default_rng(0).integers(0, 256, (4, channels, size, size), dtype=np.uint8)


def normalize(images, mean, deviation):
    mean, deviation = (np.reshape(row, (1, -1, 1, 1)) for row in (mean, deviation))
    return paddle.to_tensor(((images / 255.0 - mean) / deviation).astype("float32"))


@pytest.fixture
def of_a_run(tmp_path):
    """Weights of a classifier with the settings of the run that trained them; the words that make it the teacher."""
    paddle.seed(1)
    paddle.save(create_model("small_teacher", num_classes=5).state_dict(), str(tmp_path / "teacher.pdparams"))
    (tmp_path / "teacher.about.yaml").write_text(yaml.safe_dump({"settings": {"DATA": RUN}}))
    return ["small_teacher", "TRAIN.TEACHER_WEIGHTS", str(tmp_path / "teacher")]


def test_two_normalizers_in_turn_do_what_the_last_one_does():
    ours, theirs = PixelNormalizer([0.4] * 3, [0.25] * 3), PixelNormalizer(MEANS, DEVIATIONS)
    images = paddle.to_tensor(pixels())
    expected = normalize(pixels(), MEANS, DEVIATIONS).numpy()
    np.testing.assert_allclose(theirs.after(ours)(ours(images)).numpy(), expected, atol=1e-4)


def test_a_teacher_of_a_run_gets_that_runs_normalization(of_a_run):
    task = make_task(of_a_run)
    expected = task.teacher.model(normalize(pixels(), MEANS, DEVIATIONS)).numpy()
    found = task.teacher(task.normalize(paddle.to_tensor(pixels()))).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    (line,) = (line for line in task.notices if line.startswith("teacher small_teacher: "))
    assert "mean 0.1, 0.9, 0.5 and deviation 0.1, 0.2, 0.3" in line and "unlike the student" in line
    assert line.endswith("it expects 32 pixels, bilinear, and gets the student's 16 pixels, bicubic")


def test_equal_images_are_passed_on_unchanged(of_a_run):
    arguments = ["DATA.IMAGENET_MEAN", str(MEANS), "DATA.IMAGENET_STD", str(DEVIATIONS)]
    task = make_task(of_a_run, *arguments)
    images = task.normalize(paddle.to_tensor(pixels()))
    np.testing.assert_array_equal(task.teacher(images).numpy(), task.teacher.model(images).numpy())


def test_a_teacher_of_colors_sees_gray_images_in_three_channels(of_a_run):
    gray = ["DATA.IMAGE_CHANNELS", "1", "DATA.IMAGENET_MEAN", "[0.4]", "DATA.IMAGENET_STD", "[0.25]"]
    task = make_task(of_a_run, *gray)
    expected = task.teacher.model(normalize(pixels(1).repeat(3, axis=1), MEANS, DEVIATIONS)).numpy()
    found = task.teacher(task.normalize(paddle.to_tensor(pixels(1)))).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_a_normalization_of_other_channels_is_not_the_teachers(of_a_run, exported, tmp_path):
    gray = ["DATA.IMAGE_CHANNELS", "1", "DATA.IMAGENET_MEAN", "[0.4]", "DATA.IMAGENET_STD", "[0.25]"]
    paddle.save(SmallTeacher(5, 1).state_dict(), str(tmp_path / "teacher.pdparams"))
    for teacher in (of_a_run, [describe(exported, {**ABOUT, "standard_deviation": [0.5]})]):
        task = make_task(teacher, *(gray if teacher is of_a_run else []))
        images = task.normalize(paddle.to_tensor(pixels(len(task.config.DATA.IMAGENET_MEAN))))
        found, expected = task.teacher(images), task.teacher.model(images)
        np.testing.assert_array_equal(found.numpy(), (expected if teacher is of_a_run else expected.log()).numpy())
        assert any("its normalization is not known: it gets images with mean 0.4" in line for line in task.notices)


@pytest.mark.parametrize("named", ["", "weights", "weights.pdparams"])
def test_a_run_or_its_weights_teach_with_their_own_network_and_classes(tmp_path, named):
    names = ["e", "d", "c", "b", "a"]
    means = [f"DATA.IMAGENET_MEAN={MEANS}", f"DATA.IMAGENET_STD={DEVIATIONS}"]
    write_weights(tmp_path / "run", names, *means, image_size=16)
    task = make_task([str(tmp_path / "run" / named)])
    expected = network(5, image_size=16)(normalize(pixels(), MEANS, DEVIATIONS)).numpy()
    found = task.teacher(task.normalize(paddle.to_tensor(pixels()))).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    task.teacher.match_classes(STUDENT, ["a", "b"], 2)
    np.testing.assert_allclose(task.teacher(normalize(pixels(), [0.4], [0.25])).numpy(), expected[:, [4, 3]], atol=1e-3)


def test_what_is_no_run_of_a_classifier_does_not_teach(tmp_path, monkeypatch):
    (tmp_path / "net.onnx").touch()
    weights = write_weights(tmp_path / "run", list("abcde"))
    about = tmp_path / "run" / "about.yaml"
    named = [str(weights), "TRAIN.TEACHER_WEIGHTS", "other"]
    for words, message in (
        ([f"{tmp_path}/net.onnx"], r"net.onnx cannot teach: name its run, or export it with -format=paddle$"),
        ([f"{tmp_path}/net"], r"net.onnx cannot teach: name its run, or export it with -format=paddle$"),
        (named, r"has its weights: remove TRAIN.TEACHER_WEIGHTS other$"),
    ):
        with pytest.raises(UserError, match=f"^TRAIN.TEACHER_MODEL .*{message}"):
            make_task(words)
    for name in ("detection", "image_segmentation", "masked_autoencoder", "volume_segmentation"):
        about.write_text(yaml.safe_dump({"task": name}))
        with pytest.raises(UserError, match=f"for TASK {name}, which does not classify images: name a classifier"):
            make_task([str(weights)])


def test_averaged_weights_of_a_run_teach(tmp_path):
    checkpoint = tmp_path / "run/checkpoints/epoch_0001"
    checkpoint.mkdir(parents=True)
    for name, value in (("model", 0.25), ("model_ema", 0.75)):
        state = {
            key: paddle.full_like(one, value) for key, one in create_model("small_teacher", 5).state_dict().items()
        }
        paddle.save(state, str(checkpoint / f"{name}.pdparams"))
    teacher = TeacherModel("small_teacher", str(checkpoint), 5, 16, 3)
    assert (teacher.model.head.weight.numpy() == 0.75).all()


class Exported(paddle.nn.Layer):
    """A teacher that ends with probabilities, which are 0 where it is certain."""

    def __init__(self):
        super().__init__()
        self.linear = paddle.nn.Linear(3 * 16 * 16, 5)

    def forward(self, images):
        shares = paddle.nn.functional.softmax(self.linear(images.flatten(1)), axis=-1)
        return shares * (shares > 1e-20).astype("float32")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """An exported model with its description, and the model."""
    paddle.seed(2)
    folder, model = tmp_path_factory.mktemp("exported"), Exported()
    paddle.jit.save(model, str(folder / "m"), [paddle.static.InputSpec([None, 3, 16, 16], "float32", "images")])
    return folder / "m", model


ABOUT = {
    "mean": MEANS,
    "standard_deviation": DEVIATIONS,
    "input_shape": [None, 3, 16, 16],
    "output": "probabilities of the classes",
    "preprocessing": {"interpolation": "bicubic, as PIL's BICUBIC"},
}


def describe(exported, about):
    exported[0].with_name("m.about.yaml").write_text(yaml.safe_dump(about))
    return str(exported[0])


def test_an_exported_teacher_gets_its_own_normalization_and_gives_logits(exported):
    task = make_task([describe(exported, ABOUT)])
    shares = exported[1](normalize(pixels(), MEANS, DEVIATIONS)).numpy()
    found = task.teacher(task.normalize(paddle.to_tensor(pixels()))).numpy()
    np.testing.assert_allclose(found, np.log(shares), atol=2e-3)
    gray = TeacherModel(describe(exported, ABOUT), None, 9, 16, 1)
    one = paddle.to_tensor(pixels(1) / np.float32(255))
    np.testing.assert_allclose(gray(one).numpy(), np.log(exported[1](one.tile([1, 3, 1, 1])).numpy()), atol=2e-3)
    certain = task.teacher(normalize(pixels(), [0.0], [1e-4])).numpy()
    assert np.isfinite(certain).all() and certain.min() == pytest.approx(np.log(1e-38))
    (line,) = (line for line in task.notices if line.startswith("teacher "))
    assert line.endswith("m.about.yaml), unlike the student")


def test_a_teacher_of_one_class_does_not_teach_several_labels(exported):
    words = ["-cfg=multi_digits", *SMALL, "-num_classes=5", "-image_size=16", "DATA.IMAGE_CHANNELS", "3"]
    words += ["MODEL.DEPTHS", "None", "MODEL.DIMS", "None", "TRAIN.DISTILLATION_TYPE", "soft"]
    teacher = describe(exported, ABOUT)
    task = MultiLabel(settings.load([*words, "TRAIN.TEACHER_MODEL", teacher]).values)
    message = rf"^TRAIN.TEACHER_MODEL {teacher} gives probabilities of one class: export it without -outputs=probabil"
    with pytest.raises(UserError, match=message):
        task.build_model()


def test_an_exported_teacher_that_says_nothing_gets_the_students_images(exported):
    task = make_task([describe(exported, {})])
    images = task.normalize(paddle.to_tensor(pixels()))
    np.testing.assert_array_equal(task.teacher(images).numpy(), exported[1](images).numpy())
    assert any("its normalization is not known: it gets images with mean 0.4" in line for line in task.notices)


@pytest.mark.parametrize(
    ("about", "size", "classes", "message"),
    [
        ({**ABOUT, "input_type": "uint8"}, 16, 5, "takes pixels .*export it without -input=uint8"),
        (ABOUT, 24, 5, r"cannot compute images of 24 x 24 pixels \(DATA.IMAGE_SIZE\)"),
        (
            {**ABOUT, "mean": [0.5], "standard_deviation": [0.5]},
            16,
            5,
            "takes images of 1 channels, the student's have 3",
        ),
        ({**ABOUT, "mean": ["a", "b", "c"]}, 16, 5, "mean and deviation of images are not lists of numbers"),
    ],
)
def test_an_exported_teacher_that_does_not_fit_is_refused(exported, about, size, classes, message):
    with pytest.raises(UserError, match=message):
        TeacherModel(describe(exported, about), None, classes, size, 3)


def test_a_teacher_that_is_not_there_or_of_another_task_is_refused(exported, tmp_path):
    describe(exported, {**ABOUT, "task": "multi_label"})
    for words, message in (
        (f"{exported[0]}", f"{exported[0]} was trained for TASK multi_label, whose outputs do not teach TASK class"),
        (
            f"{tmp_path}/none",
            rf"none is neither a registered model, nor a run or weights, nor an exported model \({tmp_path}/none.json",
        ),
        ("small_teacher", "small_teacher needs its weights: set TRAIN.TEACHER_WEIGHTS"),
    ):
        with pytest.raises(UserError, match=f"^TRAIN.TEACHER_MODEL .*{message}"):
            make_task([words])
    with pytest.raises(UserError, match=r"^TRAIN.DISTILLATION_TYPE soft needs TRAIN.TEACHER_MODEL$"):
        make_task(["null"])


@pytest.mark.parametrize(
    ("theirs", "ours", "number", "order"),
    [
        (list("abcde"), list("abcde"), 5, [0, 1, 2, 3, 4]),
        (list("abcde"), list("cdeab"), 5, [2, 3, 4, 0, 1]),
        (list("abcde"), list("db"), 2, [3, 1]),
        (list("abcde"), list("db"), 4, [3, 1, 0, 2]),  # the student's last two outputs are of no class
        (list("abc"), list("cab"), 5, [2, 0, 1, 3, 4]),
        (None, list("abcde"), 5, [0, 1, 2, 3, 4]),
        (list("abcde"), [], 5, [0, 1, 2, 3, 4]),
        (["0", "1", "2", "3", "4"], list("abcde"), 5, [0, 1, 2, 3, 4]),
    ],
)
@pytest.mark.parametrize("kind", ["exported", "registered"])
def test_classes_of_a_teacher_are_the_students_by_name(exported, of_a_run, tmp_path, kind, theirs, ours, number, order):
    if kind == "exported":
        teacher = TeacherModel(describe(exported, {**ABOUT, **({"classes": theirs} if theirs else {})}), None, 9, 16, 3)
    else:
        about = {"settings": {"DATA": RUN}, **({"data": {"val": {"classes": theirs}}} if theirs else {})}
        (tmp_path / "teacher.about.yaml").write_text(yaml.safe_dump(about))
        teacher = TeacherModel("small_teacher", of_a_run[-1], 9, 16, 3)
    images, student = normalize(pixels(), MEANS, DEVIATIONS), STUDENT
    before = teacher(images).numpy()
    teacher.match_classes(student, ours, number)
    np.testing.assert_array_equal(teacher(images).numpy(), before[:, order])
    is_named = bool(theirs and ours and theirs[0] != "0")
    assert ("classes matched by name" if is_named else "classes unknown: its outputs are taken") in teacher.summary


@pytest.mark.parametrize(
    ("theirs", "ours", "number", "message"),
    [
        (list("abcde"), ["b", "x", "c"], 3, r"m lacks 1 classes \(x\); its own are a, b, c, d, e"),
        (None, list("abcd"), 4, "m has 5 classes, and 4 are needed"),
        (list("abcde"), [], 6, "m has 5 classes, and 6 are needed"),
        (list("abcde"), list("abcde"), 6, "m has 5 classes, and 6 are needed"),
    ],
)
def test_a_teacher_without_the_students_classes_is_refused(exported, theirs, ours, number, message):
    teacher = TeacherModel(describe(exported, {**ABOUT, "classes": theirs}), None, 9, 16, 3)
    with pytest.raises(UserError, match=message):
        teacher.match_classes(STUDENT, ours, number)


def test_a_teacher_of_imagenet_teaches_its_wordnet_ids(tmp_path):
    paddle.save(create_model("small_teacher", num_classes=1000).state_dict(), str(tmp_path / "teacher.pdparams"))
    teacher = TeacherModel("small_teacher", str(tmp_path / "teacher"), 3, 16, 3)
    images = paddle.to_tensor(np.random.default_rng(0).normal(size=(2, 3, 16, 16)).astype("float32"))
    before = teacher(images).numpy()
    teacher.match_classes(STUDENT, ["n01807496", "n01440764"], 2)
    np.testing.assert_array_equal(teacher(images).numpy(), before[:, [86, 0]])


def test_models_of_timm_can_teach():
    with pytest.raises(UserError, match="TRAIN.TEACHER_MODEL timm:resnet18 needs its weights"):
        TeacherModel("timm:resnet18", None, 5, 16, 3)
