"""Who is contacted: the table of docs/guides/installation.md."""

import re
import sys

from support.hosts.servers import Server
from support.processes import ROOT, run_command

from paddlevit_dist.core.checkpoint import download

# What opens connections or asks for addresses, in Python's library, in Paddle and in usual packages.
_CONNECTS = re.compile(
    r"urllib\.request|http\.client|urlopen|create_connection|create_server|\.connect\(|getaddrinfo|gethostbyname|asyncio"
    r"|ftplib|smtplib|import (requests|httpx|huggingface_hub)|from (requests|httpx|huggingface_hub)|TCPStore|tcp_store"
    r"|utils\.download|vision\.models"
)
FETCHES = "core/checkpoint/download.py"
READS = "core/data/remote_folder.py"  # of images at an address
NAMES_ERRORS = "core/data/request_errors.py"  # of its requests
LISTS = "images/data/hub/repository.py"  # and fetches data sets
BUILDS = "images/models/bridges/package_model.py"  # of paddle.vision.models, which fetches for ``pretrained`` alone


def test_three_modules_fetch_and_the_ranks_of_a_run_meet():
    package = ROOT / "paddlevit_dist"
    sources = {str(path.relative_to(package)): path.read_text("utf-8") for path in package.rglob("*.py")}
    found = {name for name, text in sources.items() if _CONNECTS.search(text)}
    others = {name for name in found if not name.startswith(("core/distributed/", "core/launch/"))}
    assert sources[BUILDS].count("pretrained=False") == 2 and "pretrained=True" not in sources[BUILDS]
    assert others == {FETCHES, READS, NAMES_ERRORS, LISTS, BUILDS}, (
        "list in the table of docs/guides/installation.md what these contact"
    )


def test_a_mirror_and_a_proxy_are_found_by_their_variables(tmp_path, monkeypatch):
    name = "vit_small_patch16_224.augreg_in21k_ft_in1k"
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv(download.CACHE_VARIABLE, str(tmp_path))
    program = f"from paddlevit_dist.core.checkpoint.published import local_weights; print(local_weights('{name}'))"
    with Server(b"a mirror's") as proxy:
        for variable in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(variable, proxy.address())
        assert download.local_copy("http://files.invalid/w.npz").path.read_bytes() == proxy.content
        home = {"HF_HOME": str(tmp_path), "http_proxy": proxy.address(), "https_proxy": proxy.address()}
        asked = {"HF_ENDPOINT": "http://mirror.invalid"}, {}
        for more in asked:  # a process of its own, since the library reads its variables once
            ended = run_command([sys.executable, "-c", program], PYTHONPATH=str(ROOT), **home, **more)
            assert ended.code == 1 and "UserError: http" in ended.err and "cannot be fetched" in ended.err
    assert proxy.requests[0] == "http://files.invalid/w.npz"
    hosts = {request.removeprefix("http://").partition("/")[0] for request in proxy.requests[1:]}
    assert hosts <= {"mirror.invalid", "CONNECT huggingface.co:443"} and "CONNECT huggingface.co:443" in hosts
    assert proxy.heads == {f"http://mirror.invalid/timm/{name}/resolve/main/model.safetensors"}
