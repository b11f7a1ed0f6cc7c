"""-selftest passes where nothing depends on the number of processes, and says where nothing was compared."""

from integration.distributed.selftests import GRAY, OTHERS, selftest
from support.runs import DIGITS, PLAIN, refusal

from paddlevit_dist.checkpoint.array_files import write_safetensors
from paddlevit_dist.models import create_model


def test_a_vision_transformer_passes_also_from_weights(tmp_path):
    options = {"image_size": 16, "patch_size": 8, "in_channels": 1, "embed_dim": 16, "depth": 1, "num_heads": 2}
    weights = {
        name: value.numpy() for name, value in create_model("vit", num_classes=10, **options).state_dict().items()
    }
    write_safetensors(tmp_path / "vit.safetensors", weights)
    rates = ["MODEL.DROPPATH", "0.3", "TRAIN.MIXUP_ALPHA", "0.8"]
    ended = selftest(tmp_path / "output", *DIGITS, f"-pretrained={tmp_path / 'vit.safetensors'}", *rates)
    lines = ended.out.splitlines()
    assert ended.code == 0 and lines[-1] == "PASS", ended.out + ended.err
    assert {"  2 processes x 32", "  1 process x 64", "  1 process x 32 x 2 accumulated"} <= set(lines)
    (off,) = [line for line in lines if line.startswith("off")]
    assert "TRAIN.MIXUP_ALPHA 0.8" in off and "MODEL.DROPPATH 0.3" in off
    assert sum("tensors agree" in line for line in lines) == 2


def test_where_nothing_is_compared_nothing_is_said_to_pass(tmp_path):
    ended = selftest(tmp_path / "output", PLAIN, *OTHERS, *GRAY, "MODEL.NAME", "WithBatchNorm", "NGPUS", "1")
    assert "a single process with batch norm has nothing to be compared with" in refusal(ended)
