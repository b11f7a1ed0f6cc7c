"""How samples are laid out on a sheet, and which are drawn."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from support.registrations import forgotten

from paddlevit_dist import Manifest, UserError, register_feature
from paddlevit_dist.core.commands import inspect_data
from paddlevit_dist.core.data.sampler import SampleKey, sample_generator
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.runtime.text_rendering import LINE_PX, render_text
from paddlevit_dist.core.tasks import Task
from paddlevit_dist.core.tasks.dataset import TransformedDataset
from paddlevit_dist.core.tasks.protocols import Drawable


def image(width: int, height: int, value: int = 7) -> Image.Image:
    return Image.new("RGB", (width, height), (value, value, value))


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        ((30, 20), (120, 80)),  # by 4, the least whole factor to 112 pixels
        ((56, 20), (112, 40)),
        ((57, 20), (114, 40)),
        ((112, 40), (112, 40)),
        ((20, 111), (40, 222)),
        ((640, 300), (640, 300)),
        ((1280, 300), (640, 150)),
    ],
)
def test_small_images_grow_by_a_whole_factor_and_large_ones_shrink(size, shown):
    width, height = size
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    ((drawn, caption), (other, _)) = inspect_data.enlarge([(pixels, "a"), (pixels[..., 0], "b")])
    assert drawn.size == other.size == shown and caption == "a" and other.mode == "L"
    if max(size) < 640:
        factor = shown[0] // width
        np.testing.assert_array_equal(np.asarray(drawn)[::factor, factor - 1 :: factor], pixels)


@pytest.mark.parametrize(
    ("sizes", "width", "rows", "epochs"),
    [
        ([(100, 100)], 1300, 8, 6),
        ([(200, 100), (100, 240)], 1300, 5, 5),  # cells of 204 x 265
        ([(200, 100), (100, 240)], 1020, 5, 4),
        ([(200, 100), (100, 240)], 1019, 5, 3),
        ([(640, 640)], 1300, 4, 1),
        ([(640, 640)], 100, 4, 1),
    ],
)
def test_a_sheet_has_the_rows_and_epochs_that_fit(sizes, width, rows, epochs):
    assert inspect_data.fit_sheet([(image(*size), "") for size in sizes], width) == (rows, epochs)


def test_an_empty_data_set_is_told():
    with pytest.raises(UserError, match="^the dataset is empty, nothing to show: check -data_path$"):
        inspect_data.fit_sheet([], 1300)


def test_each_image_is_below_its_heading_above_its_caption_and_beside_the_legend():
    columns = [
        ("as evaluated", [(image(120, 90, 10), "first"), (image(100, 112, 20), "w" * 99)]),
        ("epoch 1", [(image(112, 112, 30), "second"), (image(112, 112, 40), "")]),
    ]
    sheet = inspect_data.contact_sheet(columns, image(33, 9, 200))
    width, height = 220 + 4, 112 + 3 * LINE_PX + 4  # a long caption makes cells of small images wider, up to this
    assert sheet.size == (2 * width + 33, LINE_PX + 2 * height)
    pixels = np.asarray(sheet)
    for left, top, one in (
        (0, LINE_PX, columns[0][1][0]),
        (0, LINE_PX + height, columns[0][1][1]),
        (width, LINE_PX, columns[1][1][0]),
        (width, LINE_PX + height, columns[1][1][1]),
    ):
        drawn = np.asarray(one[0])
        np.testing.assert_array_equal(pixels[top : top + drawn.shape[0], left : left + drawn.shape[1]], drawn)
    np.testing.assert_array_equal(pixels[:9, 2 * width :], 200)
    assert (pixels[9:, 2 * width :] == 255).all()
    heading = np.asarray(render_text("epoch 1"))
    np.testing.assert_array_equal(pixels[: heading.shape[0], width : width + heading.shape[1], 0], 255 - heading)
    caption = np.asarray(render_text("first"))
    below = pixels[LINE_PX + 90 : LINE_PX + 90 + caption.shape[0], : caption.shape[1], 0]
    np.testing.assert_array_equal(below, 255 - caption)
    long = pixels[LINE_PX + height + 112 : LINE_PX + 2 * height, :width, 0]
    assert (long[:, width - 8 :] == 255).all()
    assert all((line[:, : width - 8] < 128).any() for line in np.split(long[: 3 * LINE_PX], 3))  # three lines
    short = [("as evaluated", [(image(120, 90), "first")])]
    assert inspect_data.contact_sheet(short, image(1, 1)).width == 120 + 4 + 1
    tall = inspect_data.contact_sheet(columns[:1], image(10, 900))
    assert tall.size == (width + 10, 900)


class Samples(TransformedDataset):
    notices, class_names = ["of the data"], ["ant", "bee"]

    def __init__(self):
        self.drawn: list[tuple[int, float]] = []

    def __len__(self):
        return 1234

    def __getitem__(self, index):
        return self.sample(index, np.random.default_rng(index))

    def sample(self, index, generator):
        self.drawn.append((index, generator.random()))
        return index


class DrawnTask(Task, Drawable):
    """Draws the number of each sample in gray: evaluated in images of 200 pixels."""

    traits = dataclasses.replace(Task.traits, sample_name="scenes")
    samples: Samples
    epochs: list

    def __init__(self, config):
        super().__init__(config)
        self.notices = ["of the task"]

    def build_dataset(self, split, cache_folder):
        assert split == "train" and cache_folder.name == "data"
        return self.samples

    def collate(self, samples):
        return {"all": samples}

    def draw(self, data, indices):
        assert data.wrapped_dataset is self.samples
        return [(np.full((200, 200), index % 251, np.uint8), str(index)) for index in indices]

    def image_legend(self):
        return [("ant", (1, 2, 3))]

    def visualize_eval_samples(self, dataset, indices):
        self.epochs.append(list(indices))
        return self.draw(dataset, indices)

    def visualize_batch(self, dataset, batch, epoch):
        self.epochs.append(epoch)
        return self.draw(dataset, batch["all"])

    def summarize_samples(self, dataset):
        return ["of the samples", "and more"]


@pytest.fixture
def task(monkeypatch):
    """The class of the task "some", which has samples and notes what it draws."""
    cls = type("NotingTask", (DrawnTask,), {"samples": Samples(), "epochs": []})
    monkeypatch.setitem(REGISTRY.tasks, "some", cls)
    return cls


@pytest.fixture
def find_leaks():
    """Notes the searches for leaks."""
    calls = []
    with forgotten():
        register_feature(Manifest("acme", functions={"show_leaks": lambda *words: calls.append(words)}))
        yield calls


def values_in(folder):
    return SimpleNamespace(SEED=5, TASK="some", SAVE=str(folder), DATA=SimpleNamespace(CACHE_FOLDER=None))


def test_the_first_samples_in_a_random_order_are_drawn_once_for_each_epoch(task, find_leaks, tmp_path, capsys):
    inspect_data.draw(values_in(tmp_path), tmp_path / "data.png")
    order = np.random.default_rng(5).permutation(1234).tolist()
    assert task.epochs == [order[:8], *range(1, 6)]
    numbers = [index for index, _ in task.samples.drawn]
    assert numbers == order[:6] * 5
    keys = [SampleKey(epoch, index, 0) for epoch in range(1, 6) for index in order[:6]]
    draws = [draw for _, draw in task.samples.drawn]
    assert draws == [sample_generator(5, key).random() for key in keys] and len(set(draws)) == 30
    size, said = Image.open(tmp_path / "data.png").size, capsys.readouterr().out.splitlines()
    assert size[1] == LINE_PX + 6 * (200 + LINE_PX + 4) and size[0] >= 6 * 204
    assert said[:5] == [
        "of the task",
        "of the data",
        "of the samples",
        "and more",
        f"6 of 1,234 training scenes, 5 epochs: {tmp_path / 'data.png'}",
    ]


@pytest.mark.parametrize("has_numba", [True, False])
def test_leaks_are_searched_where_numba_is_installed(task, find_leaks, tmp_path, capsys, module_specs, has_numba):
    if not has_numba:
        module_specs["numba"] = None
    values = values_in(tmp_path)
    inspect_data.draw(values, tmp_path / "data.png")
    assert len(find_leaks) == has_numba
    for found, found_task, samples, folder in find_leaks:
        opened = samples.wrapped_dataset
        assert (found, type(found_task), opened, folder) == (values, task, task.samples, Path(tmp_path))
    assert ("leaks: not searched, since numba is not installed" in capsys.readouterr().out) != has_numba


def test_a_task_that_draws_nothing_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(REGISTRY.tasks, "some", Task)
    with pytest.raises(UserError, match="^inspect data: TASK some cannot draw its samples$"):
        inspect_data.draw(values_in(tmp_path), tmp_path / "data.png")


def test_a_caption_is_broken_into_lines_and_of_a_long_path_the_end_is_left():
    for caption in ("", "short", "near duplicate 0.98: train/a_rather_long_name_of_a_class/image.png"):
        lines = inspect_data.wrap_caption(caption, 160)
        assert "".join(lines) == caption and all(render_text(line).width <= 160 for line in lines)
    path = "near duplicate 0.98: " + "folder/" * 40 + "image_0017.png"
    lines = inspect_data.wrap_caption(path, 160)
    assert len(lines) <= 3 and "".join(lines).startswith("...") and "".join(lines).endswith("folder/image_0017.png")


@pytest.mark.parametrize("has_matrix", [False, True])
def test_every_class_is_seen_before_one_is_seen_again(has_matrix):
    labels = np.array([0] * 60 + [1] * 3 + [2])
    matrix = np.eye(3, dtype=np.int8)[labels]
    matrix[0] = 0  # no label at all
    order = np.random.default_rng(0).permutation(64).tolist()
    dataset = SimpleNamespace(label_matrix=matrix) if has_matrix else SimpleNamespace(labels=labels)
    chosen = inspect_data.choose_shown(SimpleNamespace(dataset=dataset), order)
    assert sorted(chosen) == list(range(64)) and len({labels[index] for index in chosen[:3]}) == 3
    assert labels[chosen[3:5]].tolist() in ([0, 1], [1, 0]) and set(labels[chosen[-40:]]) == {0}
    assert [index for index in chosen if labels[index] == 1] == [index for index in order if labels[index] == 1]
    for unknown in (SimpleNamespace(), SimpleNamespace(labels=None), SimpleNamespace(labels=np.zeros((64, 2)))):
        assert inspect_data.choose_shown(SimpleNamespace(dataset=unknown), order) == order
