"""The updates that the self-test runs are those of a run."""

from typing import ClassVar

from support.trainings import small_runs

from paddlevit_dist.extensions.debug import selftest
from paddlevit_dist.extensions.debug.selftest import compare_variants
from paddlevit_dist.images import Classification


class WatchedClassification(Classification):
    """Notes the epoch, the update and the number of updates of each step."""

    positions: ClassVar[list] = []  # of the class: steps are of a copy of the task

    def train_step(self, model, batch, step):
        self.positions.append((step.epoch, step.update, step.total_updates))
        return super().train_step(model, batch, step)


def test_updates_are_of_consecutive_epochs_and_their_sums_are_kept(tmp_path, capsys):
    words = ["-batch_size=4", "-accum_iter=2", "TRAIN.OPTIMIZER.NAME", "SGD", "TRAIN.WARMUP_EPOCHS", "0"]
    trainer = small_runs.build(str(tmp_path), *words, train_size=16, task_class=WatchedClassification)
    WatchedClassification.positions.clear()
    capsys.readouterr()
    selftest.run_variant(trainer.config, trainer.task, trainer.datasets["train"], str(tmp_path), 1)
    assert (
        WatchedClassification.positions == ([(1, 0, 3)] * 2 + [(1, 1, 3)] * 2 + [(2, 2, 3)] * 2) * 2
    )  # two updates in an epoch of 16 samples, also from weights with other last bits
    variant = selftest.read_variant(tmp_path)
    parameters = {name: parameter.shape for name, parameter in trainer.model.named_parameters()}
    shapes = {name: list(value.shape) for name, value in variant.values.items()}
    kinds = [(f"gradient of '{name}' in update 1", f"change of weight '{name}' after update 3") for name in parameters]
    assert all(shapes[gradient] == shapes[change] == parameters[n] for n, (gradient, change) in zip(parameters, kinds))
    assert [name for name in shapes if name.startswith("loss term")] == [
        f"loss term 'loss' of update {n}" for n in (1, 2, 3)
    ]
    assert variant.differing is None and not variant.has_batch_norm
    assert list(variant.rounding) == [difference.name for difference in compare_variants(variant, variant)]
    assert 0.0 < max(variant.rounding.values()) < 1e-3
    assert set(variant.sizes) == set(trainer.model.state_dict())
    assert capsys.readouterr().out == "" and not (tmp_path / "checkpoints").exists()
