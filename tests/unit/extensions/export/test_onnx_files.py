"""Conversion to ONNX: what each step gets, what is renamed, and which errors are told how."""

import io
import json
import sys
from types import SimpleNamespace

import numpy as np
import paddle
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.extensions.export import onnx_files
from paddlevit_dist.extensions.export.onnx_files import describe, require_packages, run, to_onnx

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
TensorProto, helper = onnx.TensorProto, onnx.helper


def make_model(kind=TensorProto.FLOAT):
    """y = x + x and z = -x of the first of two inputs, and copies of the second, integers."""
    nodes = [
        helper.make_node("Add", ["x", "x"], ["y"]),
        helper.make_node("Neg", ["y"], ["z"]),
        helper.make_node("Identity", ["sizes"], ["copy"]),
    ]
    kinds = {"x": kind, "sizes": TensorProto.INT64, "y": kind, "z": kind, "copy": TensorProto.INT64}
    values = [helper.make_tensor_value_info(name, each, [None, 2]) for name, each in kinds.items()]
    graph = helper.make_graph(nodes, "drawn", values[:2], values[2:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


INPUTS = {"x": np.array([[1.0, -2.5], [0.1, 3.0]]), "sizes": np.array([[3, 4], [5, 6]]), "more": None}


@pytest.mark.parametrize("kind, dtype", [(TensorProto.FLOAT, np.float32), (TensorProto.FLOAT16, np.float16)])
def test_outputs_are_computed_from_inputs_of_the_models_type(kind, dtype):
    found = run(make_model(kind), INPUTS)
    x = INPUTS["x"].astype(dtype)
    assert list(found) == ["y", "z", "copy"] and found["y"].dtype == dtype
    np.testing.assert_array_equal(found["y"], 2 * x)
    np.testing.assert_array_equal(found["z"], -2 * x)
    np.testing.assert_array_equal(found["copy"], INPUTS["sizes"])


def test_a_model_that_cannot_be_computed_is_one_line():
    message = r"^export: onnxruntime cannot compute the converted model: .+; try -format=paddle$"
    for inputs in ({"x": INPUTS["x"]}, {**INPUTS, "x": np.zeros((2, 3))}):
        with pytest.raises(UserError, match=message) as refusal:
            run(make_model(), inputs)
        assert "\n" not in str(refusal.value)


def test_the_batch_and_the_outputs_get_their_names_wherever_they_are_used():
    model = make_model()
    onnx_files.rename_outputs(model, ["scores", "less", "sizes_again"])
    graph = model.graph
    assert [output.name for output in graph.output] == ["scores", "less", "sizes_again"]
    assert [(list(node.input), list(node.output)) for node in graph.node] == [
        (["x", "x"], ["scores"]), (["scores"], ["less"]), (["sizes"], ["sizes_again"]),
    ]  # fmt: skip
    assert {value.type.tensor_type.shape.dim[0].dim_param for value in (*graph.input, *graph.output)} == {"batch"}
    with pytest.raises(ValueError):
        onnx_files.rename_outputs(model, ["scores"])


def test_the_description_is_stored_in_the_file():
    model = make_model()
    about = {"mean": [0.5, 1], "names": ["ä"]}
    describe(model, about)
    (found,) = model.metadata_props
    assert found.key == "about" and json.loads(found.value) == about


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The common path of an exported network, and the network."""
    paddle.seed(0)
    network = paddle.nn.Sequential(paddle.nn.Linear(3, 400), paddle.nn.GELU(), paddle.nn.Linear(400, 2))
    network.eval()
    prefix = tmp_path_factory.mktemp("program") / "net"
    paddle.jit.save(network, str(prefix), input_spec=[paddle.static.InputSpec([None, 3], "float32", "x")])
    return prefix, network


@pytest.mark.skipif(paddle.__version__.startswith("2."), reason="paddle2onnx needs Paddle 3")
@pytest.mark.parametrize("is_fused", [True, False])
@pytest.mark.parametrize("is_half", [True, False])
def test_a_program_is_converted_as_it_is_asked_for(program, is_fused, is_half):
    prefix, network = program
    x = np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3)
    model = to_onnx(prefix, lambda batch: {"x": x[:batch]}, is_fused=is_fused, is_half=is_half, names=["scores"])
    found = run(model, {"x": x})
    assert list(found) == ["scores"] and found["scores"].dtype == np.float32
    np.testing.assert_allclose(found["scores"], network(paddle.to_tensor(x)).numpy(), atol=2e-3 if is_half else 1e-6)
    assert ("com.microsoft" in {node.domain for node in model.graph.node}) == is_fused
    kinds = {weights.data_type for weights in model.graph.initializer if len(weights.dims) == 2}
    assert kinds == {TensorProto.FLOAT16 if is_half else TensorProto.FLOAT}


@pytest.mark.skipif(paddle.__version__.startswith("2."), reason="paddle2onnx needs Paddle 3")
@pytest.mark.parametrize("is_half", [True, False])
def test_weights_above_the_size_of_a_file_are_next_to_it(program, tmp_path, is_half):
    """With a limit of 2 kB instead of 2 GB."""
    prefix, network = program
    x = np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3)
    words = {"is_fused": False, "is_half": is_half, "names": ["scores"], "largest_file": 2048}
    model = to_onnx(prefix, lambda batch: {"x": x[:batch]}, **words)
    onnx_files.write(model, tmp_path / "net.onnx", largest_file=2048)
    assert {file.name for file in tmp_path.iterdir()} == {"net.onnx", "net.onnx.data"}
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"))
    found = session.run(None, {"x": x.astype(np.float16 if is_half else np.float32)})[0]
    np.testing.assert_allclose(found, network(paddle.to_tensor(x)).numpy(), atol=2e-3 if is_half else 1e-6)
    np.testing.assert_array_equal(run(model, {"x": x})["scores"], found)  # the model still has its weights


def test_programs_have_floats_that_the_converter_reads(tmp_path):
    program = {"attrs": [{"#": "0.a_f64", "D": 0.5}, {"#": "0.a_str", "D": "ä 0.a_f64"}]}
    (tmp_path / "net.json").write_text(json.dumps(program, ensure_ascii=False), encoding="utf-8")
    (tmp_path / "out").mkdir()
    file = onnx_files.readable_program(tmp_path / "net", tmp_path / "out")
    assert file == tmp_path / "out" / "program.json"
    program["attrs"][0]["#"] = "0.a_f32"
    assert json.loads(file.read_text(encoding="utf-8")) == program


PACKAGES = ("paddle2onnx", "onnx", "onnxruntime")


@pytest.mark.parametrize("name", [*PACKAGES, None])
@pytest.mark.parametrize(
    "error, said",
    [
        ("ImportError('no module')", "ONNX needs paddle2onnx, onnx, onnxruntime, and {} cannot be imported .no module"),
        (r"ValueError('\n too old \nmore')", "^export: {} does not support this Paddle: too old$"),
    ],
)
def test_a_package_that_is_missing_or_too_new_is_named(monkeypatch, tmp_path, name, error, said):
    monkeypatch.syspath_prepend(str(tmp_path))
    for package in PACKAGES:
        (tmp_path / f"{package}.py").write_text(f"raise {error}" if package == name else "")
        monkeypatch.delitem(sys.modules, package, raising=False)
    if name is None:
        require_packages()
    else:
        with pytest.raises(UserError, match=said.format(name)):
            require_packages()
    for package in PACKAGES:
        sys.modules.pop(package, None)


@pytest.mark.parametrize(
    "output, expected",
    [
        (b"begin\n  [ERROR] bad operator \nError: second\n", "Error: second"),
        (b"op conv9 is not supported\nError\n", "op conv9 is not supported"),
        (b"\xffit Failed:\n\nit failed: \xff\n", "\ufffdit Failed:"),
        (b"nothing of it\n", "first line"),
    ],
)
def test_the_reason_is_the_first_line_about_an_error_else_that_of_the_exception(output, expected):
    stream = io.BytesIO(output)
    stream.seek(3)
    assert onnx_files.explain_failure(stream, RuntimeError("\n  first line \nsecond")) == expected


def test_reasons_are_short_and_an_error_without_text_has_its_name():
    assert onnx_files.explain_failure(io.BytesIO(b"error " + b"x" * 500), RuntimeError()) == "error " + "x" * 294
    assert onnx_files.first_line(KeyError()) == "KeyError" and onnx_files.first_line(RuntimeError("\n")) != ""


def test_a_converter_that_ends_says_why(tmp_path, monkeypatch):
    given = []

    def export(*arguments, **options):
        given.append((arguments, options))
        print("Error: operator bee is unknown", flush=True)
        raise SystemExit(1)

    converter = SimpleNamespace(export=export)
    monkeypatch.setitem(sys.modules, "paddle2onnx", converter)
    (tmp_path / "net.v2.json").write_text("{}")
    with pytest.raises(UserError, match="^export: paddle2onnx cannot convert this model: "):
        onnx_files.convert_program(tmp_path / "net.v2")
    ((program, parameters, file), options) = given[0]
    assert program.endswith("/program.json") and parameters == str(tmp_path / "net.v2.pdiparams")
    assert options == {"opset_version": 17, "auto_upgrade_opset": False, "optimize_tool": "None"}

    def write(program, parameters, file, **options):
        onnx.save(make_model(), file)

    converter.export = write
    assert onnx_files.convert_program(tmp_path / "net.v2") == make_model()
