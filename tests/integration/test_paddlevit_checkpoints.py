"""A training run of PaddleViT's is continued with its epoch, moments and average."""

import numpy as np
import paddle
import pytest
from support.trainings.runs import read_events

import paddlevit_dist as pv
from paddlevit_dist.core.tasks.model_factory import create_model

SIZES = {"image_size": 16, "patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2, "mlp_ratio": 2.0}
KEYS = {"MODEL.PATCH_SIZE": 8, "MODEL.EMBED_DIM": 16, "MODEL.DEPTH": 1, "MODEL.NUM_HEADS": 2, "MODEL.NAME": "vit"}
KEYS |= {
    "TRAIN.BASE_LR": 1e-30,
    "TRAIN.WARMUP_START_LR": 0.0,
    "TRAIN.WARMUP_EPOCHS": 1,
    "TRAIN.MODEL_EMA": True,
    "TRAIN.MODEL_EMA_DECAY": 0.999999,
}
KEYS |= {"REPORT": False, "DATA.NUM_WORKERS": 0, "DATA.IMAGE_CHANNELS": 1, "TRAIN.WEIGHT_DECAY": 0.0}


@pytest.fixture
def checkpoint(tmp_path):
    model = create_model("vit", num_classes=10, in_channels=1, **SIZES)
    optimizer = paddle.optimizer.AdamW(1e-3, parameters=model.parameters())
    model(paddle.randn([4, 1, 16, 16])).square().sum().backward()
    optimizer.step()
    average = {name: value * 0 + 0.25 for name, value in model.state_dict().items()}
    content = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 2, "model_ema": average}
    paddle.save(content, str(tmp_path / "Epoch-2-Loss-1.5.pdparams"))
    return tmp_path / "Epoch-2-Loss-1.5.pdparams"


def test_the_run_goes_on_after_its_epoch(tmp_path, checkpoint, capfd):
    run = pv.train("vit_digits", epochs=3, output=tmp_path / "out", resume=checkpoint, batch_size=512, **KEYS)
    lines = read_events(tmp_path / "out")
    assert {line["epoch"] for line in lines if line["kind"] in ("training", "epoch")} == {3}
    assert f"resumed PaddleViT's {checkpoint} after epoch 2" in capfd.readouterr().out
    with np.load(f"{run.weights}/optimizer.npz") as kept:
        steps = np.log(kept["beta1_pow_acc/pos_embed"]) / np.log(0.9)
    assert steps.round(3) == 1 + 1 + 2  # Paddle's begins at the power 1, and one update was made before
    average = paddle.load(f"{run.weights}/model_ema.pdparams")
    np.testing.assert_allclose(average["pos_embed"].numpy(), 0.25, atol=1e-3)


def test_another_optimizers_state_is_refused(tmp_path, checkpoint):
    keys = {**KEYS, "TRAIN.OPTIMIZER.NAME": "SGD"}
    with pytest.raises(pv.UserError, match="saved optimizer state does not fit.*use the TRAIN.OPTIMIZER"):
        pv.train("vit_digits", epochs=3, output=tmp_path / "out", resume=checkpoint, batch_size=512, **keys)
