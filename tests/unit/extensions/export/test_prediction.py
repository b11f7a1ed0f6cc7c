"""An exported model in place of the network of trained weights."""

from types import SimpleNamespace

import pytest
from paddle import nn

from paddlevit_dist.extensions.export import prediction


@pytest.mark.parametrize(("known", "expected"), [(None, 3), (2, 2)])
def test_the_width_of_the_output_is_the_number_of_classes_if_no_record_has_it(monkeypatch, known, expected):
    function = SimpleNamespace(note="", computed_by="a runtime")
    model = SimpleNamespace(num_outputs=3, function=function, source="net.onnx")
    parts = SimpleNamespace(about={})
    exportable = SimpleNamespace(export_parts=lambda: parts, evaluated_model=lambda found: nn.Identity())
    monkeypatch.setattr(prediction, "load_exported_layer", lambda config, task: model)
    monkeypatch.setattr(prediction, "require_exportable", lambda task: exportable)
    monkeypatch.setattr(prediction, "compare_descriptions", lambda model, about, config: [])
    task = SimpleNamespace(num_classes=known, notices=[])
    prediction.build_exported(SimpleNamespace(), task)
    assert task.num_classes == expected
