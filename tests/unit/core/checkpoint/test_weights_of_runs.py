"""Which file of a run has the weights that its scores are of."""

import paddle
import pytest

from paddlevit_dist import load_weights
from paddlevit_dist.core.checkpoint.weight_files import evaluated_weights


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run whose best epoch is not its last, as ``run`` in the working directory; nothing reads its empty files."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "run" / "checkpoints"
    for epoch in (1, 2):
        (folder / f"epoch_{epoch:04d}").mkdir(parents=True)
        (folder / f"epoch_{epoch:04d}" / "model.pdparams").touch()
    (folder / "best").symlink_to("epoch_0001")
    (folder / "last").symlink_to("epoch_0002")
    return folder


@pytest.mark.parametrize("source, link", [("run", "best"), ("./run", "best"), ("run/checkpoints/last", "last")])
def test_scores_are_of_the_average_where_there_is_one(run, source, link):
    found = evaluated_weights(source)
    assert found == (f"run/checkpoints/{link}" if link == "best" else source)
    (run / link / "model_ema.pdparams").touch()
    assert evaluated_weights(source) == f"run/checkpoints/{link}/model_ema.pdparams"


@pytest.mark.parametrize("source", ["vit_tiny", "./vit_tiny", "run/checkpoints/best/model.pdparams", "https://a.org/b"])
def test_other_weights_keep_their_spelling(run, source):
    (run / "best" / "model_ema.pdparams").touch()
    assert evaluated_weights(source) == source


@pytest.mark.parametrize("place", ["run", "run/checkpoints/best", "run/checkpoints/best/model_ema.pdparams"])
def test_a_run_is_loaded_with_the_weights_that_were_scored(run, place):
    raw, averaged, model = (paddle.nn.Linear(2, 3) for _ in range(3))
    paddle.save(raw.state_dict(), f"{run}/best/model.pdparams")
    paddle.save(averaged.state_dict(), f"{run}/best/model_ema.pdparams")
    load_weights(model, place, strict=True)
    assert model.weight.numpy().tolist() == averaged.weight.numpy().tolist()
    load_weights(model, "run/checkpoints/best/model.pdparams", strict=True)
    assert model.weight.numpy().tolist() == raw.weight.numpy().tolist()
