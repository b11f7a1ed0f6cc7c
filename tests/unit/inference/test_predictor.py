"""Which tasks can predict, what is done with each input, and how a rank predicts its share."""

import contextlib
import csv
import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from PIL import Image
from support.trainings.trained import write_weights

from paddlevit_dist import Predictor, UserError, settings
from paddlevit_dist.distributed import StopRequested
from paddlevit_dist.inference import predictor, rows
from paddlevit_dist.inference.ensemble import ModelEnsemble
from paddlevit_dist.inference.predictor import PredictionDataset, predict_batch, predict_share, prepare_task
from paddlevit_dist.inference.trained import open_source
from paddlevit_dist.registry import lookup
from paddlevit_dist.runtime import signals
from paddlevit_dist.tasks import EnsembleMember, Ensembling, InputSamples, Task
from paddlevit_dist.tasks.prediction import PredictionRecord, PredictionWriter
from paddlevit_dist.tasks.sample_checks import BadSample


def test_a_task_that_cannot_predict_is_refused_in_one_line(monkeypatch):
    monkeypatch.setitem(lookup.TASKS, "scoring_only", Task)
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


def test_ranks_predict_their_shares_and_all_inputs_have_a_row_or_a_reason(
    classifier, images, tmp_path, monkeypatch, capsys, act_as
):
    source = open_source(classifier, "predict")
    task = prepare_task(source)
    samples = predictor.require_predictable(task).open_inputs(images, tmp_path)
    rows.begin(tmp_path, {"inputs": len(images)}, restart=False)
    checks = []
    monkeypatch.setattr(signals, "check", lambda: checks.append(1))
    for number, expected in ((0, [1, 2, 6]), (1, [4, 5])):
        act_as(number, 2)
        remaining = np.array([1, 2, 4, 5, 6])
        before = {entry.index for entry in rows.read_entries(tmp_path)}
        predict_share(task, [source], samples, remaining, tmp_path, batch_size=2, num_workers=0)
        assert [entry.index for entry in rows.read_entries(tmp_path) if entry.index not in before] == expected
    assert len(checks) == 3 and not [fd for fd in os.listdir("/proc/self/fd") if is_rows(fd)]
    assert capsys.readouterr().out.count(f"weights {classifier}: loaded") == 1
    act_as(0, 1)
    with pytest.raises(RuntimeError, match="5 of 7 inputs have a prediction or a reason"):
        predictor.finish_prediction(tmp_path, task, samples)
    predict_share(task, [source], samples, np.array([0, 3]), tmp_path, num_workers=0)
    counts, lines = predictor.finish_prediction(tmp_path, task, samples)
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


def is_rows(descriptor):
    return "/rows-" in os.path.realpath(f"/proc/self/fd/{descriptor}")


def test_one_input_is_not_a_list_and_images_in_memory_are_inputs(classifier, images):
    predict = Predictor(classifier, batch_size=2)
    single = predict(images[1])
    assert single == predict(Path(images[1])) == predict([Path(images[1])]) and len(single) == 1
    with Image.open(images[1]) as image:
        (row,) = predict(image)
        assert row["class"] == single[0]["class"] and predict.unreadable == []
        assert predict(np.asarray(image)) == [row]
    assert predict(os.path.dirname(images[0])) == predict(images) and len(predict.unreadable) == 1
    assert predict([images[0] + ".gone"]) == []
    assert predict.unreadable == [(images[0] + ".gone", "No such file or directory")]
    assert predict.class_names == ("cat", "ant", "bee") and not predict.model.training


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


def test_a_predictor_hands_its_options_on(classifier, monkeypatch):
    calls, prepared = [], []
    monkeypatch.setattr(predictor.gpu, "prepare", lambda *arguments: prepared.append(arguments))

    def note(*arguments, **options):
        calls.append((arguments, options))
        return open_source(*arguments, **options)

    monkeypatch.setattr(predictor, "open_source", note)
    made = Predictor(Path(classifier), class_names=["x", "y", "z"], batch_size=5, num_workers=3, DETERMINISTIC=True)
    words = ["DETERMINISTIC=True"]
    options = {"recipe": None, "class_names": ["x", "y", "z"], "words": words, "log": predictor.write_line}
    assert calls == [((classifier, "predict"), options)]
    assert made.class_names == ("x", "y", "z")
    assert prepared == [(made._source.config.TRAIN.TF32, True, made._task.traits.fixed_shapes, False)]
    built = []
    monkeypatch.setattr(predictor, "build_loader", lambda *given, **options: built.append((given, options)) or ())
    assert made(np.zeros((16, 16, 3), np.uint8)) == []
    (config, dataset, sampler, collate), options = built[0]
    assert config is made._source.config and collate == dataset.collate and options == {"num_workers": 3}
    assert (sampler.batch_size, sampler.local_rank, sampler.nranks) == (5, 0, 1)
    plain = Predictor(classifier)
    options = {"recipe": None, "class_names": None, "words": [], "log": predictor.silent}
    assert calls[1] == ((classifier, "predict"), options)
    plain(np.zeros((16, 16, 3), np.uint8))
    assert built[1][0][2].batch_size == plain._source.config.DATA.BATCH_SIZE and built[1][1] == {"num_workers": 0}
    assert predictor.default_batch_size(open_source(classifier, "predict", words=["-batch_size_eval=9"]).config) == 9


@pytest.fixture
def share(monkeypatch, tmp_path):
    """Predict a share without a model, and note what is called; the loader gives one batch."""
    calls, beats = [], []
    config = settings.load(["-eval", "-pretrained=w", "-batch_size_eval=3", "TRAIN.TF32=True"]).values
    task = Means()
    task.notices = ["of the data"]

    def build(task, sources):
        task.notices.append("of the model")
        return calls.append(("built", task, sources)) or model

    def load(dataset, config, batch_size, num_workers):
        calls.append(("loads", config, batch_size, num_workers, dataset.remaining.tolist()))
        yield dataset.collate([(3, np.array([2.0]), None), (1, None, "torn")])
        if stops:
            raise StopRequested

    class Precision:
        notice = "in half"

        def __init__(self, config):
            calls.append(("precision", config))

        @contextlib.contextmanager
        def patch_forward(self, model):
            calls.append(("patched", model))
            yield
            calls.append(("plain", model))

    def prepare(*arguments):
        calls.append(("prepared", *arguments))

    class Beat(contextlib.nullcontext):
        def __init__(self, log, shown):
            super().__init__()
            self.shown = shown

        def at(self, place):
            beats.append((place, self.shown))
            return self

    monkeypatch.setattr(predictor, "Heartbeat", Beat)
    monkeypatch.setattr(predictor, "build_models", build)
    monkeypatch.setattr(predictor, "build_prediction_loader", load)
    monkeypatch.setattr(predictor, "EvaluationPrecision", Precision)
    monkeypatch.setattr(predictor.gpu, "prepare", prepare)
    monkeypatch.setattr(predictor, "cpu_cores", lambda: 64)
    monkeypatch.setattr(predictor, "default_workers", lambda *given: calls.append(("cores", *given)) or 5)
    sources, model, stops = [SimpleNamespace(config=config, weights="w")], "model", []

    def predict(remaining, ensemble=None, stop=False, **options):
        nonlocal model
        model = "model" if ensemble is None else ensemble
        stops[:] = [1] * stop
        (tmp_path / "unfinished").mkdir(exist_ok=True)
        predict_share(task, sources, BrokenFiles(), np.array(remaining), tmp_path, **options)
        return calls, task, config

    predict.beats = beats
    return predict


@pytest.mark.parametrize(
    "inputs, world_size, options, expected",
    [
        (6, 1, {}, (3, 2)),
        (3, 1, {}, (3, 0)),
        (6, 2, {}, (3, 0)),
        (7, 2, {}, (3, 2)),
        (7, 1, {"batch_size": 2}, (2, 4)),
        (99, 2, {"batch_size": 2}, (2, 5)),
        (99, 1, {"num_workers": 0}, (3, 0)),
        (1, 1, {"num_workers": 9}, (3, 9)),
    ],
)
def test_loader_processes_suit_the_batches_of_this_rank(share, act_as, inputs, world_size, options, expected):
    act_as(0, world_size)
    calls, _, config = share(range(inputs), **options)
    assert [call[1:4] for call in calls if call[0] == "loads"] == [(config, *expected)]
    assert [call for call in calls if call[0] == "cores"] == [("cores", world_size, 64)] * (
        "num_workers" not in options and expected[1] > 0
    )


def test_a_share_is_prepared_told_and_predicted_in_the_precision_of_its_weights(share, act_as, tmp_path, capsys):
    calls, task, config = share([1, 3])
    assert [call[0] for call in calls] == ["prepared", "built", "precision", "patched", "loads", "plain"]
    assert calls[0][1:] == (True, config.DETERMINISTIC, task.traits.fixed_shapes, config.EVAL_AMP)
    assert calls[2] == ("precision", config) and calls[4][4] == [1, 3] and calls[3] == ("patched", "model")
    assert capsys.readouterr().out == "in half\nof the model\n"
    first, second = rows.read_entries(tmp_path)
    assert (first.index, first.reason, second.index, second.summary) == (1, "torn", 3, [3, 2.0])
    places = ["building the model", "predicting", "predicting, 2 of 2 done"]
    assert share.beats == [(place, True) for place in places] and share.beats.clear() is None
    act_as(1, 2)
    share([1, 3])
    assert capsys.readouterr().out == "" and calls.clear() is None
    assert share.beats == [(place, False) for place in places]
    share([])
    assert calls == []


def test_each_model_of_several_runs_in_the_precision_and_a_stop_ends_the_process(share, own_handlers):
    members = [EnsembleMember(None, SimpleNamespace(name=name)) for name in "ab"]
    ensemble = ModelEnsemble(iter(members), "cpu")
    calls, task, _ = share([1, 3], ensemble)
    assert [call for call in calls if call[0] in ("patched", "plain")] == [
        *(("patched", member.model) for member in members),
        *(("plain", member.model) for member in members[::-1]),
    ]
    assert task.seen[0][0] is ensemble
    signals.record_only()
    for requested, expected in (([], signal.SIGTERM), ([signal.SIGINT], signal.SIGINT)):
        for number in requested:
            signal.raise_signal(number)
        with pytest.raises(signals.ProcessInterrupted) as stopped:
            share([1, 3], stop=True)
        assert stopped.value.number == expected


def test_models_of_several_runs_are_built_with_their_own_tasks(classifier, tmp_path, capsys, act_as):
    other = str(write_weights(tmp_path / "other", ["cat", "ant", "bee"], seed=1))
    sources = [open_source(path, "predict") for path in (classifier, other)]
    task = prepare_task(sources[0])
    first, second = predictor.build_models(task, sources)
    assert first.task is task and second.task.config is sources[1].config
    for member, path in ((first, classifier), (second, other)):
        for name, value in paddle.load(path).items():
            np.testing.assert_array_equal(
                member.model.state_dict()[name].numpy(), np.asarray(value), err_msg=name, strict=True
            )
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in said] == [f"weights {classifier}", f"weights {other}"]
    act_as(1, 2)
    assert not isinstance(predictor.build_models(task, sources[1:]), ModelEnsemble)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("is_main, is_shown", [(True, False), (True, True), (False, False)])
def test_progress_is_told_every_ten_seconds_where_no_bar_is_shown(
    monkeypatch, capsys, act_as, simulated_time, is_main, is_shown
):
    bars, places, states = [], [], []
    simulated_time.now = 100.0

    class Bar:
        def __init__(self, *arguments):
            bars.append(arguments)
            self.is_shown = is_shown

        def step(self, number):
            bars.append(number)

        def close(self):
            bars.append("closed")

    class Beat:
        def __init__(self, log, shown):
            states.append((log, shown))

        def at(self, place):
            places.append(place)
            return self

        def __enter__(self):
            states.append("in")

        def __exit__(self, *error):
            states.append(error)

    monkeypatch.setattr(predictor, "ProgressBar", Bar)
    monkeypatch.setattr(predictor, "Heartbeat", Beat)
    act_as(int(not is_main), 2)
    with predictor.SharedProgress(4001) as progress:
        for seconds, inputs in ((104, 100), (110, 400), (115, 1), (125, 499), (140, 5000)):
            simulated_time.now = float(seconds)
            progress.count(inputs)
    expected = [
        "predicted 1,000 of 4,001, 100.0 a second, 30 s left",
        "predicted 2,000 of 4,001, 80.0 a second, 25 s left",
        "predicted 4,001 of 4,001, 100.0 a second, 0 s left",
    ]
    assert capsys.readouterr().out.splitlines() == (expected if is_main and not is_shown else [])
    assert bars == [(4001, "predicting", is_main), 200, 800, 2, 998, 2001, "closed"]
    assert states == [(predictor.write_line, is_main), "in", (None, None, None)]
    assert places == ["predicting", *(f"predicting, {n:,} of 4,001 done" for n in (200, 1000, 1002, 2000, 4001))]
