"""Several processes with modules of a user."""

import sys

import yaml
from support.hosts.own_modules import ENTRY
from support.processes import run_command
from support.trainings.runs import last_line, refusal, well

WORDS = ["-dataset=stripes", "MODEL.NAME=small", "-image_size=16", "-batch_size=8", "-epochs=1", "-num_workers=1"]


def test_two_processes_use_a_users_dataset_model_and_keys_and_the_run_remembers_them(project):
    def command(*words: str):
        return run_command(["env", *ENTRY, *words], folder=project)  # new processes, not copies

    imports = ["-import=my_project/data.py", "-import", "my_model"]
    trained = well(command("train", *imports, *WORDS, "DATA.STRIPES.WIDTH=4", "-ngpus=2", "-output=run"))
    assert last_line(trained).startswith("top-1 ")

    settings = yaml.safe_load((project / "run" / "config.yaml").read_text())
    assert settings["IMPORTS"] == ["my_project/data.py", "my_model"] and settings["DATA"]["STRIPES"] == {"WIDTH": 4}
    again = command("train", "-cfg=run/config.yaml", "-show_config", "-output=again")
    assert again.code == 0 and again.err.count("note: importing my_model, as IMPORTS of run/config.yaml") == 1
    assert "WIDTH: 4" in again.out and "IMPORTS: [my_project/data.py, my_model]" in again.out
    said = refusal(command("export", "run", "exported"))  # weights do not say what code is run
    assert said == (
        "MODEL.NAME 'small' is not known: these weights were trained with your own code: add "
        "-import=my_project/data.py -import=my_model"
    )


def test_a_program_that_starts_a_run_outside_its_guard_is_told_so(tmp_path):
    words = ["-cfg=vit_digits", "-ngpus=2", "-epochs=1", "-output=run"]
    (tmp_path / "program.py").write_text(f"from paddlevit_dist.core.commands import train\ntrain.run({words})\n")

    ended = run_command(["env", sys.executable, "program.py"], folder=tmp_path)

    start = "error: program.py starts a run outside `if __name__"
    assert ended.code == 1 and any(line.startswith(start) for line in ended.err.splitlines())
    assert "is in use by" not in ended.err
