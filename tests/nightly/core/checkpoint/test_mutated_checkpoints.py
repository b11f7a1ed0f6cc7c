"""Checkpoints with any damage: a good one is used, or one line says why not."""

from integration.core.checkpoint.test_mutated_checkpoints import mutations_end_well, trained


def test_any_mutation_ends_in_a_good_checkpoint_or_in_one_line(tmp_path, capsys):
    mutations_end_well(trained(tmp_path / "run"), tmp_path, capsys, range(15, 250))
