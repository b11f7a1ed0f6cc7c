"""What an evaluation says of the classes of weights that name them otherwise than the data, or not at all."""

from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from support.refusals import refusal_of
from support.thread_ranks import ThreadRanks

from paddlevit_dist import UserError, broadcast_object
from paddlevit_dist.core.checkpoint.class_rows import ClassNames
from paddlevit_dist.core.engine.class_names import compare_classes, find_class_names

OURS = ["owl", "tit", "wren"]


def compare(
    theirs, by_name=None, outputs=("w", "x", "y", "z"), classes=3, use="evaluate", allow=False, task="classification"
):
    config = SimpleNamespace(ALLOW_CHANGES=allow, TASK=task, MODEL=SimpleNamespace(NUM_CLASSES=classes))
    diff = SimpleNamespace(use=use, source="a.npz", config=config, classes=lambda samples: [f"compared {samples}"])
    report = SimpleNamespace(classes_by_name=by_name, outputs=outputs)
    names = theirs if theirs is None or isinstance(theirs, ClassNames) else ClassNames(theirs, OURS, False)
    return compare_classes(diff, "samples", names, report)


UNKNOWN = ClassNames(None, OURS, False)


@pytest.mark.parametrize(
    "theirs, options, lines",
    [
        (None, {}, ["compared samples"]),
        (UNKNOWN, {}, ["compared samples"]),
        (UNKNOWN, {"classes": None}, ["compared samples"]),
        (
            ClassNames(None, ["0", "1"]),
            {"classes": 9},
            ["note: classes of a.npz are unknown or numbers: 0, 1 are its first outputs"],
        ),
        (OURS, {}, []),
        (tuple(OURS), {"classes": 9}, []),
        (["a", "b"], {"by_name": (3, 3)}, []),
        (["a", "b"], {"by_name": (4, 4), "task": "segmentation"}, []),
        (
            ["a", "b"],
            {"by_name": (2, 2), "task": "image_segmentation"},
            ["note: a.npz has 2 classes that the data lack (y, z): each that is predicted counts in mIoU, as 0"],
        ),
        (
            ["owl", "kite"],
            {"by_name": (1, 3), "allow": True},
            ["note: a.npz has 1 of the data's 3 classes (owl, tit, wren); its own are owl, kite"],
        ),
        (
            UNKNOWN,
            {"by_name": (1, 3), "allow": True},
            ["note: a.npz has 1 of the data's 3 classes (owl, tit, wren); its own are z"],
        ),
    ],
)
def test_names_are_compared_with_the_datas(theirs, options, lines):
    assert compare(theirs, **options) == lines


def test_classes_that_the_weights_lack_are_refused():
    told = "a.npz has 2 of the data's 3 classes (owl, tit, wren); its own are a, b"
    message = refusal_of(compare, ["a", "b"], by_name=(2, 3))
    assert message == f"{told}; evaluate data of its classes, or add -allow_changes"
    assert compare(["a", "b"], by_name=(2, 3), allow=True) == [f"note: {told}"]


@pytest.mark.parametrize("allow", [False, True])
@pytest.mark.parametrize(
    "theirs, options, told",
    [
        (["wren", "tit", "owl"], {}, "a.npz has other class names (wren, tit, owl) than the data (owl, tit, wren); na"),
        (["Uhu", "Meise"], {"task": "detection"}, "a.npz has other class names (Uhu, Meise) than the data (owl, tit, "),
        (
            UNKNOWN,
            {"classes": 1000},
            "a.npz has 1,000 classes and names none of the 3 of the data (owl, tit, wren), so ",
        ),
        (
            UNKNOWN,
            {"classes": 9, "task": "detection"},
            "a.npz has 9 classes and names none of the 3 of the data (owl, ",
        ),
    ],
)
def test_nothing_is_scored_by_position_where_names_differ(theirs, options, told, allow):
    message = refusal_of(compare, theirs, **options, allow=allow)
    assert message.startswith(told) and "-allow_changes" not in message


class Named:
    """A task whose samples have class names."""

    def __init__(self, names):
        self.names = names

    def signature(self, samples=None):
        return {"classes": self.names} if samples == "samples" else {"size": 3}


@pytest.fixture
def weights(tmp_path):
    """Return a function that writes weights whose run had classes of these names, or that are nobody's."""

    def write(classes=None):
        folder = tmp_path / f"{len([*tmp_path.iterdir()])}"
        folder.mkdir()
        np.savez(folder / "w.npz", a=np.zeros(3))
        if classes is not None:
            about = yaml.safe_dump({"data": {"val": {"classes": list(classes)}}})
            (folder / "about.yaml").write_text("[" if classes == "damaged" else about)
        return str(folder / "w.npz")

    return write


def test_names_of_weights_are_read_if_the_data_have_some(weights):
    assert find_class_names(Named(OURS), "samples", weights(["kite", "owl"])) == ClassNames(["kite", "owl"], OURS, True)
    assert find_class_names(Named(None), "samples", "of no weights") is None
    assert find_class_names(Named(OURS), "samples", weights()) == ClassNames(None, OURS, False)
    with pytest.raises(UserError, match="about.yaml"):
        find_class_names(Named(OURS), "samples", weights("damaged"))


@pytest.mark.parametrize(
    "ours, theirs",
    [(["0", "2"], ["0", "1", "2"]), (["1", "2", "3"], ["0", "1", "2"]), (OURS, None), (["0", "1"], None)],
)
def test_numbers_that_a_run_recorded_are_names_of_classes_named_by_numbers(weights, ours, theirs):
    source = weights(["0", "1", "2"])
    assert find_class_names(Named(ours), "samples", source) == ClassNames(theirs, ours, True)


@pytest.mark.parametrize("sent, is_raised", [((None, "rank 0 cannot read it"), True), (((OURS, False), None), False)])
def test_other_ranks_take_what_the_main_process_read(sent, is_raised):
    def find(rank):
        return find_class_names(Named(OURS), "samples", "of no weights") if rank else broadcast_object(sent)

    if is_raised:
        with pytest.raises(UserError, match="^rank 0 cannot read it$"):
            ThreadRanks(2).run(find)
    else:
        assert ThreadRanks(2).run(find)[1] == ClassNames(OURS, OURS, False)
