"""The command that PaddleViT's users know, typed into a shell word for word, on an ImageNet-like folder."""

from integration.core.commands.example_evaluation import agree, type_example, write_case
from support.processes import ROOT


def test_the_example_evaluates_a_small_model_as_computed_here(tmp_path):
    """The recipe of that name is one of the same kind for a model with fewer channels."""
    expected = write_case(tmp_path, 20, embed_dim=32, depth=1, num_heads=2)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "vit_base_patch16_224.yaml").write_text(
        f"BASE: {ROOT / 'configs' / 'vit_base_patch16_224.yaml'}\nMODEL:\n  EMBED_DIM: 32\n  DEPTH: 1\n  NUM_HEADS: 2\n"
    )
    agree(type_example(tmp_path), expected)
