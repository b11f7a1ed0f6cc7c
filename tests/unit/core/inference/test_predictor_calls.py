"""What a ``Predictor`` takes, in one thread and in several, and what it starts for it."""

import io
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
import paddle
import pytest
from PIL import Image
from support.forced_device import forced_device
from support.refusals import refusal_of
from support.trainings.trained import write_weights

from paddlevit_dist import Predictor
from paddlevit_dist.core.inference import predictor
from paddlevit_dist.core.launch import gpu
from paddlevit_dist.core.tasks.prediction import PredictionWriter
from paddlevit_dist.images.classification.prediction import ImageClassPrediction
from paddlevit_dist.points.inputs import find_scenes
from paddlevit_dist.volumes.inputs import find_volumes

NUMBER = 5


@pytest.fixture(scope="module")
def predict(tmp_path_factory):
    return Predictor(write_weights(tmp_path_factory.mktemp("weights"), ["cat", "ant", "bee"]), batch_size=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Five images whose content decides the answer."""
    folder = tmp_path_factory.mktemp("images")
    for index in range(NUMBER):
        pixels = np.random.default_rng(index).integers(0, 256, (20, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.png")
    return folder


def scores(rows):
    return [[value for name, value in row.items() if name != "input"] for row in rows]


KINDS = {
    "generator of paths": lambda folder: (str(file) for file in sorted(folder.glob("*.png"))),
    "contents": lambda folder: [file.read_bytes() for file in sorted(folder.glob("*.png"))],
    "tuple of other bytes": lambda folder: tuple(
        kind(file.read_bytes()) for file, kind in zip(sorted(folder.iterdir()), [bytearray, memoryview] * NUMBER)
    ),
    "generator of images": lambda folder: map(Image.open, sorted(folder.iterdir())),
    "arrays": lambda folder: [np.asarray(Image.open(file)) for file in sorted(folder.iterdir())],
    "content and image": lambda folder: [(folder / "0.png").read_bytes(), Image.open(folder / "1.png")],
}


@pytest.mark.parametrize("kind", KINDS)
def test_any_iterable_of_paths_images_and_contents_is_a_list_of_inputs(predict, folder, kind):
    expected = scores(predict([str(folder / f"{index}.png") for index in range(NUMBER)]))
    assert len({str(row) for row in expected}) == NUMBER
    found = scores(predict(KINDS[kind](folder)))
    assert found == expected[: len(found)] and len(found) == (2 if "and image" in kind else NUMBER)


def test_the_order_of_a_glob_is_kept_and_one_content_is_one_image(predict, folder):
    found = predict(folder.glob("*.png"))
    assert [row["input"] for row in found] == [str(file) for file in folder.glob("*.png")]
    assert scores(predict((folder / "3.png").read_bytes())) == scores(predict(folder / "3.png"))
    assert predict(iter(())) == []


@pytest.mark.parametrize(
    "given, reason",
    [
        ({"a.png": 1}, "the inputs are a mapping: pass a list of its values or of its keys"),
        (io.BytesIO(b"lines\nof a file"), "a file's content as bytes, got BytesIO"),
        (paddle.zeros([4, 3, 2]), "bytes, got Tensor"),
        (None, "got NoneType"),
        ([b""], "image 0: the file is empty"),
        (b"text", "image 0: not an image in a format that Pillow knows"),
        (["a.png", b"x"], "paths and images in memory are mixed"),
    ],
)
def test_other_objects_are_refused_in_one_line(predict, given, reason):
    assert reason in refusal_of(predict, given)


@pytest.mark.parametrize("find, noun", [(find_volumes, "volumes"), (find_scenes, "scenes")])
@pytest.mark.parametrize("given", [b"a.nii", np.zeros((3, 3)), 4])
def test_what_is_only_read_from_files_is_not_taken_from_memory(find, noun, given):
    said = f"predict: {noun} are given as paths of files and folders, not as {type(given).__name__}"
    assert refusal_of(find, [given]) == said
    assert find([Path("gone")])[1] == [("gone", "no such file or folder")]


def test_images_in_memory_start_neither_process_nor_thread(predict, folder, monkeypatch):
    started = []
    monkeypatch.setattr(predictor, "build_prediction_loader", lambda *_: pytest.fail("a loader was built"))
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda thread: (started.append(thread.name), start(thread))[1])
    monkeypatch.setattr(predict, "_num_workers", 2)
    predict([Image.open(folder / f"{index}.png") for index in range(NUMBER)])
    monkeypatch.setattr(predict, "_num_workers", 0)
    predict([str(folder / "0.png"), str(folder / "1.png")])  # one batch
    assert started == []
    predict(folder)
    assert started == ["reading_0"] and "reading_0" not in {thread.name for thread in threading.enumerate()}


def test_a_call_has_its_own_reasons_and_rows_in_each_thread(predict, folder):
    content = [(folder / f"{index}.png").read_bytes() for index in range(NUMBER)]
    expected = [scores(predict([each]))[0] for each in content]
    predict([content[0], b"of the main thread"])
    together = threading.Barrier(NUMBER)

    def call(index):
        together.wait()
        rows = predict([b"torn"] * (index + 1) + [content[index]])
        together.wait()  # all calls have ended
        return rows, predict.unreadable

    with ThreadPoolExecutor(NUMBER) as pool:
        for index, (rows, last) in enumerate(pool.map(call, range(NUMBER))):
            assert scores(rows) == [expected[index]] and rows[0]["input"] == f"image {index + 1}"
            assert [name for name, _ in rows.unreadable] == [f"image {k}" for k in range(index + 1)]
            assert last == rows.unreadable
    assert [name for name, _ in predict.unreadable] == ["image 1"]


def test_what_a_task_keeps_of_its_inputs_is_of_one_call(predict, folder, monkeypatch):
    class Keeping(ImageClassPrediction):
        def open_inputs(self, inputs, cache_folder):
            self.opened = len(inputs)
            if len(inputs) == 1:
                predict([(folder / "0.png").read_bytes()] * 3)  # another call meanwhile
            return super().open_inputs(inputs, cache_folder)

        def prediction_rows(self, prediction):
            return [{"opened": self.opened}]

    monkeypatch.setattr(predict, "_aspect", Keeping(predict._task))
    assert predict([(folder / "0.png").read_bytes()]) == [{"input": "image 0", "opened": 1}]


def test_gradients_stay_off_and_on_in_each_thread(predict):
    """The second thread begins and ends without gradients, while the first is predicting."""
    inside, others = threading.Event(), threading.Event()

    class Slow:
        def predict_step(self, model, batch):
            assert not paddle.is_grad_enabled()
            if batch["is_first"]:
                inside.set()
                others.wait(10)
            return [0]

        def prediction_rows(self, prediction):
            return []

    def call(is_first):
        batch = {"__indices__": [0], "__unread__": [], "is_first": is_first}
        predictor.predict_batch(Slow(), None, batch, PredictionWriter())
        return paddle.is_grad_enabled()

    def without_gradients():
        inside.wait(10)
        with paddle.no_grad():
            found = call(False)
        others.set()
        return found

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(call, True), pool.submit(without_gradients)
        assert first.result() and not second.result()


def test_a_fork_waits_until_no_thread_computes(predict):
    def fork():
        predictor._hold_networks()
        predictor._release_networks()

    with ThreadPoolExecutor(1) as pool:
        with predict._computing:
            forked = pool.submit(fork)
            assert not wait([forked], 0.05).done
        forked.result(60)
    assert predict._computing.acquire(blocking=False)
    predict._computing.release()


def test_a_fork_of_a_process_on_a_gpu_gets_one_line(predict, folder, monkeypatch):
    with forced_device():
        gpu.require_unforked()
        monkeypatch.setattr(gpu, "_users", {1})
        said = refusal_of(predict, folder / "0.png")
        assert "forked from one that computes on a GPU" in said and "get_context('spawn')" in said
        assert refusal_of(gpu.prepare, True, False, False) == said


def test_notes_about_the_weights_are_told_once_when_a_predictor_is_made(predict, folder, monkeypatch, capsys):
    def build(task, source):
        task.notices.append("note: its description is of another file")
        return predict.model, predict.load_report

    monkeypatch.setattr(predictor, "build_trained", build)
    made = Predictor(predict._source.weights)
    assert capsys.readouterr().out.splitlines().count("note: its description is of another file") == 1
    made(folder / "0.png")
    assert "description" not in capsys.readouterr().out


def test_a_server_keeps_a_bounded_number_of_lines_about_its_inputs(predict, monkeypatch, capsys):
    monkeypatch.setattr(predictor, "_MOST_TOLD", 2)
    monkeypatch.setattr(predict, "_told", set())
    for index in range(4):
        predict._tell([f"line {index}"] * 2)
    assert capsys.readouterr().out.splitlines() == ["line 0", "line 1"] and len(predict._told) == 2
