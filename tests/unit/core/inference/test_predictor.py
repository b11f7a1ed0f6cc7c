"""Which tasks can predict, what is done with each input, and how a rank predicts its share."""

import contextlib
import copy
import csv
import json
import os
import pickle
import re
import signal
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from PIL import Image
from support.forced_device import forced_device
from support.processes import ROOT
from support.refusals import refusal_of
from support.trainings.trained import write_weights

from paddlevit_dist import Predictor, UserError
from paddlevit_dist.core.distributed import StopRequested
from paddlevit_dist.core.inference import rank_prediction, rows, trained
from paddlevit_dist.core.inference.ensemble import ModelEnsemble
from paddlevit_dist.core.inference.input_batches import PredictionDataset, predict_batch
from paddlevit_dist.core.inference.predictor import PredictedRow
from paddlevit_dist.core.inference.rank_prediction import predict_share
from paddlevit_dist.core.inference.trained import open_source, prepare_task
from paddlevit_dist.core.launch import status
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.runtime import signals
from paddlevit_dist.core.tasks import Ensembling, InputSamples, Task
from paddlevit_dist.core.tasks.prediction import PredictionRecord, PredictionWriter, pack_array
from paddlevit_dist.core.tasks.protocols import load_meta
from paddlevit_dist.core.tasks.sample_checks import BadSample
from paddlevit_dist.images.classification.task import Classification


def test_a_task_that_cannot_predict_is_refused_in_one_line(monkeypatch):
    monkeypatch.setitem(REGISTRY.tasks, "scoring_only", Task)
    source = SimpleNamespace(config=SimpleNamespace(TASK="scoring_only"), learned=None)
    with pytest.raises(UserError, match="^predict: task scoring_only cannot predict new inputs: .* Predictable"):
        prepare_task(source)


class BrokenFiles(InputSamples):
    names = ("a.png", "b.png", "c.png", "d.png")

    def sample(self, index, generator):
        if index == 1:
            raise UserError("b.png: torn")
        if index == 0:
            raise ValueError("no image")
        return np.array([index / (3 - index) if index < 3 else np.nan])


class Means(Task, Ensembling):
    """Predicts the mean of each input, and notes with what."""

    notices = ()

    def __init__(self, config=None):
        super().__init__(config)
        self.seen = []

    def collate(self, samples):
        return {"values": paddle.to_tensor(np.stack(samples))}

    def predict_step(self, model, batch):
        self.seen.append((model, sorted(batch)))
        return batch["values"].mean(axis=1).tolist()

    def predict_mean(self, members, batch):
        return [2 * value for value in self.predict_step(members, batch)]

    def open_inputs(self, inputs, cache_folder):
        return InputSamples()

    def prediction_rows(self, prediction):
        if prediction < 0:
            raise BadSample("is negative")
        return [{"mean": prediction, "row": row} for row in range(int(prediction))]

    def prediction_writer(self, folder, samples):
        return Files()


class Files(PredictionWriter):
    def write(self, index, prediction, truth=None):
        return {"file": f"{index}.txt"}

    def summarize(self, index, prediction, truth=None):
        return [index, prediction]


def test_the_reason_why_an_input_is_unreadable_does_not_repeat_its_name():
    dataset = PredictionDataset(Means(), BrokenFiles(), np.array([3, 0, 1, 2]))
    assert len(dataset) == 4 and dataset.describe(1) == "a.png"
    found = [dataset.sample(index, None) for index in range(4)]
    assert found[1:3] == [(0, None, "ValueError: no image"), (1, None, "torn")]
    assert found[0][:2] == (3, None) and "is nan; 1 of its 1 numbers are not finite" in found[0][2]
    assert found[3] == (2, np.array([2.0]), None)
    batch = dataset.collate(found)
    assert batch["values"].tolist() == [[2.0]] and batch["__indices__"] == [2]
    assert [index for index, _ in batch["__unread__"]] == [3, 0, 1] and batch["__unread__"][2] == (1, "torn")
    without = dataset.collate(found[1:3])
    assert without["__indices__"] == [] and "values" not in without and len(without["__unread__"]) == 2


class Sized(Means):
    def collate(self, samples):
        if min(map(len, samples)) == 0:
            raise UserError("has no numbers")
        return super().collate(samples)

    def predict_step(self, model, batch):
        if batch["values"].shape == [1, 3]:
            raise BadSample("three do not fit")
        return super().predict_step(model, batch)


def test_inputs_that_no_batch_can_hold_are_predicted_alone_or_listed():
    task = Sized()
    dataset = PredictionDataset(task, BrokenFiles(), np.arange(4))
    arrays = [np.full(2, 1.0), np.zeros(0), np.full(3, 2.0), np.full(4, 3.0)]
    found = predict_batch(task, None, dataset.collate([(i, each, None) for i, each in enumerate(arrays)]), Files())
    assert [(each.index, each.reason, each.summary) for each in found] == [
        (0, "", [0, 1.0]),
        (1, "has no numbers", None),
        (2, "three do not fit", None),
        (3, "", [3, 3.0]),
    ]
    assert task.seen == [(None, ["values"])] * 2
    assert predict_batch(task, None, dataset.collate([(1, arrays[1], None)]), Files()) == [
        PredictionRecord(1, None, "has no numbers")
    ]


class Chosen(Means):
    def predict_step(self, model, batch):
        if batch["values"].shape[1] == 3 or (batch["values"] > 5).any():
            raise BadSample(f"{list(batch['values'].shape)} does not fit")
        return super().predict_step(model, batch)


def test_inputs_of_a_batch_that_does_not_fit_the_network_are_listed_one_by_one():
    task = Chosen()
    dataset = PredictionDataset(task, BrokenFiles(), np.arange(4))
    for arrays, reasons in (
        ([np.ones(3)] * 3, ["[1, 3] does not fit"] * 3),
        ([np.full(2, 1.0), np.full(2, 6.0), np.full(2, 2.0)], ["", "[1, 2] does not fit", ""]),
    ):
        found = predict_batch(task, None, dataset.collate([(i, each, None) for i, each in enumerate(arrays)]), Files())
        assert [(each.index, each.reason) for each in found] == list(enumerate(reasons))
        means = [[i, float(each[0])] for i, each in enumerate(arrays) if not reasons[i]]
        assert [each.summary for each in found if not each.reason] == means


def make_batch(*means, unread=()):
    values = paddle.to_tensor(np.array(means)[:, None] + [-1.0, 1.0])
    return {"values": values, "__indices__": [4, 6, 7][: len(means)], "__unread__": list(unread)}


def test_each_input_of_a_batch_has_a_record_in_ascending_order():
    task, model = Means(), object()
    found = predict_batch(task, model, make_batch(2.0, -1.0, 1.0, unread=[(5, "torn"), (3, "empty")]), Files())
    rows_of_first = [{"mean": 2.0, "row": row, "file": "4.txt"} for row in range(2)]
    assert found == [
        PredictionRecord(3, None, "empty"),
        PredictionRecord(4, rows_of_first, summary=[4, 2.0]),
        PredictionRecord(5, None, "torn"),
        PredictionRecord(6, None, "is negative"),
        PredictionRecord(7, [{"mean": 1.0, "row": 0, "file": "7.txt"}], summary=[7, 1.0]),
    ]
    assert task.seen == [(model, ["values"])]
    ensemble = ModelEnsemble(iter([]), "cpu")
    assert predict_batch(task, ensemble, make_batch(1.0), Files())[0].summary == [4, 2.0]
    unread = {"__indices__": [], "__unread__": [(1, "torn")], "__nothing__": np.zeros(1)}
    assert predict_batch(task, model, unread, Files()) == [PredictionRecord(1, None, "torn")]
    assert len(task.seen) == 2


@pytest.mark.parametrize("outcomes", [[None, None], [None, [{"mean": 1.0}]]])
def test_files_are_told_of_only_if_an_input_has_any(tmp_path, monkeypatch, outcomes):
    monkeypatch.setattr(Files, "finish", lambda writer, entries: [f"{len(list(entries))} files"])
    rows.begin(tmp_path, {"inputs": 2}, restart=False)
    with contextlib.closing(rows.open_rank_writer(tmp_path, 0)) as out:
        out.add([PredictionRecord(index, own, "" if own else "torn") for index, own in enumerate(outcomes)])
    counts, lines = rank_prediction.finish_prediction(tmp_path, Means(), TwoFiles())
    number = sum(own is not None for own in outcomes)
    assert counts == (number, 2 - number) and lines == ["2 files"] * number


def test_unfinished_files_of_a_killed_process_are_removed_from_the_folders_of_the_writer(tmp_path, monkeypatch):
    monkeypatch.setattr(Files, "folders", ("data set", "none"))
    kept = ["data set/x/a.png", "data set/my.tmp", "other/a.png.12.0123abcd.tmp"]
    for name in [*kept, "data set/b.png.9.89abcdef.tmp", "data set/x/im 1.png.29358.29166c4f.tmp"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    rows.begin(tmp_path, {"inputs": 2}, restart=False)
    with contextlib.closing(rows.open_rank_writer(tmp_path, 0)) as out:
        out.add([PredictionRecord(index, [{"mean": 1.0}]) for index in range(2)])
    rank_prediction.finish_prediction(tmp_path, Means(), TwoFiles())
    files = [file for name in ("data set", "other") for file in (tmp_path / name).rglob("*") if file.is_file()]
    assert sorted(str(file.relative_to(tmp_path)) for file in files) == sorted(kept)


class TwoFiles(InputSamples):
    names, unreadable = ("a.png", "b.png"), ()


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return str(write_weights(tmp_path_factory.mktemp("classifier"), ["cat", "ant", "bee"]))


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Paths of seven images, of which the third is torn."""
    folder = tmp_path_factory.mktemp("images")
    for index in range(7):
        pixels = np.random.default_rng(index).integers(0, 256, (20, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.png")
    (folder / "2.png").write_bytes(b"torn")
    return [str(folder / f"{index}.png") for index in range(7)]


def test_ranks_predict_their_shares_and_all_inputs_have_a_row_or_a_reason(classifier, images, tmp_path, capsys, act_as):
    source = open_source(classifier, "predict")
    task = prepare_task(source)
    samples = trained.require_predictable(task).open_inputs(images, tmp_path)
    rows.begin(tmp_path, {"inputs": len(images)}, restart=False)
    for number, expected in ((0, [1, 2, 6]), (1, [4, 5])):
        act_as(number, 2)
        remaining = np.array([1, 2, 4, 5, 6])
        before = {entry.index for entry in rows.read_entries(tmp_path)}
        predict_share(task, [source], samples, remaining, tmp_path, batch_size=2, num_workers=0)
        assert [entry.index for entry in rows.read_entries(tmp_path) if entry.index not in before] == expected
    opened = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    assert not [path for path in opened if path.startswith(f"{tmp_path / rows.UNFINISHED}/")]
    assert capsys.readouterr().out.count(f"weights {classifier}: loaded") == 1
    act_as(0, 1)
    with pytest.raises(RuntimeError, match="5 of 7 inputs have a prediction or a reason"):
        rank_prediction.finish_prediction(tmp_path, task, samples)
    predict_share(task, [source], samples, np.array([0, 3]), tmp_path, num_workers=0)
    counts, lines = rank_prediction.finish_prediction(tmp_path, task, samples)
    assert counts == (6, 1) and lines[0].endswith(str(tmp_path / "pictures")) and not (tmp_path / "unfinished").exists()
    found = [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text().splitlines()]
    assert [row["input"] for row in found] == images[:2] + images[3:]
    alone = Predictor(classifier, batch_size=3)
    for row, expected in zip(found, alone(images), strict=True):
        scores = {name: pytest.approx(value, rel=1e-4) for name, value in expected.items() if name.startswith("score")}
        assert row == {**expected, **scores}
    ((path, reason),) = alone.unreadable
    with open(tmp_path / "unreadable.tsv", newline="") as file:
        assert list(csv.reader(file, "excel-tab"))[1:] == [[path, reason]] and path == images[2]


def test_one_input_is_not_a_list_and_images_in_memory_are_inputs(classifier, images):
    predict = Predictor(classifier, batch_size=2)
    single = predict(images[1])
    assert single == predict(Path(images[1])) == predict([Path(images[1])]) and len(single) == 1
    with Image.open(images[1]) as image:
        (row,) = predict(image)
        assert row["class"] == single[0]["class"] and predict.unreadable == []
        assert predict(np.asarray(image)) == [row]
    assert predict(os.path.dirname(images[0])) == predict(images) and len(predict.unreadable) == 1
    assert "nothing was predicted" in refusal_of(predict, [images[0] + ".gone"])
    assert predict.unreadable == [(images[0] + ".gone", "No such file or directory")]
    assert predict.class_names == ("cat", "ant", "bee") and not predict.model.training


def test_opening_predicts_an_image_of_which_no_trace_is_left(classifier, images, monkeypatch, capsys):
    sizes, compute = [], Classification.logits
    monkeypatch.setattr(
        Classification, "logits", lambda *given: sizes.append(len(given[2]["images"])) or compute(*given)
    )
    predict = Predictor(classifier)
    assert sizes == [1] and predict.unreadable == [] and capsys.readouterr().out == ""
    assert len(predict(images[:2])) == 2 and sizes == [1, 2]


def test_a_model_that_does_not_take_the_image_can_be_opened(classifier, images, monkeypatch):
    compute = Classification.logits

    def require_two(task, model, batch):
        if len(batch["images"]) != 2:
            raise UserError("expected two images")
        return compute(task, model, batch)

    monkeypatch.setattr(Classification, "logits", require_two)
    predict = Predictor(classifier)
    assert len(predict(images[:2])) == 2 and refusal_of(predict, images[:1]) == "expected two images"


def test_arrays_are_attributes_of_a_row_and_not_among_its_keys():
    made = []
    row = PredictedRow({"share": 0.5, "masks": "a class"}, {"masks": lambda: made.append(1) or np.ones(2)})
    assert dict(row) == json.loads(json.dumps(row)) == {"share": 0.5, "masks": "a class"} and made == []
    assert row.masks.tolist() == row.arrays["masks"].tolist() == [1, 1] and row["masks"] == "a class"
    assert len(made) == 2 and "masks" in dir(row)
    packed = PredictedRow({"input": "a"}, {"label_map": pack_array(np.eye(3, dtype=np.uint8))})
    for same in (packed, copy.deepcopy(packed), pickle.loads(pickle.dumps(packed))):
        assert same == {"input": "a"} and same["label_map"].tolist() == same.label_map.tolist() == np.eye(3).tolist()
        same.label_map[0] = 7  # of this copy alone
        assert "label_map" not in same and same.label_map[0].tolist() == [1, 0, 0]
    with pytest.raises(AttributeError, match="no masks; its arrays: label_map"):
        _ = packed.masks
    with pytest.raises(KeyError, match="masks"):
        _ = packed["masks"]


def test_the_page_lists_the_arrays_of_the_docstring():
    page = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    of_page, of_help = (re.findall(r"^ *(\|.*\|)$", text, re.M) for text in (page, Predictor.__doc__))
    assert [row.replace("``", "`") for row in of_help] == of_page and len(of_page) > 5


def test_what_is_odd_in_inputs_is_told_once(classifier, tmp_path, capsys):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (20, 10)).save(tmp_path / "turned.jpg", exif=exif)
    predict = Predictor(classifier, **{"DATA.EXIF_ROTATE": False})
    capsys.readouterr()
    for _ in range(2):
        predict(tmp_path / "turned.jpg")
    (line,) = capsys.readouterr().out.splitlines()
    assert "DATA.EXIF_ROTATE is false" in line and line.endswith("turned.jpg")
    Predictor(classifier, allow_changes=True, **{"DATA.EXIF_ROTATE": True})(tmp_path / "turned.jpg")
    assert "to be turned" not in capsys.readouterr().out


def test_inputs_that_cannot_be_read_are_told_and_without_any_other_refused(classifier, images, tmp_path, capsys):
    predict, gone = Predictor(classifier), str(tmp_path / "gone.png")
    reason = f"{gone}: No such file or directory"
    for inputs, number in ((gone, 1), ([gone, str(tmp_path / "b.png")], 2)):
        said = f"predict: nothing was predicted: {number} could not be read; the first: {reason}"
        assert refusal_of(predict, inputs) == said
        assert len(predict.unreadable) == number
    assert predict([]) == [] and capsys.readouterr().out == ""
    assert len(predict([gone, images[0]])) == 1
    told = f"note: 1 could not be read, listed in Predictor.unreadable; the first: {reason}"
    assert told in capsys.readouterr().out.splitlines()


def test_options_of_a_predictor_take_the_place_of_those_of_its_weights(classifier, images, capsys):
    named = Predictor(Path(classifier), class_names=["x", "y", "z"], batch_size=4, **{"TRAIN.BASE_LR": 0.1})
    assert capsys.readouterr().out.startswith("TRAIN.BASE_LR 0.1 ") and named.class_names == ("x", "y", "z")
    for predictor_of_case, expected in ((named, [3, 3]), (Predictor(classifier), [6])):
        sizes = []
        predictor_of_case.model.register_forward_pre_hook(lambda _, given, sizes=sizes: sizes.append(len(given[0])))
        found = predictor_of_case(images)
        assert sizes == expected and {row["class"] for row in found} <= set(predictor_of_case.class_names)
    assert trained.default_batch_size(open_source(classifier, "predict", words=["-batch_size_eval=9"]).config) == 9


@pytest.fixture
def share(classifier, images, tmp_path):
    """Return a function that predicts a share of the images: ``share(remaining, *words, runs=1, note=None)``.

    It calls ``note`` with "building", or with the number of images that are about to be predicted.
    """

    class NotedClassification(Classification):
        note = staticmethod(lambda at: None)

        def build_model(self, num_classes=None):
            self.note("building")
            self.notices.append("of the model")
            return super().build_model(num_classes)

        def logits(self, model, batch):
            self.note(len(batch["images"]))
            return super().logits(model, batch)

    def predict(remaining, *words, runs=1, note=None, **options):
        sources = [open_source(classifier, "predict", words=words) for _ in range(runs)]
        task = NotedClassification(sources[0].config)
        task.note = note or task.note
        load_meta(task, sources[0].learned)
        task.notices.append("of the data")
        samples = trained.require_predictable(task).open_inputs(images, tmp_path)
        rows.begin(tmp_path, {"inputs": len(images)}, restart=True)
        predict_share(task, sources, samples, np.array(remaining, int), tmp_path, **{"num_workers": 0, **options})

    return predict


@pytest.mark.parametrize(
    "inputs, world_size, batch_size, expected",
    [
        (6, 1, 3, 2),
        (3, 1, 3, 0),
        (6, 2, 3, 0),
        (7, 2, 3, 2),
        (7, 1, 2, 4),
        (99, 2, 2, 8),
        (99, 8, 2, 7),
        (999, 9, 2, 6),
    ],
)
def test_loader_processes_suit_the_batches_and_cores_of_this_rank(
    machine, act_as, inputs, world_size, batch_size, expected
):
    machine.cores = 64
    act_as(0, world_size)
    assert rank_prediction.choose_workers(inputs, batch_size) == expected


def test_a_share_is_predicted_in_batches_and_told_by_the_main_process(share, act_as, simulated_time, tmp_path, capsys):
    seen = []

    def note(at):
        seen.append((at, status.get_status().text, "heartbeat" in {thread.name for thread in threading.enumerate()}))

    words = "EVAL_AMP=true", "-batch_size_eval=4"
    for rank, size, expected in ((0, 1, [3, 2]), (1, 2, [2])):
        act_as(rank, size)
        share([0, 1, 2, 3, 4, 6], *words, note=note)
        assert [at for at, *_ in seen] == ["building", *expected]
        assert [place for _, place, _ in seen][:2] == ["building the model", "predicting"]
        assert {beats for *_, beats in seen} == {rank == 0}
        told = capsys.readouterr().out.splitlines()
        if rank == 0:
            assert seen[2][1] == "predicting, 4 of 6 done"
            precision, *others = told[1:]
            assert "EVAL_AMP" in precision and others == ["of the model"]
        else:
            assert told == []
        seen.clear()
    share([0, 1, 3], *words, note=note, batch_size=2)
    assert [at for at, *_ in seen] == ["building", 1] and [entry.index for entry in rows.read_entries(tmp_path)] == [3]
    share([], note=note)
    assert len(seen) == 2


FLAGS = ("FLAGS_cudnn_exhaustive_search", "FLAGS_use_legacy_linear", "FLAGS_cudnn_deterministic")
VARIABLES = ("NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG")
IN_HALF = {"DETERMINISTIC": True, "TRAIN.TF32": False, "EVAL_AMP": True, "AMP_DTYPE": "bfloat16"}


@pytest.fixture
def on_gpu(other_paddle, own_environment):
    """As on a GPU: the flags that Paddle is given, and the type of each autocast."""
    given, casts = {}, []

    @contextlib.contextmanager
    def auto_cast(enable=True, dtype=None, **options):
        casts.extend([dtype] * enable)
        yield

    other_paddle({"base.core.globals": dict.fromkeys(FLAGS), "set_flags": given.update, "amp.auto_cast": auto_cast})
    for name in (*VARIABLES, FLAGS[0]):
        os.environ.pop(name, None)
    with forced_device():
        yield given, casts


@pytest.mark.parametrize("runs", [0, 1, 2])
@pytest.mark.parametrize(
    "keys, variables, flags",
    [
        ({"TRAIN.TF32": True}, {}, (True, True, None)),
        (IN_HALF, {"NVIDIA_TF32_OVERRIDE": "0", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}, (False, False, True)),
        ({**IN_HALF, "TRAIN.TF32": True, "DETERMINISTIC": False}, {}, (True, False, None)),
    ],
)
def test_a_gpu_computes_as_the_keys_say(classifier, images, share, on_gpu, runs, keys, variables, flags):
    given, casts = on_gpu
    if runs:
        share([0, 1], *(f"{name}={value}" for name, value in keys.items()), runs=runs)
    else:
        Predictor(classifier, **keys)  # predicts a gray image
    assert casts == ["bfloat16"] * (max(runs, 1) if "EVAL_AMP" in keys else 0)
    assert tuple(map(given.get, FLAGS)) == flags
    assert {name: os.environ[name] for name in VARIABLES if name in os.environ} == variables


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_code_ignored_ends_the_process_after_its_batch(share, own_handlers, number):
    predicted = []

    class Late:
        def __del__(self):  # an exception that a handler raises here is lost
            signal.raise_signal(number)

    def note(at):
        if at != "building":
            predicted.append(at)
            Late()

    with pytest.raises(signals.ProcessInterrupted) as stopped:
        share(range(7), note=note, batch_size=2)
    assert stopped.value.number == number and predicted == [2]


@pytest.mark.parametrize("number, expected", [(signal.SIGINT, signal.SIGINT), (None, signal.SIGTERM)])
def test_a_wait_for_data_that_a_signal_ends_ends_the_process(share, own_handlers, number, expected):
    def note(at):
        if at != "building":
            raise StopRequested

    signals.record_only()
    if number is not None:
        signal.raise_signal(number)
    with pytest.raises(signals.ProcessInterrupted) as stopped:
        share([0, 1], note=note)
    assert stopped.value.number == expected


def test_models_of_several_runs_are_built_with_their_own_tasks(classifier, tmp_path, capsys, act_as):
    other = str(write_weights(tmp_path / "other", ["cat", "ant", "bee"], seed=1))
    sources = [open_source(path, "predict") for path in (classifier, other)]
    task = prepare_task(sources[0])
    first, second = rank_prediction.build_models(task, sources)
    assert first.task is task and second.task.config is sources[1].config
    for member, path in ((first, classifier), (second, other)):
        for name, value in paddle.load(path).items():
            np.testing.assert_array_equal(
                member.model.state_dict()[name].numpy(), np.asarray(value), err_msg=name, strict=True
            )
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in said] == [f"weights {classifier}", f"weights {other}"]
    act_as(1, 2)
    assert not isinstance(rank_prediction.build_models(task, sources[1:]), ModelEnsemble)
    assert capsys.readouterr().out == ""
