"""Who is contacted: the table of docs/guides/installation.md."""

import sys

from support.processes import ROOT, run_command
from support.trainings.runs import DIGITS, well

WATCH = """
import os, sys

def watch(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname"):
        found = arguments[0] if event.startswith("socket.get") else arguments[1]
        with open(os.environ["CONTACTS"], "a") as file:
            file.write(f"{found[0] if isinstance(found, tuple) else found}\\n")

sys.addaudithook(watch)
"""
ITSELF = {"127.0.0.1", "localhost", "::1"}


def test_no_command_contacts_anybody_but_its_own_processes(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(WATCH)
    contacts = tmp_path / "contacts"
    contacts.touch()

    def command(*words: str):
        program = ["env", sys.executable, "-m", "paddlevit_dist", *words]
        path = f"{tmp_path}:{ROOT}:{ROOT / 'tests'}"
        return run_command(program, folder=tmp_path, PYTHONPATH=path, CONTACTS=str(contacts))

    well(command("train", *DIGITS, "-ngpus=2", "-output=run", "REPORT", "true"))
    well(command("evaluate", "-cfg=run/config.yaml", "-pretrained=run", "-output=again"))
    well(command("report", "run"))
    well(command("convert", "run", "run.safetensors"))
    well(command("export", "run", "exported/run"))
    well(command("inspect", "vit_tiny_patch16_224"))
    assert command("doctor", "-cfg=run/config.yaml", "-output=looked").code in (0, 1)
    contacted = set(contacts.read_text().split())
    assert contacted and contacted <= ITSELF  # some: the ranks have met

    missing = command("train", *DIGITS, "-output=other", "-pretrained=http://weights.invalid/vit.safetensors")
    assert missing.code == 2
    assert set(contacts.read_text().split()) - ITSELF == {"weights.invalid"}
