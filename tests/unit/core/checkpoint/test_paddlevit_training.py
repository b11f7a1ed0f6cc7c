"""Training checkpoints as PaddleViT's programs write them."""

import numpy as np
import paddle
import pytest
from support.processes import ROOT

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.load import rename_for
from paddlevit_dist.core.checkpoint.paddlevit_training import read_training
from paddlevit_dist.core.engine.optimizer import OptimizerState
from paddlevit_dist.core.tasks.model_factory import create_model

SIZES = {"num_classes": 4, "image_size": 16, "patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2}
THEIRS = (
    ("pos_embed", "position_embedding"),
    ("patch_embed.proj", "patch_embedding.patch_embedding"),
    ("attn.proj", "attn.out"),
    ("norm1", "attn_norm"),
    ("norm2", "mlp_norm"),
    ("blocks", "encoder.layers"),
    ("head", "classifier"),
)


def their_name(name: str) -> str:
    for ours, theirs in THEIRS:
        name = name.replace(ours, theirs)
    return f"encoder.encoder_{name}" if name.startswith("norm.") else name


def trained():
    model = create_model("deit_tiny_patch16_224", **SIZES)
    optimizer = paddle.optimizer.AdamW(1e-3, parameters=model.parameters())
    for _ in range(2):
        model(paddle.randn([2, 3, 16, 16])).square().sum().backward()
        optimizer.step()
        optimizer.clear_grad()
    return model, optimizer


def write(path, model, optimizer, **others):
    state = {their_name(name): tensor for name, tensor in model.state_dict().items()}
    paddle.save({"model": state, "optimizer": optimizer.state_dict(), **others}, str(path))
    return path


def test_moments_come_under_the_models_names(tmp_path):
    model, optimizer = trained()
    file = write(tmp_path / "x.pdparams", model, optimizer, epoch=2, model_ema={"cls_token": model.cls_token})
    found = read_training(file)
    assert found.epoch == 2 and found.average is not None and found.scaler == {}
    of_paddle = [found.weights, found.average, *found.accumulators.values()]
    assert len(of_paddle) == 6 and {(each.name, each.in_paddle_layout) for each in of_paddle} == {(str(file), True)}
    kept = {
        f"{kind}/{name}": value
        for kind, weights in found.accumulators.items()
        for name, value in rename_for(model, weights).items()
    }
    expected = OptimizerState(optimizer, model).state_dict()
    assert set(kept) == set(expected) and len(kept) == 4 * len(list(model.parameters()))
    for name, value in expected.items():
        np.testing.assert_array_equal(kept[name], value)
    np.testing.assert_array_equal(rename_for(model, found.weights)["pos_embed"], model.pos_embed.numpy())


def test_weights_alone_are_no_training(tmp_path):
    model, _ = trained()
    paddle.save(model.state_dict(), str(tmp_path / "x.pdparams"))
    assert read_training(tmp_path / "x.pdparams") is None
    (tmp_path / "x.tar").write_bytes(
        (ROOT / "tests" / "support" / "files" / "weights_of_torch" / "zip.pth").read_bytes()
    )
    assert read_training(tmp_path / "x.tar") is None


def test_a_model_or_an_optimizer_that_is_no_mapping_is_no_training(tmp_path):
    model, optimizer = trained()
    for part in ("model", "optimizer"):
        content = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 1, part: 5}
        for saved in (content, [content]):
            paddle.save(saved, str(tmp_path / "x.pdparams"))
            assert read_training(tmp_path / "x.pdparams") is None


def test_what_is_neither_a_weight_nor_a_moment_is_left_out(tmp_path):
    model, optimizer = trained()
    moments = {**optimizer.state_dict(), "LR_Scheduler": {"last_epoch": 3}, "other_moment1_0": "text"}
    state = {
        **{their_name(name): tensor for name, tensor in model.state_dict().items()},
        "step": 3,
        "plain": np.ones(2),
    }
    paddle.save(
        {"model": state, "optimizer": moments, "epoch": 1, "amp_grad_scaler": {"scale": 2.0}}, str(tmp_path / "x")
    )
    found = read_training(tmp_path / "x")
    assert sorted(found.accumulators) == ["beta1_pow_acc", "beta2_pow_acc", "moment1", "moment2"]
    assert found.scaler == {} and len(found.accumulators["moment1"].state) == len(list(model.parameters()))


@pytest.mark.parametrize("epoch", [None, "2", -1, True])
def test_a_state_of_an_unknown_epoch_is_refused(tmp_path, epoch):
    with pytest.raises(UserError, match="epoch .* is unknown .*-pretrained="):
        read_training(write(tmp_path / "x.pdparams", *trained(), epoch=epoch))


def test_moments_of_other_weights_are_refused(tmp_path):
    with pytest.raises(UserError, match="moment1_0 does not belong to a weight"):
        read_training(write(tmp_path / "x.pdparams", trained()[0], trained()[1], epoch=1))
