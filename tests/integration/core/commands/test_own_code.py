"""Modules of a user: -import, what goes wrong with them, and what worker processes know."""

import json
import os
import sys

import pytest
from PIL import Image
from support.hosts.own_modules import ENTRY
from support.processes import ROOT, run_command
from support.trainings.runs import refusal, well


@pytest.mark.parametrize(
    "words, message",
    [
        (
            "-import=my_projekt.data",
            "-import=my_projekt.data: there is no module my_projekt in {}, nor is one installed: did you mean "
            "my_project?",
        ),
        (
            "-import=my_project.date",
            "-import=my_project.date: there is no module my_project.date in {}, nor is one installed",
        ),
        ("-import=my_modle.py", "-import my_modle.py: there is no file {}/my_modle.py: did you mean my_model.py?"),
        ("-import=time", "-import=time: {}/time.py has the name of a module that is in use, "),
        ("-import=", "-import needs a value: a module, my_project.things, or a file, my_things.py"),
        (
            "-import=my_model -import=other_model",
            "-import=other_model: other_model.py:14: model 'small' is registered twice (my_model.py:14): choose "
            "another name, or replace=True",
        ),
        (
            "-import=my_project/data.py DATA.STRIPES.WIDTH=wide -cfg=vit_digits",
            "command line: DATA.STRIPES.WIDTH is 'wide': expected a whole number",
        ),
        (
            "-import=my_project.data DATA.STRIPES.WIDTH=3 -cfg=vit_digits",
            "command line: DATA.STRIPES.WIDTH is read by dataset stripes, not by classification: remove it",
        ),
    ],
)
def test_mistakes_are_one_line(project, words, message):
    (project / "time.py").touch()
    (project / "other_model.py").write_text((project / "my_model.py").read_text())

    said = refusal(run_command([*ENTRY, "train", *words.split()], folder=project))

    assert said.startswith(message.format(project))


def test_an_exception_of_the_module_shows_where_it_was_raised_above_one_line(project):
    (project / "broken.py").write_text("import missing_library\n")

    ended = run_command([*ENTRY, "inspect", "vit", "-import=broken.py"], folder=project)

    *lines, last = ended.err.splitlines()
    assert ended.code == 2
    assert last == (
        "error: -import=broken.py raises ModuleNotFoundError when it is imported: No module named 'missing_library'"
    )
    assert lines[0].startswith("Traceback") and f'File "{project}/broken.py", line 1, in <module>' in lines[1]
    assert lines[-1] == "ModuleNotFoundError: No module named 'missing_library'" and len(lines) <= 5


GUARDED = """
import multiprocessing
import sys
from paddlevit_dist import UserError, register_model
from paddlevit_dist.core.launch.spawn import WorkerPayload
from paddlevit_dist.core.registry import resolve
from paddlevit_dist.core.tasks import Model

class Outside(Model):
    def forward(self): ...

def build(name):
    print(resolve("model", name).__name__)

def work(payload):
    worker, arguments = payload.unpack()
    for name in arguments:
        try:
            worker(name)
        except UserError as error:
            print(error)

if __name__ == "__main__":
    class Inside(Model):
        def forward(self): ...

    register_model("outside", Outside)
    register_model("inside", Inside)
    payload = WorkerPayload.pack(build, ("outside", "inside"))
    process = multiprocessing.get_context("spawn").Process(target=work, args=(payload,))
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""


def test_what_a_program_registers_inside_its_guard_is_handed_over_or_explained(tmp_path):
    (tmp_path / "program.py").write_text(GUARDED)

    lines = well(run_command(["env", sys.executable, "program.py"], folder=tmp_path)).out.splitlines()

    explained = (
        'a worker process runs neither the code inside `if __name__ == "__main__"` nor the cells of a '
        "notebook: register it at the top level of a file, and name the file with IMPORTS=['my_things.py'] "
        "(-import=my_things.py)"
    )
    assert lines[0] == "Outside" and len(lines) == 2
    assert lines[1].startswith("model 'inside' is not known: ") and lines[1].endswith(f"; {explained}")


def install_acme(folder, *points):
    """Write what pip knows of a package with these entry points; return the path of both packages."""
    about = folder / "acme-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("\n".join(["[paddlevit_dist.plugins]", *points]))
    return os.pathsep.join([str(ROOT), str(folder)])


def test_installed_packages_join_by_an_entry_point_and_a_broken_one_is_told(tmp_path):
    path = install_acme(tmp_path, "acme = acme:join", "broken = acme:nothing")
    (tmp_path / "acme.py").write_text(
        "from paddlevit_dist import register_model\ndef join():\n    register_model('acme_net', 'acme.net:Net')\n"
    )

    ended = run_command(["env", *ENTRY, "inspect", "--list", "acme"], PYTHONPATH=path)

    assert (ended.code, ended.out.split()) == (0, ["acme_net", "acme.net"])
    assert ended.err.startswith("note: the plugin broken (acme:nothing) cannot be loaded: AttributeError: ")
    assert len(ended.err.splitlines()) == 1


FEATURE = """
from paddlevit_dist import Key, Manifest

MANIFEST = Manifest(
    "acme",
    models={"acme_net": ".networks:Net"},
    commands={"acme hello": (".work:hello", "greet")},
    key_tables=([Key("ACME_NOTE", None, "text", "file that each rank writes", optional=True)],),
    hooks={"ACME_NOTE": ".work:NoteHook"},
)
"""
WORK = """
from pathlib import Path

from paddlevit_dist.core.engine.hooks import Hook


def hello(words):
    print("hello", *words)


class NoteHook(Hook):
    def __init__(self, run):
        self.run = run

    def after_epoch(self, *_):
        from paddlevit_dist import rank

        Path(f"{self.run.config.ACME_NOTE}{rank()}").write_text("noted")
"""


def test_a_manifest_of_an_installed_package_brings_commands_keys_and_hooks_to_all_ranks(tmp_path):
    path = install_acme(tmp_path, "acme = acme:MANIFEST")
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme/__init__.py").write_text(FEATURE)
    (tmp_path / "acme/work.py").write_text(WORK)

    ended = run_command(["env", *ENTRY, "acme", "hello", "there"], PYTHONPATH=path)
    assert (ended.code, ended.out, ended.err) == (0, "hello there\n", "")

    words = f"train -cfg=vit_digits -ngpus=2 -num_workers=0 -epochs=1 -batch_size=300 -output={tmp_path / 'run'}"
    small = "MODEL.EMBED_DIM 32 MODEL.DEPTH 1 MODEL.NUM_HEADS 2 TRAIN.WARMUP_EPOCHS 0"
    ended = run_command(
        ["env", *ENTRY, *words.split(), *small.split(), "ACME_NOTE", str(tmp_path / "note")], PYTHONPATH=path
    )
    assert ended.code == 0, ended.err
    assert sorted(file.name for file in tmp_path.glob("note*")) == ["note0", "note1"]


MARGIN = """
from paddlevit_dist import register_task
from paddlevit_dist.images import Classification
from paddlevit_dist.images.classification.prediction import ImageClassPrediction


class MarginPrediction(ImageClassPrediction):
    opened = 0

    def open_inputs(self, inputs, cache_folder):
        self.opened += len(inputs)  # in the first process; workers get it with the task
        return super().open_inputs(inputs, cache_folder)

    def prediction_rows(self, prediction):
        second, first = sorted(prediction)[-2:]
        (row,) = super().prediction_rows(prediction)
        return [{**row, "margin": float(first - second), "opened": self.opened}]


class MarginTask(Classification):
    aspects = {"Predictable": MarginPrediction}


register_task("margin", MarginTask)
"""


def test_an_aspect_of_a_users_task_predicts_in_all_processes_and_the_others_are_inherited(tmp_path):
    (tmp_path / "margin.py").write_text(MARGIN)
    for number in range(3):
        Image.new("L", (28, 28), 60 * number).save(tmp_path / f"{number}.png")
    words = "train -import=margin.py -cfg=vit_digits -ngpus=1 -num_workers=0 -epochs=1 -batch_size=300 -output=run"
    small = "TASK margin MODEL.EMBED_DIM 32 MODEL.DEPTH 1 MODEL.NUM_HEADS 2 TRAIN.WARMUP_EPOCHS 0"
    well(run_command([*ENTRY, *words.split(), *small.split()], folder=tmp_path))

    words = "predict -import=margin.py run 0.png 1.png 2.png -ngpus=2 -num_workers=0 -output=out"
    well(run_command([*ENTRY, *words.split()], folder=tmp_path))

    rows = [json.loads(line) for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()]
    for row in rows:
        assert row["opened"] == 3 and row["margin"] == pytest.approx(row["score"] - row["score_2"], abs=1e-6)
    assert len(rows) == 3
    well(run_command([*ENTRY, *"export -import=margin.py run exported".split()], folder=tmp_path))
    assert list(tmp_path.glob("exported*"))


REGRESSION = """
from pathlib import Path
import numpy as np
from paddle import nn
from paddlevit_dist import Manifest, register_dataset, register_feature, register_model, register_task
from paddlevit_dist.core.tasks import (
    Dataset, Exportable, ExportParts, InputSamples, LossTerm, Metrics, Model, Predictable, Task, TaskTraits,
    TransformedDataset,
)

class Noise(Dataset):
    def __init__(self, data_path, split, cache_folder):
        self.split = split

    def describe(self, index):
        return f"{self.split} {index}"

    def __len__(self):
        return 8

class Samples(TransformedDataset):
    def __init__(self, dataset):
        self.dataset = dataset

    def sample(self, index, generator):
        pixels = np.random.default_rng(index).random((2, 3), np.float32)
        return pixels, pixels.sum()

class Files(InputSamples):
    def __init__(self, names):
        self.names = names

    def sample(self, index, generator):
        return np.load(self.names[index]), 0

class Net(Model):
    def __init__(self, num_classes=1):
        super().__init__()
        self.head = nn.Linear(6, 1)

    def forward(self, pixels):
        return self.head(pixels.flatten(1)).squeeze(-1)

class Errors(Metrics):
    def __init__(self):
        super().__init__()
        self.state = {"error": 0.0}

    def compute(self, state):
        return state

    def summary(self, values):
        return f"error {values['error']:.4f}"

class Sums(Task, Predictable, Exportable):
    best_metric = ("error", False)
    traits = TaskTraits(normalizers_per_sample={"loss": 1})

    def build_dataset(self, split, cache_folder):
        return Samples(Noise.open(self.config, split, cache_folder))

    def build_model(self, num_classes=None):
        return Net()

    def collate(self, samples):
        pixels, sums = zip(*samples)
        return {"pixels": np.stack(pixels)[:, None], "sums": np.array(sums, "float32")}

    def train_step(self, model, batch, step):
        return {"loss": LossTerm(((model(batch["pixels"]) - batch["sums"]) ** 2).sum(), len(batch["sums"]))}

    def eval_step(self, model, batch, step):
        error = float((model(batch["pixels"]) - batch["sums"]).abs().sum())
        step.metrics.state["error"] += error

    def build_metrics(self):
        return Errors()

    def open_inputs(self, inputs, cache_folder):
        return Files(list(inputs))

    def predict_step(self, model, batch):
        return model(batch["pixels"]).tolist()

    def prediction_rows(self, prediction):
        return [{"sum": prediction}]

    def export_parts(self):
        return ExportParts(1, {"preprocessing": "none"}, (2, 3), output_names=("sum",), output_shape=())

def write(words):
    np.save(Path(*words), np.ones((2, 3), np.float32))

register_dataset("noise", Noise)
register_model("net", Net)
register_task("sums", Sums, tables=[])
register_feature(Manifest(commands={"write ones": (write, "write a file")}))
"""


def test_a_task_without_classes_predicts_and_is_exported_and_evaluated(tmp_path):
    (tmp_path / "sums.py").write_text(REGRESSION)
    (tmp_path / "sums.yaml").write_text(
        "IMPORTS: [sums.py]\nTASK: sums\nDATA: {DATASET: noise, BATCH_SIZE: 4}\nMODEL: {NAME: net}\n"
    )
    for words in (
        "train -cfg=sums.yaml -ngpus=1 -num_workers=0 -epochs=1 -output=run",
        "write ones ones.npy -import=sums.py",
        "predict run ones.npy -import=sums.py -num_workers=0 -output=out",
        "export run exported -import=sums.py",
    ):
        well(run_command([*ENTRY, *words.split()], folder=tmp_path))
    words = "evaluate exported -import=sums.py -num_workers=0 -output=scores"
    said = well(run_command([*ENTRY, *words.split()], folder=tmp_path)).out

    assert json.loads((tmp_path / "out" / "predictions.jsonl").read_text())["input"] == "ones.npy"
    assert "after the export: error +0" in said


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("prediction_rows = None", "MarginTask.prediction_rows is never called: it belongs to an aspect of Class"),
        ("aspects = {'Predictables': None}", "MarginTask.aspects: no command asks for Predictables: did you mean Pred"),
    ],
)
def test_what_no_command_asks_of_a_users_task_ends_a_run_before_its_first_step(tmp_path, lines, reason):
    head, _, tail = MARGIN.partition("aspects = {")
    (tmp_path / "margin.py").write_text(f"{head}{lines}{tail[tail.index('}') + 1 :]}")
    ended = run_command([*ENTRY, *"train -import=margin.py -cfg=vit_digits TASK margin".split()], folder=tmp_path)
    assert refusal(ended).startswith(reason) and not list(tmp_path.glob("output/**/metrics.jsonl"))


DRAWING = """
import os, random
import albumentations as A
import numpy as np
import paddle.nn.functional as F
from paddle import io, nn
from paddlevit_dist import register_task
from paddlevit_dist.core.distributed import rank
from paddlevit_dist.core.tasks import MeasuredTask

PICTURE = np.random.default_rng(0).integers(60, 200, (8, 8, 3), dtype=np.uint8)
SHIFT = A.Compose([A.RandomBrightnessContrast(brightness_limit=0.9, p=1.0)])

class Numbers(io.Dataset):
    def __init__(self, split):
        order = np.random.permutation(40)  # one order in both splits
        self.rows = order[:32] if split == "train" else order[32:]
        self.root, self.flip = "numbers", np.random.default_rng()

    def __len__(self):
        return len(self.rows)

    def describe(self, index):
        return f"numbers/{self.rows[index]}"

    def __getitem__(self, index):
        noise = [SHIFT(image=PICTURE)["image"].mean() / 255, np.random.normal(), random.random(), self.flip.normal()]
        return np.array(noise) + self.rows[index] / 40, self.rows[index] % 2

class Halves(MeasuredTask):
    def build_dataset(self, split, cache_folder):
        return Numbers(split)

    def build_model(self, num_classes=None):
        return nn.Linear(4, 2)

    def measure(self, model, batch):
        return {"loss": F.cross_entropy(model(batch["inputs"]), batch["targets"], reduction="none")}

    def train_step(self, model, batch, step):
        terms = super().train_step(model, batch, step)
        with open(f"{os.environ['NOTES']}_{rank()}", "a") as file:
            drawn = np.random.randint(10**6), random.randrange(10**6)
            print(step.update, *drawn, batch["inputs"].sum().item(), terms["loss"].sum.item(), file=file)
        return terms

register_task("halves", Halves, tables=[])
"""


def test_what_own_code_draws_repeats_in_two_processes_and_over_a_resume(tmp_path):
    pytest.importorskip("albumentations")
    (tmp_path / "halves.py").write_text(DRAWING)
    (tmp_path / "halves.yaml").write_text(
        "TASK: halves\nDATA: {BATCH_SIZE: 4}\nTRAIN: {NUM_EPOCHS: 2, BASE_LR: 0.05}\n"
    )
    for notes, words in (("whole", ""), ("parts", "-stop_after_epoch=1"), ("parts", "-resume=auto")):
        line = f"train -import=halves.py -cfg=halves.yaml -ngpus=2 -num_workers=2 -output={notes} {words}"
        said = well(run_command([*ENTRY, *line.split()], folder=tmp_path, NOTES=notes)).out
        assert "are also in train" not in said
    drawn = []
    for rank in (0, 1):
        whole, parts = ((tmp_path / f"{notes}_{rank}").read_text().splitlines() for notes in ("whole", "parts"))
        assert whole == parts and len(set(whole)) == 8
        drawn += [row.split(" ", 1)[1] for row in whole]
    assert len(set(drawn)) == 16
