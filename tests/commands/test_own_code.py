"""Modules of a user: -import, what goes wrong with them, and what worker processes know."""

import os
import sys
from pathlib import Path

import pytest
import yaml
from support.processes import ROOT, run_command
from support.runs import last_line, refusal, well

ENTRY = [sys.executable, "-m", "paddlevit_dist"]

STRIPES = """
from PIL import Image
import numpy as np
from paddlevit_dist import Key, register_dataset
from paddlevit_dist.images.data.image_dataset import ImageDataset
from .sizes import SIZE

class Stripes(ImageDataset):
    class_names = ["lying", "standing"]
    num_classes = 2
    keys = [Key("DATA.STRIPES.WIDTH", 2, "int", "pixels between stripes")]

    def __init__(self, width, split):
        self.width, self.size = width, {"train": 32, "val": 8}[split]

    @classmethod
    def open(cls, config, split, cache_folder):
        return cls(config.DATA.STRIPES.WIDTH, split)

    def __len__(self):
        return self.size

    def read(self, index):
        pixels = np.zeros((SIZE, SIZE, 3), np.uint8)
        pixels[:: self.width] = 255
        return Image.fromarray(pixels.swapaxes(0, 1) if index % 2 else pixels), index % 2

    def describe(self, index):
        return f"stripes {index}"
"""
MODEL = """
import paddle
from paddlevit_dist import register_model
from paddlevit_dist.tasks.model import Model

class Small(Model):
    def __init__(self, num_classes=2, image_size=16, in_channels=3):
        super().__init__()
        self.head = paddle.nn.Linear(in_channels * image_size * image_size, num_classes)

    def forward(self, images):
        return self.head(images.flatten(1))
"""
WORDS = ["-dataset=stripes", "MODEL.NAME=small", "-image_size=16", "-batch_size=8", "-epochs=1", "-num_workers=1"]


@pytest.fixture
def project(tmp_path) -> Path:
    """A package of a user with a dataset, beside a file with a model."""
    package = tmp_path / "my_project"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "sizes.py").write_text("SIZE = 16\n")
    (package / "data.py").write_text(STRIPES + '\nregister_dataset("stripes", Stripes)\n')
    (tmp_path / "my_model.py").write_text(MODEL + '\nregister_model("small", Small)\n')
    return tmp_path


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
            "command line: DATA.STRIPES.WIDTH is read by dataset stripes, not by classification: leave it out",
        ),
    ],
)
def test_mistakes_are_one_line(project, words, message):
    (project / "time.py").touch()
    (project / "other_model.py").write_text((project / "my_model.py").read_text())

    said = refusal(run_command([*ENTRY, "train", *words.split()], timeout=60, folder=project))

    assert said.startswith(message.format(project))


def test_an_exception_of_the_module_shows_where_it_was_raised_after_one_line(project):
    (project / "broken.py").write_text("import missing_library\n")

    ended = run_command([*ENTRY, "inspect", "vit", "-import=broken.py"], timeout=60, folder=project)

    first, *lines = ended.err.splitlines()
    assert ended.code == 2
    assert first == (
        "error: -import=broken.py raises ModuleNotFoundError when it is imported: No module named 'missing_library'"
    )
    assert lines[0].startswith("Traceback") and f'File "{project}/broken.py", line 1, in <module>' in lines[1]
    assert lines[-1] == "ModuleNotFoundError: No module named 'missing_library'" and len(lines) <= 5


@pytest.mark.long
def test_two_processes_use_a_users_dataset_model_and_keys_and_the_run_remembers_them(project):
    def command(*words: str):
        return run_command(["env", *ENTRY, *words], timeout=300, folder=project)  # new processes, not copies

    imports = ["-import=my_project/data.py", "-import", "my_model"]
    trained = well(command("train", *imports, *WORDS, "DATA.STRIPES.WIDTH=4", "-ngpus=2", "-output=run"))
    assert last_line(trained).startswith("top-1 ")

    settings = yaml.safe_load((project / "run" / "config.yaml").read_text())
    assert settings["IMPORTS"] == ["my_project/data.py", "my_model"] and settings["DATA"]["STRIPES"] == {"WIDTH": 4}
    again = command("train", "-cfg=run/config.yaml", "-show_config", "-output=again")
    assert again.code == 0 and "note: my_model is imported, as IMPORTS of run/config.yaml" in again.err
    assert "WIDTH: 4" in again.out and "IMPORTS: [my_project/data.py, my_model]" in again.out
    said = refusal(command("export", "run", "exported"))  # weights do not say what code is run
    assert said == (
        "MODEL.NAME 'small' is not known: these weights were trained with code of yours: add "
        "-import=my_project/data.py -import=my_model"
    )


GUARDED = """
import multiprocessing
import sys
from paddlevit_dist import UserError, register_model
from paddlevit_dist.launch.spawn import Payload
from paddlevit_dist.registry import resolve

class Outside:
    pass

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
    class Inside:
        pass

    register_model("outside", Outside)
    register_model("inside", Inside)
    register_model("nameless", lambda name, **options: None)
    payload = Payload.pack(build, ("outside", "inside", "nameless"))
    process = multiprocessing.get_context("spawn").Process(target=work, args=(payload,))
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""


def test_what_a_program_registers_inside_its_guard_is_handed_over_or_explained(tmp_path):
    (tmp_path / "program.py").write_text(GUARDED)

    lines = well(run_command(["env", sys.executable, "program.py"], timeout=60, folder=tmp_path)).out.splitlines()

    explained = (
        'a worker process runs neither what a program has inside `if __name__ == "__main__"` nor the cells of a '
        "notebook: register it at the top level of a file, and name the file with IMPORTS=['my_things.py'] "
        "(-import=my_things.py)"
    )
    assert lines[0] == "Outside" and len(lines) == 3
    for line, name in zip(lines[1:], ("inside", "nameless")):
        assert line.startswith(f"model '{name}' is not known: ") and line.endswith(f"; {explained}")


def test_installed_packages_join_by_an_entry_point_and_a_broken_one_is_told(tmp_path):
    about = tmp_path / "acme-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[paddlevit_dist.plugins]\nacme = acme:join\nbroken = acme:nothing\n")
    (tmp_path / "acme.py").write_text(
        "from paddlevit_dist import register_model\ndef join():\n    register_model('acme_net', 'acme.net:Net')\n"
    )

    ended = run_command(
        ["env", *ENTRY, "inspect", "--list", "acme"], timeout=60, PYTHONPATH=os.pathsep.join([str(ROOT), str(tmp_path)])
    )

    assert (ended.code, ended.out.split()) == (0, ["acme_net", "acme.net"])
    assert ended.err.startswith("note: the plugin broken (acme:nothing) cannot be loaded: AttributeError: ")
    assert len(ended.err.splitlines()) == 1


@pytest.mark.long
def test_a_program_that_starts_a_run_outside_its_guard_is_told_so(tmp_path):
    words = ["-cfg=vit_digits", "-ngpus=2", "-epochs=1", "-output=run"]
    (tmp_path / "program.py").write_text(f"from paddlevit_dist.commands import train\ntrain.run({words})\n")

    ended = run_command(["env", sys.executable, "program.py"], timeout=120, folder=tmp_path)

    start = "error: program.py starts a run outside `if __name__"
    assert ended.code == 1 and any(line.startswith(start) for line in ended.err.splitlines())
    assert "is in use by" not in ended.err
