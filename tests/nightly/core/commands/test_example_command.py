"""The evaluation of the pages, of a ViT-Base."""

from integration.core.commands.example_evaluation import agree, type_example, write_case
from support.processes import ROOT


def test_the_example_evaluates_vit_base_as_computed_here(tmp_path):
    expected = write_case(tmp_path, 6)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    agree(type_example(tmp_path), expected)
    (tmp_path / "vit_base_patch16_224.pdparams").unlink()  # 346 MB
