"""Weights in each format, against files written by the format's own library."""

import json

import numpy as np
import paddle
import pytest
from safetensors.numpy import load_file
from support.processes import ROOT
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.array_files import read_safetensors, write_safetensors
from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.checkpoint.weights import as_array, list_shards, read_state, read_weights, weights_from_mapping

FILES = ROOT / "tests" / "support" / "files" / "weights_of_torch"  # made by make_files.py there


def numbers(*shape):
    return np.arange(int(np.prod(shape)), dtype="float32").reshape(shape) * 0.5 - 3.0


def expected_state():
    whole = numbers(6, 4)
    return {
        "weight": whole,
        "turned": whole.T,
        "part": whole[2:4, 1:],
        "half": numbers(2, 3),
        "bfloat": numbers(2, 3),
        "double": numbers(3),
        "counts": np.array([[1, -2], [3, 4]]),
        "bytes": np.array([0, 7, 255]),
        "flags": np.array([True, False]),
        "scalar": np.array(2.5),
        "empty": np.zeros((0, 3)),
        "parameter": numbers(2, 2),
    }


def assert_same(state, expected):
    assert list(state) == list(expected)
    for name, value in expected.items():
        assert state[name].shape == value.shape, name
        np.testing.assert_array_equal(state[name], value, err_msg=name)


@pytest.mark.parametrize("name", ["zip.pth", "legacy.pth"])
def test_files_of_torch_are_read_without_it(name):
    state = read_state(FILES / name)  # inside {"state_dict": ...}, beside an epoch and an optimizer's state
    assert_same(state, expected_state())
    kinds = {key: state[key].dtype.str for key in ("weight", "half", "bfloat", "double", "counts", "bytes", "flags")}
    assert list(kinds.values()) == ["<f4", "<f2", "<f4", "<f8", "<i8", "|u1", "|b1"]


def test_safetensors_of_its_own_library_are_read():
    expected = expected_state()
    state, metadata = read_safetensors(FILES / "plain.safetensors")
    assert metadata == {"format": "pt"}
    state = read_state(FILES / "plain.safetensors")
    assert_same({name: state[name] for name in expected}, expected)


class TorchTensor:
    """What a tensor of PyTorch's offers."""

    def __init__(self, numbers, dtype, done=()):
        self.numbers, self.dtype, self.done = numbers, dtype, done

    def detach(self):
        return TorchTensor(self.numbers, self.dtype, ("detached",))

    def cpu(self):
        return TorchTensor(self.numbers, self.dtype, (*self.done, "copied"))

    def float(self):
        return TorchTensor(self.numbers, "torch.float32", self.done)

    def numpy(self):
        assert self.dtype != "torch.bfloat16", "numpy has no such type"
        assert self.done == ("detached", "copied"), "it has a gradient, or is on a device"
        return self.numbers


def test_a_state_dict_of_torch_in_memory_is_weights_in_its_layout():
    weight, bias, model = numbers(3, 3), numbers(3), paddle.nn.Linear(3, 3)
    given = {"weight": TorchTensor(weight, "torch.bfloat16"), "bias": TorchTensor(bias, "torch.float32")}
    load_weights(model, given, strict=True)
    np.testing.assert_array_equal(model.weight.numpy(), weight.T)


# safetensors


def test_written_safetensors_are_read_by_us_and_by_its_own_library(tmp_path):
    state = {
        "a": numbers(3, 4).T,
        "b": np.float16([1.5, -2]),
        "scalar": np.array(7, dtype="int64"),
        "empty": np.zeros((0, 2), "float64"),
        "flags": np.array([[True], [False]]),
    }
    write_safetensors(tmp_path / "new.safetensors", state, {"format": "pt"})
    assert [path.name for path in tmp_path.iterdir()] == ["new.safetensors"]
    for read in (read_safetensors(tmp_path / "new.safetensors")[0], load_file(tmp_path / "new.safetensors")):
        assert_same({name: read[name] for name in state}, state)


def test_bits_of_bfloat16_and_complex_numbers_are_not_written(tmp_path):
    for array in (np.zeros(2, np.uint16), np.zeros(2, np.complex64)):
        with pytest.raises(TypeError, match=f"^bits: safetensors cannot hold {array.dtype}$"):
            write_safetensors(tmp_path / "new.safetensors", {"numbers": numbers(2), "bits": array})
    assert list(tmp_path.iterdir()) == []


def with_header(folder, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = folder / "file.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(dtype="F32", shape=(2,), begin=0, end=8):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    "header, data",
    [
        ({"a": entry(end=16)}, b"12345678"),
        ({"a": entry(shape=(3,))}, b"12345678"),
        ({"a": entry(shape=(-2,))}, b"12345678"),
        ({"a": entry(shape=(1 << 62, 4))}, b"12345678"),
        ({"a": entry(), "b": entry()}, b"12345678"),
        ({"a": entry(begin=4, end=12)}, b"123456789abc"),
        ({"a": entry()}, b"12345678more"),
        ({"a": entry(dtype="F8_E4M3", end=2)}, b"12"),
        ({"a": 3}, b""),
        ([1], b""),
        (b'{"a":1,"a":2}', b""),
        (b"[" * 100_000, b""),
    ],
)
def test_a_header_that_does_not_fit_is_refused(tmp_path, header, data):
    with pytest.raises(UserError, match=r"^\S+file.safetensors is damaged or is not a safetensors file: .+"):
        read_safetensors(with_header(tmp_path, header, data))


def test_a_header_longer_than_the_file_and_a_type_that_numpy_lacks_are_refused(tmp_path):
    (tmp_path / "long.safetensors").write_bytes((1 << 60).to_bytes(8, "little") + b"{}")
    with pytest.raises(UserError, match="header too large"):
        read_safetensors(tmp_path / "long.safetensors")
    with pytest.raises(UserError, match="its tensors have the unsupported type 'F8_E4M3'"):
        read_safetensors(with_header(tmp_path, {"a": entry(dtype="F8_E4M3", end=2)}, b"12"))


def test_safetensors_of_paddle_are_in_paddles_layout(tmp_path):
    weight = numbers(3, 3)
    for metadata, expected in (({"format": "pd"}, weight), ({"format": "pt"}, weight.T), (None, weight.T)):
        write_safetensors(tmp_path / "w.safetensors", {"weight": weight, "bias": numbers(3)}, metadata)
        model = paddle.nn.Linear(3, 3)
        load_weights(model, tmp_path / "w.safetensors", strict=True)
        np.testing.assert_array_equal(model.weight.numpy(), expected)


# npz


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_files_are_read_with_every_layout_of_memory(tmp_path, save):
    state = {
        "rows": numbers(3, 4),
        "columns": np.asfortranarray(numbers(3, 4)),
        "big_endian": numbers(2).astype(">f4"),
        "scalar": np.array(3),
        "one": numbers(1),
        "empty": np.zeros((0, 2)),
        "with/slash/kernel": numbers(2, 3, 4),
    }
    save(tmp_path / "file.npz", **state)
    assert_same(read_state(tmp_path / "file.npz"), state)


def test_bfloat16_that_jax_saved_as_raw_bytes_is_read(tmp_path):
    bits = (numbers(2, 3).view(np.uint32) >> 16).astype(np.uint16)
    np.savez(tmp_path / "half.npz", w=bits.view("V2"))
    np.testing.assert_array_equal(read_state(tmp_path / "half.npz")["w"], numbers(2, 3))


def test_an_npz_with_objects_or_an_exploding_one_is_refused(tmp_path):
    np.savez(tmp_path / "objects.npz", a=np.array([{}, 3], dtype=object))
    with pytest.raises(UserError, match=r"objects.npz is rejected: it holds an array of type 'object'"):
        read_state(tmp_path / "objects.npz")
    np.savez(tmp_path / "records.npz", a=np.zeros(2, [("x", "f4")]))
    with pytest.raises(UserError, match="records.npz is rejected: it holds an array of type "):
        read_state(tmp_path / "records.npz")
    np.savez_compressed(tmp_path / "bomb.npz", a=np.zeros(20_000_000, "float32"))
    with pytest.raises(UserError, match="bomb.npz is rejected: its arrays are far larger than the file"):
        read_state(tmp_path / "bomb.npz")


# Directories


def test_a_directory_of_hugging_face_is_read_whole_or_in_shards(tmp_path):
    write_safetensors(tmp_path / "model.safetensors", {"a": numbers(2), "b": numbers(3)})
    (tmp_path / "config.json").write_text("{}")
    assert_same(read_state(tmp_path), {"a": numbers(2), "b": numbers(3)})
    (tmp_path / "model.safetensors").unlink()
    write_safetensors(tmp_path / "model-1.safetensors", {"module.a": numbers(2)})
    write_safetensors(tmp_path / "model-2.safetensors", {"module.b": numbers(3), "module.c": numbers(4)})
    names = {"module.c": "model-2.safetensors", "module.a": "model-1.safetensors", "module.b": "model-2.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    assert_same(read_state(tmp_path), {"module.a": numbers(2), "module.b": numbers(3), "module.c": numbers(4)})
    shards = list_shards(tmp_path / "model.safetensors.index.json")
    assert [shard.name for shard in shards] == ["model-1.safetensors", "model-2.safetensors"]  # each is read once


@pytest.mark.parametrize("shard", ["../outside.safetensors", "/etc/passwd", "script.py", 3])
def test_an_index_may_only_name_weights_beside_it(tmp_path, shard):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": shard}}))
    with pytest.raises(UserError, match="model.safetensors.index.json is damaged"):
        read_state(tmp_path)


def test_the_only_weights_file_of_a_directory_is_taken_but_not_one_of_several(tmp_path):
    write_safetensors(tmp_path / "vit.safetensors", {"a": numbers(2)})
    assert list(read_state(tmp_path)) == ["a"]
    write_safetensors(tmp_path / "swin.safetensors", {"a": numbers(2)})
    with pytest.raises(UserError, match="not exactly one weights file with another name: .*swin.safetensors"):
        read_state(tmp_path)


# Wrappers


def test_a_part_can_be_chosen_and_the_others_are_mentioned(tmp_path):
    parts = {"model": {"a": paddle.to_tensor(numbers(2))}, "model_ema": {"a": paddle.to_tensor(-numbers(2))}}
    paddle.save({**parts, "epoch": 3}, str(tmp_path / "both.pdparams"))
    weights = read_weights(tmp_path / "both")
    np.testing.assert_array_equal(weights.state["a"], -numbers(2))  # PaddleViT evaluates the average
    choice = "(MODEL.PRETRAINED_PART model, or -part=model of convert and export, selects another)"
    assert weights.notices == (f"'model_ema' of the source was used; it also has 'model' {choice}",)
    plain = read_weights(tmp_path / "both", part="model")
    np.testing.assert_array_equal(plain.state["a"], numbers(2))
    with pytest.raises(UserError, match="no part 'teacher'; parts: 'model', 'model_ema'"):
        read_weights(tmp_path / "both", part="teacher")


@pytest.mark.parametrize(
    "wrapper",
    ["model", "state_dict", "model_ema", "state_dict_ema", "model_state_dict", "net", "weights", "ema_state_dict"],
)
def test_usual_entries_are_opened_and_names_stay(tmp_path, wrapper):
    paddle.save({wrapper: {"module.a": paddle.to_tensor(numbers(2))}, "epoch": 3}, str(tmp_path / "file.pdparams"))
    assert list(read_state(tmp_path / "file")) == ["module.a"]


def test_the_only_entry_with_arrays_is_opened_and_one_of_several_is_asked_for():
    mine, optimizer = {"a": numbers(2)}, {"moments": {"a": numbers(2)}, "step": numbers(1)}
    assert list(weights_from_mapping({"my_detector": mine, "optimizer_g": optimizer, "step": numbers(1)}).state) == [
        "a"
    ]
    several = {"detector": mine, "reader": {"b": numbers(3)}, "epoch": 3}
    with pytest.raises(
        UserError, match="several networks, 'detector', 'reader': choose one with MODEL.PRETRAINED_PART"
    ):
        weights_from_mapping(several)
    assert list(weights_from_mapping(several, "reader").state) == ["b"]


def test_a_part_is_also_found_inside_and_as_what_names_begin_with():
    names = ("student.net.a", "teacher.net.a", "center")
    content = {"state_dict": {name: numbers(place + 1) for place, name in enumerate(names)}, "epoch": 3}
    for part, shape in (("teacher", 2), ("state_dict.student.net", 1)):
        (value,) = weights_from_mapping(content, part).state.values()
        assert value.shape == (shape,)
    wrapped = {"state_dict": {f"module.{name}": value for name, value in content["state_dict"].items()}}
    with pytest.raises(UserError, match="no part 'ema'; parts: 'module.student', 'module.teacher', 'module'$"):
        weights_from_mapping(wrapped, "ema")


def test_entries_are_opened_to_a_depth_of_three(tmp_path):
    inner = {"a": paddle.to_tensor(numbers(2)), "epoch": 3}
    file = tmp_path / "file.pdparams"
    paddle.save({"ema": {"module": {"state_dict": inner}}}, str(file))
    assert list(read_state(file)) == ["a"]
    paddle.save({"ema": {"module": {"state_dict": {"model": inner}}}}, str(file))
    with pytest.raises(UserError, match="file.pdparams contains no weights: none of its 1 entries is an array$"):
        read_state(file)


def test_parts_and_files_that_exist_are_listed_where_another_is_asked_for(tmp_path):
    parts = {f"part{number}": {"a": paddle.to_tensor(numbers(2))} for number in range(9)}
    paddle.save({**parts, "epoch": 3}, str(tmp_path / "a.pdparams"))
    message = refusal_of(read_weights, tmp_path / "a.pdparams", part="teacher")
    listed = ", ".join(f"'part{number}'" for number in range(8))
    assert message == f"{tmp_path / 'a.pdparams'} has no part 'teacher'; parts: {listed}"
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(7):
        (folder / f"{number}").touch()
    line = refusal_of(read_weights, folder / "abcdefgh.pdparams")
    assert line.endswith(f"): names in {folder}: 0, 1, 2, 3, 4 and 2 more")
    for number in range(4):
        (folder / f"vit_{number}.pdparams").touch()
    said = refusal_of(read_weights, folder / "vit_9.pdparams")
    assert said.endswith(f"): similar names in {folder}: vit_3.pdparams, vit_2.pdparams, vit_1.pdparams")
    (folder / "half").mkdir()
    (folder / "half" / "abcdefgh1234").touch()  # 8 of 17 letters and of 12
    with pytest.raises(UserError, match="similar names in .*: abcdefgh1234$"):
        read_weights(folder / "half" / "abcdefgh")


def test_shards_of_an_address_keep_its_notices(tmp_path):
    write_safetensors(tmp_path / "a.safetensors", {"a": numbers(2)})
    (tmp_path / "any.json").write_text(json.dumps({"weight_map": {"a": "a.safetensors"}}))
    (notice,) = read_weights(f"file://{tmp_path}/any.json").notices
    assert "was not checked" in notice


def test_arrays_of_numbers_alone_are_weights():
    for kind in ("bool", "int8", "uint8", "int64", "float16", "float64"):
        value = np.array([[0, 1, 3]], kind)
        assert as_array(value) is value and as_array(("name", value)) is value
    for value in (np.array(["a"]), np.array([None, 3]), np.array([1j]), np.array([0], "datetime64[s]"), [1.0], 3, None):
        assert as_array(value) is None and as_array(("name", value)) is None
    np.testing.assert_array_equal(as_array(np.array([0x3FC0, 0xC000], np.uint16)), np.float32([1.5, -2]), strict=True)
