"""What is said of copies: each pair with two classes is told, and those of one class are not."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist import UserError, load_config
from paddlevit_dist.extensions.leakage import formatting
from paddlevit_dist.extensions.leakage.formatting import draw_sheet, find_label_conflicts, list_shown
from paddlevit_dist.extensions.leakage.search import DuplicatePair, SearchResult, read_leaks, write_leaks
from paddlevit_dist.images.data.image_dataset import ImageDataset


class Labeled:
    def __init__(self, split: str, labels, class_names=None) -> None:
        self.split, self.labels, self.class_names = split, np.array(labels), class_names

    def describe(self, index: int) -> str:
        return f"{self.split}/{index}.png"


class LabeledImages(Labeled, ImageDataset):
    """Images in memory, each of another color."""

    reading = None

    def __init__(self, split, labels, class_names=None, color=0, size=(40, 30)) -> None:
        super().__init__(split, labels, class_names)
        self.images = [Image.new("RGB", size, (color + number,) * 3) for number in range(len(labels))]

    def identity(self, index: int) -> str:
        return self.describe(index)

    def read(self, index: int):
        return self.images[index], 0


PAIRS = [SimpleNamespace(val=val, train=train) for val, train in ((0, 3), (1, 0), (2, 4), (3, 1), (4, 2), (0, 0))]
SEARCH = SimpleNamespace(pairs=PAIRS)


@pytest.mark.parametrize("names", [None, (["ant", "bee", "cow"], ["cow", "ant", "bee"])])
def test_every_pair_of_two_classes_is_told(names):
    val_labels, train_labels = [0, 1, 2, 2, 1], [2, 1, 1, 0, 0]
    of_val, of_train = names or (None, None)
    val, train = Labeled("val", val_labels, of_val), Labeled("train", train_labels, of_train)
    expected = []
    for pair in PAIRS:
        one, other = val_labels[pair.val], train_labels[pair.train]
        if names:
            one, other = of_val[one], of_train[other]
        if one != other:
            expected.append(f"val/{pair.val}.png is {one}, train/{pair.train}.png is {other}")
    assert len(expected) > 2 and find_label_conflicts(SEARCH, val, train) == expected


def test_samples_without_one_class_each_have_no_conflict():
    labeled = Labeled("val", [0, 1, 2, 2, 1])
    for others in (
        Labeled("train", np.zeros((5, 3), int)),
        SimpleNamespace(describe=str),
        SimpleNamespace(labels=None),
    ):
        assert find_label_conflicts(SEARCH, labeled, others) == []


FOUND = SearchResult(
    [
        DuplicatePair(0, 3, "same file"),
        DuplicatePair(1, 0, "near duplicate", 0.87654),
        DuplicatePair(2, 4, "same content"),
        DuplicatePair(4, 2, "near duplicate", 0.75),
    ],
    (5, 4),
    (7, 6),
    1,
)


def test_each_pair_is_a_row_of_the_file_with_both_names(tmp_path):
    write_leaks(tmp_path / "leaks.json", FOUND, Labeled("val", [0] * 7), Labeled("train", [0] * 6))
    text = (tmp_path / "leaks.json").read_text()
    written = json.loads(text)
    assert text.startswith('{\n "pairs": [\n  {\n')
    rows = [(row["sample"], row["val"], row["train"], row["kind"], row["likeness"]) for row in written.pop("pairs")]
    assert rows == [
        (0, "val/0.png", "train/3.png", "same file", 1.0),
        (1, "val/1.png", "train/0.png", "near duplicate", 0.8765),
        (2, "val/2.png", "train/4.png", "same content", 1.0),
        (4, "val/4.png", "train/2.png", "near duplicate", 0.75),
    ]
    assert written == {"alike": [], "compared": [5, 4], "samples": [7, 6], "unreadable": 1}
    assert read_leaks(tmp_path / "leaks.json") == [0, 1, 2, 4]
    assert FOUND.summary("val", "images") == (
        "4 of 7 images of val are also in train (1 same file, 1 same content, 2 near duplicate); "
        "compared: 5 of 7 of val with 4 of 6 of train; 1 cannot be read"
    )


def test_a_sheet_has_both_images_of_each_pair_in_a_row_the_least_similar_first():
    sides = [LabeledImages("val", [0] * 7, color=10), LabeledImages("train", [0] * 7, color=100)]
    drawn = list_shown(FOUND, *sides)
    rows = [(4, 2), (1, 0), (0, 3), (2, 4)]
    kinds = ["near duplicate 0.75", "near duplicate 0.88", "same file", "same content"]
    assert [heading for heading, _ in drawn] == ["val", "train"]
    for place, (heading, images) in enumerate(drawn):
        captions = [f"{kind}: {heading}/{row[place]}.png" for kind, row in zip(kinds, rows)]
        assert [caption for _, caption in images] == captions
        assert [int(pixels[0, 0, 0]) for pixels, _ in images] == [(10, 100)[place] + row[place] for row in rows]
    width, height = draw_sheet(FOUND, *sides).size
    assert width > 2 * 40 and height > 4 * 30


def test_a_sheet_shows_no_more_pairs_than_fit():
    side = LabeledImages("x" * 30, [0] * 7, size=(600, 300))
    side.identity = lambda index: f"{'x' * 30}{index}"
    columns = list_shown(FOUND._replace(pairs=FOUND.pairs * 3), side, side)
    assert [len(images) for _, images in columns] == [8, 8]
    pixels, caption = columns[0][1][0]
    assert pixels.shape == (128, 256, 3) and caption == f"near duplicate 0.75: {'x' * 30}4"


ALIKE = [DuplicatePair(3, 1, "looks alike", 0.8), DuplicatePair(5, 2, "looks alike", 0.9)]


def test_images_that_only_look_alike_are_listed_apart_and_shown_last(tmp_path, capsys):
    task = SimpleNamespace(traits=SimpleNamespace(sample_name="images"))
    found = FOUND._replace(alike=ALIKE, compared=(30, 6), totals=(30, 6))
    sides = [LabeledImages("val", [0] * 7, color=10), LabeledImages("train", [0] * 7, color=100)]
    formatting.print_findings(found, *sides, task, tmp_path)
    leaks, alike, written = capsys.readouterr().out.splitlines()
    assert leaks.startswith("leaks: 4 of 30 images of val are also in train (") and "exclude_leaked" in written
    assert alike.startswith("look alike: 2 of 30 images of val look like one of train, but pixels do not prove a copy")
    stored = json.loads((tmp_path / "leaks.json").read_text())
    assert [row["sample"] for row in stored["alike"]] == [3, 5] and len(stored["pairs"]) == 4
    assert read_leaks(tmp_path / "leaks.json") == [0, 1, 2, 4]  # what -exclude_leaked leaves out
    captions = [caption for _, caption in list_shown(found, *sides)[0][1]]
    assert captions[4:] == ["looks alike 0.90: val/5.png", "looks alike 0.80: val/3.png"]
    many = found._replace(pairs=FOUND.pairs * 3, alike=ALIKE * 3)
    assert sum(caption.startswith("looks alike") for _, caption in list_shown(many, *sides)[0][1]) == 4
    formatting.print_findings(found._replace(pairs=[]), *sides, task, tmp_path)
    leaks, _, written = capsys.readouterr().out.splitlines()
    assert leaks.startswith("leaks: 0 of 30 images of val are also in train") and "exclude_leaked" not in written


@pytest.mark.parametrize(("compared", "is_kind"), [(20, True), (21, False)])
def test_a_tenth_of_the_images_is_a_kind_of_image(compared, is_kind):
    found = SearchResult([], (compared, 6), (30, 6), 0, ALIKE)
    assert found.is_kind is is_kind and ("this kind of image" in found.suspicion("val", "images")) is is_kind
    assert not SearchResult([], (5, 6), (30, 6), 0, ALIKE[:1]).is_kind  # one picture is not a kind


LAST = "val/4.png is bee, train/2.png is cow"


def test_findings_replace_those_of_the_search_before(tmp_path, capsys):
    task = SimpleNamespace(traits=SimpleNamespace(sample_name="scenes"))
    val = Labeled("val", [0, 1, 2, 0, 1, 2, 0], ["ant", "bee", "cow"])
    train = Labeled("train", [1, 0, 2, 1, 0, 1], ["ant", "bee", "cow"])
    formatting.print_findings(FOUND, val, train, task, tmp_path)
    leaks, more, conflicts, written = capsys.readouterr().out.splitlines()
    assert leaks.startswith("leaks: 4 of 7 scenes of val are also in train (1 same file, ")
    assert more == "to compare all samples, run inspect leaks with the same flags"
    others = ["val/0.png is ant, train/3.png is bee", "val/2.png is cow, train/4.png is ant"]
    assert conflicts == f"3 of these have another class in train: {'; '.join([*others, LAST])}"
    assert written == f"pairs written to {tmp_path}/leaks.json; evaluate -exclude_leaked scores without them"
    (tmp_path / "leaks.png").write_text("of the search before")
    formatting.print_findings(SearchResult([], (7, 6), (7, 6), 0), val, train, task, tmp_path)
    assert capsys.readouterr().out.splitlines() == ["leaks: 0 of 7 scenes of val are also in train"]
    assert list(tmp_path.iterdir()) == []


def test_findings_of_images_name_three_conflicts_and_the_sheet(tmp_path, capsys):
    task = SimpleNamespace(traits=SimpleNamespace(sample_name="images"))
    found = FOUND._replace(pairs=[*FOUND.pairs, DuplicatePair(5, 5, "same file")], compared=(7, 6))
    val = LabeledImages("val", [0, 1, 2, 0, 1, 2, 0], ["ant", "bee", "cow"])
    train = LabeledImages("train", [1, 0, 2, 1, 0, 1])
    formatting.print_findings(found, val, train, task, tmp_path)
    _, conflicts, written = capsys.readouterr().out.splitlines()
    assert conflicts.startswith("5 of these have another class in train: val/0.png is ant, ")
    assert [conflict[:9] for conflict in conflicts.split(": ")[1].split("; ")] == [
        "val/0.png",
        "val/1.png",
        "val/2.png",
    ]
    files = f"{tmp_path}/leaks.json, {tmp_path}/leaks.png"
    assert written == f"pairs written to {files}; evaluate -exclude_leaked scores without them"
    assert Image.open(tmp_path / "leaks.png").size == draw_sheet(found, val, train).size


def test_a_look_at_data_says_why_it_cannot_search(capsys):
    def refuse(split, folder):
        raise UserError("no\nimages")

    task = SimpleNamespace(build_dataset=refuse, config=SimpleNamespace(SEED=0))
    formatting.show_leaks(load_config("vit_digits"), task, None, None)
    assert capsys.readouterr().out == "samples of val in train: not searched: no\\nimages\n"
    assert formatting.SECONDS == 15.0
