"""Runs that read their images from a local S3: equal for 1, 2 and 3 processes, and killed and resumed."""

import io
import os
import re
import signal
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from integration.core.distributed.resumed_runs import assert_bit_equal, weights
from support.files.shard_writer import write_shards
from support.processes import ROOT, run_command, run_main, start_command, succeeded, wait_until
from support.trainings.runs import IMAGES

pytest.importorskip("s3fs")
moto_server = pytest.importorskip("moto.server")
RULE = ["TRAIN.OPTIMIZER.NAME", "SGD", "TRAIN.BASE_LR", "0.05"]
ARGUMENTS = [*IMAGES, "-dataset=tar", "-epochs=2", "-num_workers=1", *RULE, "REPORT", "False"]
PAGE = ROOT / "docs" / "guides" / "image_data.md"


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_shards(folder, "train", range(50), per_shard=7)
    write_shards(folder, "val", range(100, 110), per_shard=7)
    return folder


@pytest.fixture
def bucket(shards, monkeypatch):
    """The shards in a bucket of a local S3, with the index that the page's command writes."""
    [command] = re.findall(r"^python -m (paddlevit_dist prepare index) small", PAGE.read_text("utf-8"), re.MULTILINE)
    succeeded(run_command([sys.executable, "-m", *command.split(), str(shards)]))
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in (
        ("AWS_ENDPOINT_URL", f"http://{host}:{port}"),
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("NO_PROXY", "127.0.0.1"),
    ):
        monkeypatch.setenv(name, value)
    import boto3
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()  # those of an earlier test ask its server, which has ended
    client = boto3.client("s3", endpoint_url=f"http://{host}:{port}")
    client.create_bucket(Bucket="bucket")
    for file in shards.iterdir():
        client.upload_file(str(file), "bucket", f"small/{file.name}")
    yield client
    server.stop()


def test_processes_and_a_kill_change_nothing(bucket, shards, tmp_path):
    [command] = re.findall(r"^\./run_train_multi\.sh (.*s3://.*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    address = next(word for word in command.split() if word.startswith("-data_path="))
    results = {}
    for processes, batch in ((1, 6), (2, 3), (3, 2)):
        sizes = [f"-ngpus={processes}", f"-batch_size={batch}"]
        for name, path in (("folder", f"-data_path={shards}"), ("bucket", address)):
            output = tmp_path / f"{name}{processes}"
            succeeded(run_main(*ARGUMENTS, *sizes, path, f"-output={output}"))
            results[name, processes] = weights(output)
        assert_bit_equal(results["folder", processes], results["bucket", processes])
    for processes in (2, 3):
        for name, value in results["bucket", 1].items():
            np.testing.assert_allclose(results["bucket", processes][name], value, atol=1e-5, err_msg=name)


def test_changed_and_missing_objects_are_one_line(bucket, shards, tmp_path):
    from paddlevit_dist import UserError
    from paddlevit_dist.images.data.tar import TarImages

    dataset = TarImages("s3://bucket/small", "train", tmp_path)
    dataset.encoded(0)
    content = (shards / "train-00000.tar").read_bytes()
    bucket.put_object(Bucket="bucket", Key="small/train-00000.tar", Body=content[:-1] + b"x")
    with pytest.raises(UserError, match="train-00000.tar has changed since it was opened"):
        dataset.encoded(1)
    with pytest.raises(UserError, match="small/train-00000.tar"):
        bucket.put_object(Bucket="bucket", Key="small/train-00000.tar", Body=content[:-512])
        TarImages("s3://bucket/small", "train", tmp_path)
    with pytest.raises(UserError, match="s3://bucket/none/? cannot be listed"):
        TarImages("s3://bucket/none", "train", tmp_path)


def test_awkward_names_of_classes_are_labeled_as_in_the_folder(bucket, tmp_path):
    from paddlevit_dist.images.data.tar import TarImages

    for number, name in enumerate(("Zebra", "a#b", "a+b", "a?b", "50%25 off", "red fox", "k&r", "it's", "猫")):
        write_shards(tmp_path / "packed", "train", range(2 * number, 2 * number + 2))
        with tarfile.open(tmp_path / "packed" / "train-00000.tar") as shard:
            png = shard.extractfile(shard.getnames()[0]).read()
        (tmp_path / "named" / "train").mkdir(parents=True, exist_ok=True)
        with tarfile.open(tmp_path / "named" / "train" / f"{name}.tar", "w") as tar:
            member = tarfile.TarInfo("1.png")
            member.size = len(png)
            tar.addfile(member, io.BytesIO(png))
        bucket.upload_file(str(tmp_path / "named" / "train" / f"{name}.tar"), "bucket", f"named/train/{name}.tar")
    found, expected = (TarImages(where, "train", tmp_path) for where in ("s3://bucket/named", str(tmp_path / "named")))
    assert found.class_names == expected.class_names and len(found) == 9
    assert [found.encoded(each) for each in range(9)] == [expected.encoded(each) for each in range(9)]


def test_a_run_killed_in_mid_epoch_is_resumed_bit_for_bit(bucket, tmp_path):
    words = [*ARGUMENTS, "-data_path=s3://bucket/small", "-batch_size=5"]
    succeeded(run_main(*words, f"-output={tmp_path / 'straight'}"))
    killed = tmp_path / "killed"
    often = ["SAVE_EVERY_UPDATES", "3", "SAVE_IN_BACKGROUND", "False"]
    process = start_command([sys.executable, str(ROOT / "main_multi_gpu.py"), *words, *often, f"-output={killed}"])
    last = killed / "checkpoints" / "last"
    wait_until(
        lambda: last.is_symlink() and os.readlink(last).startswith("update_"),
        "it saves nothing in mid-epoch",
        process=process,
    )
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=600)
    succeeded(run_main(*words, f"-output={killed}", "-resume=auto"))
    assert_bit_equal(weights(tmp_path / "straight"), weights(killed))
