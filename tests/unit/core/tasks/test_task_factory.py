"""A user's task names its network wherever it is named, and says in a valid way what chooses the best checkpoint."""

import re

import paddle
import pytest
import yaml
from paddle import nn
from support.registrations import forgotten

from paddlevit_dist import UserError, register_task
from paddlevit_dist.core.commands.inspect_model import run as inspect
from paddlevit_dist.core.engine.compatibility import to_plain_settings
from paddlevit_dist.core.engine.metrics_check import require_value
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks import Exportable, ExportParts, MeasuredTask
from paddlevit_dist.core.tasks.task_factory import make_task, require_best_metric
from paddlevit_dist.extensions.export.trained_models import load_trained_model
from paddlevit_dist.images import Classification, Detection, ImageSegmentation


class Weighing(MeasuredTask, Exportable):
    def build_dataset(self, split, cache_folder):
        raise NotImplementedError

    def build_model(self, num_classes=None):
        return nn.Linear(3, 1)

    def measure(self, model, batch):
        return {"loss": model(batch["inputs"])[:, 0]}

    def export_parts(self):
        return ExportParts(3, {}, size=(1, 1), output_names=("weight",), output_shape=(1,))


@pytest.fixture
def weights(tmp_path):
    """Weights of a user's task, with the settings of their run."""
    with forgotten():
        register_task("weighing", Weighing, tables=[])
        config = load(["TASK=weighing"]).values
        paddle.save(nn.Linear(3, 1).state_dict(), str(tmp_path / "model.pdparams"))
        (tmp_path / "about.yaml").write_text(yaml.safe_dump({"settings": to_plain_settings(config)}))
        yield tmp_path / "model.pdparams"


def test_a_network_of_a_users_task_is_named_by_the_task_in_each_command(weights, capsys):
    inspect([str(weights), "-depth=0"])
    assert f"{weights}: Weighing.build_model: Linear" in capsys.readouterr().out
    assert load_trained_model(str(weights)).about["model"] == "Weighing.build_model"


def test_losses_that_a_task_does_not_call_are_refused():
    losses = {"losses": lambda self, outputs, batch: outputs}
    step = {**losses, "train_step": lambda self, model, batch, step: {}}
    for bases, methods, refused in (
        ((Detection,), losses, True),
        ((Detection,), step, False),
        ((ImageSegmentation,), losses, False),
        ((Classification,), losses, False),
        ((Weighing,), losses, False),
    ):
        with forgotten():
            register_task("odd", type("Odd", bases, methods))
            model = {ImageSegmentation: "segformer_b0", Detection: "detr_resnet50"}.get(bases[0], "vit")
            values = load(["TASK=odd", f"MODEL.NAME={model}"]).values
            if not refused:
                make_task(values)
                continue
            with pytest.raises(UserError, match="^Odd.losses is never called: .*: override train_step"):
                make_task(values)


@pytest.mark.parametrize("best", ["gap", ("gap", "lower"), ("gap", 0), ("gap",), (True, "gap"), None, ("a", True, 1)])
@pytest.mark.parametrize("base", [Weighing, Classification])
def test_a_best_metric_is_a_name_and_a_truth_value(best, base):
    with forgotten():
        register_task("odd", type("Odd", (base,), {"best_metric": best}), tables=[])
        told = f"best_metric of Odd is {best!r}: expected the name of a score and whether higher is better, such as"
        with pytest.raises(UserError, match=f"^{re.escape(told)}"):
            make_task(load(["TASK=odd"]).values)


def test_a_task_may_set_its_best_metric_when_it_opens_its_data():
    task = Weighing(load([]).values)
    for valid in (("gap", False), ["gap", True]):
        task.best_metric = valid
        require_best_metric(task)
    task.best_metric = ("gap", "higher")
    with pytest.raises(UserError, match="^best_metric of Weighing is"):
        require_value(task, {"gap": 1.0})
