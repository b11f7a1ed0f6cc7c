"""Words of ``evaluate`` that name an exported model."""

from paddlevit_dist.commands.evaluate import with_settings


def test_a_word_alone_is_an_exported_model_and_values_of_flags_and_keys_are_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "5.onnx").touch()
    for model in ("5.onnx", "folder/model", "5"):
        words = ["-batch_size", "5", model, "-amp", "DATA.DATA_PATH", "a/b", "-output=c/d", "SEED=5"]
        assert with_settings(words) == [*words[:2], f"EXPORTED={model}", *words[3:]]
    assert with_settings(["KEY", "5.onnx", "none"]) == ["KEY", "5.onnx", "none"]
