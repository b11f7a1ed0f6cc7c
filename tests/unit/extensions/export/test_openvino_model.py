"""ONNX files that OpenVINO computes, with what stands for OpenVINO: ``tests/integration`` has the real one."""

import sys
from pathlib import Path
from types import SimpleNamespace

import paddle
import pytest
from support.forced_device import forced_device

from paddlevit_dist import UserError
from paddlevit_dist.extensions.export import functions
from paddlevit_dist.extensions.export.files import ExportedModel
from paddlevit_dist.extensions.export.openvino_model import OpenVinoModel, find_reason

STATISTICS = "openvino_telemetry"
LINES = "Exception from src/core.cpp:132:\nCheck 'false' failed:\n-- No conversion rule for: own.Wonder\n\n\n"


class Shape(list):
    """A shape of OpenVINO: lengths, 0 for one of any number; None: of any rank."""

    def __init__(self, lengths) -> None:
        super().__init__(
            SimpleNamespace(is_static=length > 0, get_length=lambda length=length: length) for length in lengths or ()
        )
        self.rank = SimpleNamespace(is_dynamic=lengths is None)


def port(name, lengths, kind):
    node, element = SimpleNamespace(get_friendly_name=lambda: name), SimpleNamespace(get_type_name=lambda: kind)
    return SimpleNamespace(get_node=lambda: node, partial_shape=Shape(lengths), element_type=element)


class Request:
    """Computes twice the first input, and the sum of the second in 64 bits."""

    def infer(self, inputs):
        self.given = inputs
        self.results = [inputs[0] * 2, inputs[1].sum()[None]]

    def get_output_tensor(self, number):
        return SimpleNamespace(data=self.results[number])


@pytest.fixture
def openvino(monkeypatch, tmp_path):
    """What stands for the package, in the current folder with a file net.onnx; ``loaded`` has what it was asked."""
    monkeypatch.chdir(tmp_path)
    Path("net.onnx").write_bytes(b"a graph")
    loaded = []

    def compile_model(file, device, settings):
        if Path(file).read_bytes() == b"damaged":
            raise RuntimeError(LINES)
        loaded.append((file, device, settings))
        inputs = [port("images", (0, 2), "u8"), port("sizes", (3,), "i64")]
        outputs = [port("double/sink_port_0", (0, 2), "f16"), port("sum/sink_port_0", None, "f64")]
        return SimpleNamespace(inputs=inputs, outputs=outputs, create_infer_request=Request)

    core = SimpleNamespace(compile_model=compile_model)
    module = SimpleNamespace(__version__="2026.4.1-22982-e213a", Core=lambda: core, loaded=loaded)
    monkeypatch.setitem(sys.modules, "openvino", module)
    return module


@pytest.mark.parametrize("on_gpu", [False, True])
def test_a_file_has_its_names_and_types_and_is_computed_in_float32(openvino, on_gpu):
    with forced_device("gpu" if on_gpu else "cpu"):
        loaded = functions.load(ExportedModel(Path("net.onnx"), {"weights": "w"}, note="note: another"), "openvino")
    threads = max(1, paddle.get_flags(["FLAGS_paddle_num_threads"])["FLAGS_paddle_num_threads"])
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads}
    assert openvino.loaded == [("net.onnx", "CPU", settings)]
    assert loaded.inputs == [("images", (None, 2), "uint8"), ("sizes", (3,), "int64")]
    assert loaded.outputs == [("double", (None, 2), "float16"), ("sum", None, "f64")]
    assert loaded.computed_by == "OpenVINO 2026.4.1, CPU" and loaded.about == {"weights": "w"}
    said = "; note: net.onnx runs on the CPU: here OpenVINO computes on nothing else" if on_gpu else ""
    assert loaded.note == f"note: another{said}"
    inputs = [paddle.to_tensor([[1.0, 2.0]]), paddle.to_tensor([1.0, 2.0, 4.0])]
    total, double = loaded.run(inputs, [1, 0])
    assert total.tolist() == [7.0] and double.tolist() == [[2.0, 4.0]] and double.dtype == paddle.float32


def test_its_statistics_are_neither_imported_nor_missing_afterwards(openvino, monkeypatch):
    monkeypatch.delitem(sys.modules, STATISTICS, raising=False)
    seen = []
    import_module = functions.importlib.import_module
    monkeypatch.setattr(
        "paddlevit_dist.extensions.export.openvino_model.importlib.import_module",
        lambda name: (seen.append(sys.modules.get(STATISTICS, "importable")), import_module(name))[1],
    )
    OpenVinoModel(Path("net.onnx"), 1)
    assert seen == [None] and STATISTICS not in sys.modules
    monkeypatch.setitem(sys.modules, STATISTICS, "of the user's program")
    OpenVinoModel(Path("net.onnx"), 1)
    assert seen[1] == sys.modules[STATISTICS] == "of the user's program"


def test_a_damaged_file_and_a_missing_package_are_one_line(openvino, monkeypatch):
    Path("net.onnx").write_bytes(b"damaged")
    told = r"^net.onnx: OpenVINO 2026.4.1 cannot load it: -- No conversion rule for: own.Wonder$"
    with pytest.raises(UserError, match=told):
        OpenVinoModel(Path("net.onnx"), 1)
    assert find_reason(KeyError()) == "KeyError" and len(find_reason(ValueError("x" * 999))) <= 300
    monkeypatch.setitem(sys.modules, "openvino", None)
    told = r"^net.onnx: -runtime=openvino needs openvino, .* \(.*openvino.*\): pip install '.\[openvino\]'"
    with pytest.raises(UserError, match=told):
        functions.load(ExportedModel(Path("net.onnx"), {}), "openvino")
    assert STATISTICS not in sys.modules
