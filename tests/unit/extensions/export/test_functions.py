"""Exported functions have the names and numbers of the network they were made from."""

import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from support.forced_device import forced_device

from paddlevit_dist import UserError
from paddlevit_dist.extensions.export import functions
from paddlevit_dist.extensions.export.files import ExportedModel, find_exported


class ThreeOutputs(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.factor = self.create_parameter([1], default_initializer=paddle.nn.initializer.Constant(2.0))

    def forward(self, x):
        return x + 1.0, x.sum(axis=1), self.factor * x


def test_outputs_have_their_names_shapes_and_numbers(tmp_path):
    specification = [paddle.static.InputSpec([None, 5], "float32", "values")]
    paddle.jit.save(ThreeOutputs(), str(tmp_path / "model"), input_spec=specification)
    names = ["more", "sums", "double"]
    (file,) = tmp_path.glob("*.pdiparams")
    for about, expected in (({"outputs": names}, names), ({"outputs": names[:2]}, None), ({}, None)):
        loaded = functions.load(ExportedModel(file, about))
        assert [slot.name for slot in loaded.inputs] == ["values"]
        assert expected is None or [slot.name for slot in loaded.outputs] == expected
        assert [slot.shape for slot in loaded.outputs] == [(None, 5), (None,), (None, 5)]
        x = np.arange(15, dtype=np.float32).reshape(3, 5)
        found = [tensor.numpy() for tensor in loaded.run([paddle.to_tensor(x)], [2, 1])]
        assert found[0].tolist() == (2 * x).tolist() and found[1].tolist() == x.sum(axis=1).tolist()


class Mixed(paddle.nn.Layer):
    """Parameters of several shapes and dtypes, one of them large."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = self.create_parameter([300, 2])
        self.deep = self.create_parameter([2, 3, 1, 5], dtype="float64")

    def forward(self, x):
        return x @ self.wide, self.deep.sum()


def test_parameters_that_were_cut_off_by_one_byte_are_refused_with_what_they_need(tmp_path):
    paddle.jit.save(Mixed(), str(tmp_path / "m"), input_spec=[paddle.static.InputSpec([None, 300], "float32", "x")])
    (file,) = tmp_path.glob("*.pdiparams")
    state = paddle.jit.load(str(tmp_path / "m")).state_dict()
    functions.check_size(file, state)
    content = file.read_bytes()
    size = len(content)
    assert size == 2 * 300 * 4 + 30 * 8 + 2 * 22 + (3 + 2) + 4 * 2  # lengths above 127 need two bytes
    file.write_bytes(content[:-1])
    with pytest.raises(
        UserError, match=f"m.pdiparams: damaged: it has {size - 1:,} bytes, its parameters need {size:,}"
    ):
        functions.check_size(file, state)
    with pytest.raises(UserError, match=r"m\.pdiparams: (damaged: it has|Paddle cannot load it: )"):
        functions.load(ExportedModel(file, {}))


def test_shapes_are_told_with_what_may_have_any_length():
    assert (
        functions.format_shape((None, 3, None)) == "(batch, 3, any)" and functions.format_shape((4, None)) == "(4, any)"
    )
    assert functions.format_shape((None,)) == "(batch)" and functions.format_shape(()) == "()"
    assert str(functions.TensorSpec("x", (2, None), "uint8")) == "x (2, any) uint8"
    assert str(functions.TensorSpec("long " * 20, None, "float16")).endswith("... of any shape float16")


def test_the_line_of_an_error_that_names_the_fault_is_told():
    lines = ["C++ Traceback", "", "  0  paddle::run()", "  {}  "]
    for line in ("InvalidArgumentError: bad", "[ONNXRuntimeError] : 6", "[operator < matmul > error]"):
        assert functions.find_reason(ValueError("\n".join(lines).format(line))) == line
    assert functions.find_reason(ValueError("\n first\nsecond")) == "first"
    assert functions.find_reason(KeyError()) == "KeyError" and len(functions.find_reason(ValueError("x" * 999))) <= 300


def test_an_input_that_the_runtime_cannot_compute_is_one_line(tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    values = [helper.make_tensor_value_info(name, kind, [1, 1, "height", "width"]) for name in ("input", "out")]
    weight = helper.make_tensor("weight", kind, [1, 1, 4, 4], np.ones(16, np.float32))
    node = helper.make_node("Conv", ["input", "weight"], ["out"])
    graph = helper.make_graph([node], "small", values[:1], values[1:], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "s.onnx")
    loaded = functions.load(ExportedModel(tmp_path / "s.onnx", {}))
    assert loaded.run([paddle.ones([1, 1, 4, 5])], [0])[0].numpy().tolist() == [[[[16.0, 16.0]]]]
    with pytest.raises(
        UserError, match=r"s\.onnx: onnxruntime cannot compute an input of 1 x 1 x 2 x 9: .*enlarge them"
    ):
        loaded.run([paddle.ones([1, 1, 2, 9])], [0])


def test_inputs_and_outputs_of_an_onnx_file_keep_their_types(tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper, kinds = onnx.helper, onnx.TensorProto
    nodes = [helper.make_node("Cast", ["pixels"], ["half"], to=kinds.FLOAT16)]
    nodes += [helper.make_node("ReduceSum", ["scale"], ["sum"], keepdims=0), helper.make_node("Neg", ["half"], ["neg"])]
    source = [helper.make_tensor_value_info("pixels", kinds.UINT8, ["n", 3, "h"])]
    source += [helper.make_tensor_value_info("scale", kinds.FLOAT, [2, 2])]
    outputs = [helper.make_tensor_value_info("neg", kinds.FLOAT16, None)]
    outputs += [helper.make_tensor_value_info("sum", kinds.FLOAT, [])]
    graph = helper.make_graph(nodes, "g", source, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    file = tmp_path / "m.onnx"
    onnx.save(model, str(file))
    loaded = functions.load(ExportedModel(file, {"weights": "beside"}))
    assert loaded.inputs == [("pixels", (None, 3, None), "uint8"), ("scale", (2, 2), "float32")]
    assert [(slot.name, slot.dtype) for slot in loaded.outputs] == [("neg", "float16"), ("sum", "float32")]
    assert loaded.about == {"weights": "beside"} and loaded.note == ""
    assert loaded.computed_by.startswith("onnxruntime ") and loaded.computed_by.endswith(", CPUExecutionProvider")
    values = [np.arange(6).reshape(1, 3, 2), np.array([[0.5, 1.0], [2.0, 4.0]])]
    total, negative = loaded.run([paddle.to_tensor(value, dtype="float32") for value in values], [1, 0])
    assert float(total) == 7.5 and negative.tolist() == (-values[0]).tolist() and negative.dtype == paddle.float32
    helper.set_model_props(model, {"about": "weights: inside\n"})
    onnx.save(model, str(file))
    (tmp_path / "m.about.yaml").write_text("weights: beside\n")
    loaded = functions.load(find_exported(str(file)))
    assert loaded.about == {"weights": "inside"} and loaded.note.startswith(f"note: {tmp_path / 'm.about.yaml'} is not")
    file.write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"m.onnx: onnxruntime .* cannot load it: \[ONNXRuntimeError\]"):
        functions.load(ExportedModel(file, {}))


class Session:
    """What stands for a session of onnxruntime: it notes what it is given, and starts on the CPU unless told."""

    def __init__(self, used, file, options, providers):
        self.used = used
        self.given = file, vars(options), providers
        Session.last = self

    def get_inputs(self):
        return [SimpleNamespace(name="x", shape=["n", 0, 4], type="tensor(float)")]

    def get_outputs(self):
        return [SimpleNamespace(name="y", shape=None, type="sequence(float)")]

    def get_modelmeta(self):
        return SimpleNamespace(custom_metadata_map={})

    def get_providers(self):
        return [self.used, "CPUExecutionProvider"]


class Options(SimpleNamespace):
    def add_session_config_entry(self, name, value):
        setattr(self, name, value)


CPU, GPU = "CPUExecutionProvider", "CUDAExecutionProvider"


@pytest.mark.parametrize(
    "on_gpu, available, used, providers",
    [
        (False, [GPU, CPU], CPU, [CPU]),
        (True, [CPU], CPU, [CPU]),
        (True, [GPU, CPU], GPU, [(GPU, {"device_id": "3", "use_tf32": "1"}), CPU]),
        (True, [GPU, CPU], CPU, [(GPU, {"device_id": "3", "use_tf32": "1"}), CPU]),
    ],
)
def test_a_session_is_on_the_device_of_the_process_or_says_so(
    monkeypatch, tmp_path, other_paddle, on_gpu, available, used, providers
):
    monkeypatch.chdir(tmp_path)
    Path("net.onnx").write_bytes(b"a graph")
    runtime = SimpleNamespace(
        __version__="1.2",
        SessionOptions=Options,
        InferenceSession=partial(Session, used),
        get_available_providers=lambda: available,
    )
    monkeypatch.setitem(sys.modules, "onnxruntime", runtime)
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    flags = {"get_flags": lambda names: dict.fromkeys(names, 5), "base.core.get_cublas_switch": True}
    other_paddle({"get_device": "gpu:3", **flags})
    with forced_device("gpu" if on_gpu else "cpu"):
        loaded = functions.load(ExportedModel(Path("net.onnx"), {"weights": "w"}))
    file, options, given = Session.last.given
    assert (file, given, loaded.computed_by) == ("net.onnx", providers, f"onnxruntime 1.2, {used}")
    spinning = {"session.intra_op.allow_spinning": "0"}
    assert options == {"log_severity_level": 4, "intra_op_num_threads": 5, **spinning}
    runs_on_cpu = (
        f"note: net.onnx runs on the CPU: {GPU} of onnxruntime cannot start here (pip install onnxruntime-gpu)"
    )
    assert loaded.note == (runs_on_cpu if on_gpu and used == CPU else "")
    assert loaded.inputs == [("x", (None, None, 4), "float32")] and loaded.outputs == [("y", None, "sequence(float)")]
    assert loaded.about == {"weights": "w"}


def test_files_of_onnx_need_its_runtime(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(
        UserError, match=r"^net.onnx: ONNX files need onnxruntime, .* \(.*onnxruntime.*\): pip install onnxru"
    ):
        functions.load(ExportedModel(Path("net.onnx"), {}))


def test_one_output_is_a_list_of_one_and_damaged_files_are_told(tmp_path):
    specification = [paddle.static.InputSpec([2, 3], "float32", "x")]
    paddle.jit.save(paddle.nn.PReLU(init=0.5), str(tmp_path / "m"), input_spec=specification)
    model = ExportedModel(tmp_path / "m.pdiparams", {"outputs": ["positive"]})
    loaded = functions.load(model)
    assert loaded.inputs == [("x", (2, 3), "float32")] and loaded.outputs[0].name == "positive"
    (found,) = loaded.run([paddle.to_tensor([[-1.0, 2.0, 3.0]] * 2, "float64")], [0])
    assert found.tolist() == [[-0.5, 2.0, 3.0]] * 2 and found.dtype == paddle.float32
    for path in tmp_path.glob("m.*"):
        path.write_bytes(b"damaged")
    with pytest.raises(UserError, match=r"m.pdiparams: Paddle cannot load it: .+"):
        functions.load(model)
