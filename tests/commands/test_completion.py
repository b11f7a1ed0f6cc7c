"""What a shell completes after Tab, and what an editor makes of the schema of the keys."""

import contextlib
import json
import re
import shlex
import subprocess

import pytest
import yaml
from jsonschema import Draft7Validator
from support.processes import ROOT

from paddlevit_dist.commands import completion, schema
from paddlevit_dist.config import default_config, dump_yaml

# As readline calls the function of a command; it divides words at "=".
ASK = """
source ./script
COMP_WORDS=({words}) COMP_CWORD={place}
_paddlevit_dist
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


class Yaml12(yaml.SafeLoader):
    """As editors read numbers: 1e-3 is one."""


Yaml12.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    file = tmp_path_factory.mktemp("completion") / "script"
    with open(file, "w", encoding="utf-8") as printed, contextlib.redirect_stdout(printed):
        completion.run(["bash"])
    (file.parent / "weights.pdparams").touch()
    return file


def completed(script, line):
    words = line.replace("=", " = ").rstrip().split(" ")
    ask = ASK.format(words=shlex.join(words), place=len(words) - 1)
    ended = subprocess.run(["bash", "-c", ask], cwd=script.parent, stdout=subprocess.PIPE, text=True, timeout=30)
    return ended.stdout.split()


@pytest.mark.parametrize(
    "line, expected",
    [
        ("paddlevit-dist tr", ["train"]),
        ("paddlevit-dist inspect rec", ["recipes"]),
        ("paddlevit-dist inspect vit_tiny_patch16_3", ["vit_tiny_patch16_384"]),
        ("paddlevit-dist prepare images -sto", ["-store"]),
        ("paddlevit-dist prepare images -store=p", ["pages"]),
        ("paddlevit-dist train -accum", ["-accum_iter"]),
        ("paddlevit-dist train -cfg=vit_dig", ["vit_digits"]),
        ("paddlevit-dist train -cfg vit_dig", ["vit_digits"]),
        ("paddlevit-dist train -cfg=vit_digits -dataset=coc", ["coco", "coco_panoptic", "coco_stuff"]),
        ("paddlevit-dist train -cfg=vit_digits TRAIN.BASE_L", ["TRAIN.BASE_LR"]),
        ("paddlevit-dist evaluate -cfg=vit_digits -pretrained=weig", ["weights.pdparams"]),
        ("paddlevit-dist predict weig", ["weights.pdparams"]),
    ],
)
def test_bash_completes(script, line, expected):
    assert completed(script, line) == expected


def test_every_recipe_is_offered_after_the_equals_sign(script):
    offered = completed(script, "paddlevit-dist train -cfg=")
    assert {file.stem for file in (ROOT / "configs").glob("*.yaml")} <= set(offered)


@pytest.fixture(scope="module")
def validator():
    document = json.loads(json.dumps(schema.schema()))
    Draft7Validator.check_schema(document)
    return Draft7Validator(document)


def test_every_recipe_and_the_file_of_a_run_follow_the_schema(validator):
    files = sorted((ROOT / "configs").rglob("*.yaml"))
    assert len(files) > 60
    texts = {file.name: file.read_text(encoding="utf-8") for file in files} | {"a run's": dump_yaml(default_config())}
    for name, text in texts.items():
        assert [f"{name}: {error.message[:200]}" for error in validator.iter_errors(yaml.load(text, Yaml12))] == []


@pytest.mark.parametrize(
    "text, where",
    [
        ("TRAIN: {BSE_LR: 1}", ["TRAIN"]),
        ("TRAIN: {BASE_LR: fast}", ["TRAIN", "BASE_LR"]),
        ("DATA: {BATCH_SIZE: 0}", ["DATA", "BATCH_SIZE"]),
        ("NGPUS: 0", ["NGPUS"]),
        ("TRAIN: {OPTIMIZER: {NAME: adamm}}", ["TRAIN", "OPTIMIZER", "NAME"]),
        ("TRAIN: {OPTIMIZER: {BETAS: [0.9]}}", ["TRAIN", "OPTIMIZER", "BETAS"]),
        ("TRAIN: 3", ["TRAIN"]),
    ],
)
def test_a_mistake_is_marked_where_it_is(validator, text, where):
    assert [list(error.path) for error in validator.iter_errors(yaml.load(text, Yaml12))] == [where]


def test_what_a_key_may_be_besides_its_kind_is_right(validator):
    text = (
        "NGPUS: -1\nMODEL: {RESUME: null, NUM_CLASSES: None}\nTRAIN: {OPTIMIZER: {BETAS: '(0.9, 0.95)'}}\nBASE: a.yaml"
    )
    assert list(validator.iter_errors(yaml.load(text, Yaml12))) == []
