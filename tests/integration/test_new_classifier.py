"""A new classifier is one file and one row, written as CONTRIBUTING says, and then ``make reference``."""

import json
import re
import shutil
import sys
import textwrap

from support.processes import ROOT, run_command

# This copy alone: an editable install would serve the repository.
PROGRAM = """
import json, os, runpy, sys
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in getattr(finder, "__module__", "")]
sys.path.insert(0, os.getcwd())
runpy.run_path("tools/reference.py", run_name="__main__")
for name in [name for name in sys.modules if name.startswith("paddlevit_dist")]:
    del sys.modules[name]  # as in the next command

import paddle
from paddlevit_dist import UserError, create_model, list_models, load_weights
from paddlevit_dist.core.settings import load

data = load(["-dataset=folder", "MODEL.NAME", "all_conv_narrow"]).values.DATA
model = create_model("all_conv_narrow", num_classes=10)
theirs = {name.replace("body.", "features."): paddle.ones_like(value) for name, value in model.state_dict().items()}
paddle.save(theirs, "theirs.pdparams")
load_weights(model, "theirs.pdparams")
logits = model(paddle.ones([2, 3, 32, 32]))
logits.sum().backward()
try:
    create_model("all_conv_narow")
except UserError as error:
    refused = str(error)
print(json.dumps({
    "names": [name for name in list_models() if name.startswith("all_conv")], "refused": refused,
    "input": [data.IMAGE_SIZE, data.CROP_PCT], "logits": logits.tolist(),
    "learns": all(parameter.grad is not None for parameter in model.parameters()),
}))
"""


def read_block(start: str) -> str:
    """Return the block of CONTRIBUTING that begins like this."""
    blocks = re.findall(r"```text\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL)
    (block,) = [block for block in map(textwrap.dedent, blocks) if block.startswith(start)]
    return block


def test_a_new_classifier_is_listed_fed_built_and_loaded(tmp_path):
    package = tmp_path / "paddlevit_dist"
    shutil.copytree(ROOT / "paddlevit_dist", package)
    shutil.copytree(ROOT / "docs/reference", tmp_path / "docs/reference")
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    (package / "images/models/all_conv.py").write_text(read_block('"""AllConv'))
    manifest, families = package / "images/models/manifest.py", "    families=(\n"
    tables = manifest.read_text(encoding="utf-8")
    assert families in tables
    row = textwrap.indent(read_block('".all_conv'), " " * 8)
    manifest.write_text(tables.replace(families, families + row), encoding="utf-8")

    ended = run_command([sys.executable, "-c", PROGRAM], folder=tmp_path, is_copy=False, PYTHONPATH="")

    assert ended.code == 0, ended.err
    result = json.loads(ended.out.splitlines()[-1])
    assert result["names"] == ["all_conv", "all_conv_narrow"]
    assert "did you mean 'all_conv_narrow'" in result["refused"] and result["input"] == [32, 1.0]
    # Weights and biases of 1: 27 inputs and a bias, 9 x 48 of these and a bias, 48 of those and a bias.
    assert result["logits"] == [[48 * (432 * 28 + 1) + 1] * 10] * 2 and result["learns"]
