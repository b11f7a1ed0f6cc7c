"""A network that a user's task builds is called by what builds it, not by a default name, wherever it is named."""

import paddle
import pytest
import yaml
from paddle import nn
from support.registrations import forgotten

from paddlevit_dist import register_task
from paddlevit_dist.core.commands.inspect_model import run as inspect
from paddlevit_dist.core.engine.compatibility import to_plain_settings
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks import Exportable, ExportParts, MeasuredTask
from paddlevit_dist.extensions.export.trained_models import load_trained_model


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
