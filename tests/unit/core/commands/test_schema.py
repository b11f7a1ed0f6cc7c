"""What an editor makes of the schema of the keys."""

import contextlib
import io
import json
import re

import pytest
import yaml
from jsonschema import Draft7Validator
from support.processes import ROOT

from paddlevit_dist.core.commands import schema
from paddlevit_dist.core.settings import default_config, dump_yaml


class Yaml12(yaml.SafeLoader):
    """As editors read numbers: 1e-3 is one."""


Yaml12.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


@pytest.fixture(scope="module")
def validator():
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        schema.run([])
    document = json.loads(printed.getvalue())
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
        ("TRAIN: {OPTIMIZER: {BETAS: [0.9, 0.95, 0.99]}}", ["TRAIN", "OPTIMIZER", "BETAS"]),
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
