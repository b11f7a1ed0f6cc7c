"""What the workflows of .github call exists here, and runs when the pages say so."""

import re

import pytest
import yaml
from support.processes import ROOT

WORKFLOWS = {path.stem: path for path in (ROOT / ".github" / "workflows").glob("*.yml")}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def read(name):
    """Read a workflow; YAML 1.1 takes its key "on" for true."""
    content = yaml.safe_load(WORKFLOWS[name].read_text(encoding="utf-8"))
    return content | {"on": content[True]}


def list_commands(content):
    return [step["run"] for job in content["jobs"].values() for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_calls_targets_and_scripts_that_exist(name):
    commands = "\n".join(list_commands(read(name)))
    assert set(re.findall(r"^make ([\w-]+)", commands, re.MULTILINE)) <= TARGETS
    scripts = re.findall(r"^(?:python|bash) ([\w./]+)", commands, re.MULTILINE)
    assert [script for script in scripts if not (ROOT / script).is_file()] == []


@pytest.mark.parametrize("name, command", [("nightly", "make test-nightly"), ("pairs", "make pairs")])
def test_what_takes_hours_runs_on_a_schedule(name, command):
    content = read(name)
    (time,) = content["on"]["schedule"]
    assert len(time["cron"].split()) == 5
    assert any(line.startswith(command) for line in list_commands(content))


def test_pairs_are_drawn_for_every_task():
    from support.pairs.features import TASKS

    assert read("pairs")["jobs"]["pairs"]["strategy"]["matrix"]["task"] == list(TASKS)


def test_a_tag_builds_tries_and_checks_before_anything_is_uploaded():
    content = read("release")
    assert content["on"]["push"] == {"tags": ["v*"]}
    jobs = content["jobs"]
    assert jobs["try"]["needs"] == jobs["check"]["needs"] == "build"
    assert jobs["try"]["strategy"]["matrix"]["file"] == ["*.whl", "*.tar.gz"]
    assert set(jobs["publish"]["needs"]) == {"try", "check"}
    (upload,) = (step for step in jobs["publish"]["steps"] if "twine upload" in step.get("run", ""))
    assert upload["if"] == "env.TWINE_PASSWORD != ''"
    assert jobs["publish"]["env"]["TWINE_PASSWORD"] == "${{ secrets.REGISTRY_TOKEN }}"
