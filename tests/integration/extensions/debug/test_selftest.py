"""Updates of a model are what its self-test compares, whether a batch is read at once or in parts."""

import numpy as np
import paddle
from support.trainings.runs import PLAIN

from paddlevit_dist import register_model
from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.model import Model
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.extensions.debug import selftest
from paddlevit_dist.extensions.debug.settings import change_settings

RATE, SIZE = 0.01, 12


class Linear(Model):
    """A linear classifier that counts its images."""

    def __init__(self, num_classes: int = 10, image_size: int = 8, in_channels: int = 1) -> None:
        super().__init__()
        self.dropout, self.head = paddle.nn.Dropout(0.5), paddle.nn.Linear(image_size * image_size, num_classes)
        self.register_buffer("seen", paddle.zeros([1]))
        self.unused = self.create_parameter([2])

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        self.seen.set_value(self.seen + float(len(images)))
        return self.head(self.dropout(images.flatten(1)))


def test_updates_follow_the_gradients_and_rounding_is_what_other_last_bits_change(tmp_path):
    register_model("LinearOfSelftest", Linear)
    words = [PLAIN, "-dataset=digits", "-image_size=16", "-num_workers=0", "DATA.IMAGE_CHANNELS", "1", "-epochs=1"]
    words += [f"-batch_size={SIZE}", "MODEL.NAME", "LinearOfSelftest", "TRAIN.BASE_LR", str(RATE), "-ngpus=1"]
    words += ["TRAIN.OPTIMIZER.MOMENTUM", "0", "TRAIN.OPTIMIZER.NAME", "SGD", "TRAIN.WEIGHT_DECAY", "0"]
    config = settings.load([*words, f"-output={tmp_path}", "TRAIN.WARMUP_EPOCHS", "0"]).values
    task = make_task(config)
    dataset = task.build_dataset("train", tmp_path)
    variants = []
    for parts, perturbed in ((1, 2), (3, 0)):
        folder = tmp_path / str(parts)
        folder.mkdir()
        values = {"DATA.BATCH_SIZE": SIZE // parts, "TRAIN.ACCUM_ITER": parts, "SAVE": str(folder)}
        selftest.run_variant(change_settings(config, values), task, dataset, str(folder), perturbed)
        variants.append(selftest.read_variant(folder))
        assert [path.name for path in folder.iterdir()] == ["variant.pickle"]
    whole, accumulated = variants
    assert list(whole.values) == [
        "loss term 'loss' of update 1",
        "gradient of 'head.weight' in update 1",
        "gradient of 'head.bias' in update 1",
        "loss term 'loss' of update 2",
        "loss term 'loss' of update 3",
        "change of weight 'unused' after update 3",
        "change of buffer 'seen' after update 3",
        "change of weight 'head.weight' after update 3",
        "change of weight 'head.bias' after update 3",
    ]
    losses = [float(value) for name, value in whole.values.items() if name.startswith("loss")]
    assert len(set(losses)) == 3 and all(0.5 < loss < 5 for loss in losses)
    assert whole.values["change of buffer 'seen' after update 3"] == 3 * SIZE and whole.sizes["seen"] == 3 * SIZE
    first = -RATE * whole.values["gradient of 'head.bias' in update 1"]
    all_three = whole.values["change of weight 'head.bias' after update 3"]
    assert np.abs(first).max() > 1e-3 and np.corrcoef(first, all_three)[0, 1] > 0.5
    assert whole.differing is None and not whole.has_batch_norm
    assert whole.rounding["gradient of 'head.weight' in update 1"] > 0 and accumulated.rounding == {}
    assert max(whole.rounding.values()) < 1e-2 and whole.rounding.keys() == whole.values.keys()
    for difference in selftest.compare_variants(whole, accumulated):
        assert difference.share <= difference.allowed, difference
