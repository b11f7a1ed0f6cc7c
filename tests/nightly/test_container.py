"""docker/Dockerfile without Docker: its steps run in a folder in place of an image, without what images bring."""

import fnmatch
import re
import shutil
import stat
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import setuptools
from support.hosts.clones import copy_of_repository
from support.processes import ROOT, run_command
from support.trainings.runs import well

from paddlevit_dist import __version__

PAGE = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")


def instructions() -> list[tuple[str, str]]:
    lines = re.sub(r"^#.*\n", "", PAGE, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    return [tuple(line.split(None, 1)) for line in lines if line.strip()]


def context(repository: Path) -> list[str]:
    """The files that ``docker build`` sends: of the patterns of .dockerignore the last one that matches decides."""
    lines = (repository / ".dockerignore").read_text(encoding="utf-8").splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    sent = []
    for path in (path for path in repository.rglob("*") if path.is_file()):
        name, is_sent = str(path.relative_to(repository)), True
        for pattern in patterns:
            wanted = pattern.lstrip("!").replace("**/", "*")
            if any(fnmatch.fnmatchcase(part, wanted) for part in (name, *map(str, Path(name).parents))):
                is_sent = pattern.startswith("!")
        sent += [name] if is_sent else []
    return sent


class Image:
    """A folder in place of the root of an image, and what the instructions have set."""

    def __init__(self, root: Path, repository: Path, device: str) -> None:
        self.root, self.repository, self.built_for = root, repository, device
        self.values: dict[str, str] = {}
        self.bases: dict[str, str] = {}
        self.base = ""
        (root / "home").mkdir(parents=True)
        venv.create(root / "python")
        (packages,) = (root / "python").glob("lib/python3*/site-packages")
        there = Path(setuptools.__file__).parents[1]
        for part in (*there.glob("setuptools*"), there / "_distutils_hack"):
            (packages / part.name).symlink_to(part)
        pip = root / "python" / "bin" / "pip"  # that of the tests, without what needs a network
        pip.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" -m pip --disable-pip-version-check --python="{root}/python" "$@" '
            "--no-index --no-deps --no-build-isolation\n"
        )
        pip.chmod(0o755)
        self.path = f"{root}/python/bin:/usr/bin:/bin"

    def build(self) -> str:
        """Carry out all instructions; returns what the steps print."""
        carry_out = {"FROM": self.from_, "ARG": self.set, "ENV": self.set, "COPY": self.copy}
        printed = ""
        for name, words in instructions():
            if name == "RUN":
                printed += self.run(words)
            elif name in carry_out:
                carry_out[name](self.expanded(words))
            else:
                assert name in ("USER", "WORKDIR", "ENTRYPOINT"), f"no test knows {name}"
                self.values[name] = self.here(words)
        return printed

    def expanded(self, words: str) -> str:
        return re.sub(r"\$\{(\w+)\}", lambda found: self.values[found[1]], words)

    def here(self, words: str) -> str:
        """Absolute paths of an image, below the folder."""
        return re.sub(r"(?<![\w.])/(?=opt/|home/|work\b)", f"{self.root}/", words)

    def set(self, words: str) -> None:
        name, _, value = words.partition("=")
        self.values[name] = self.built_for if name == "DEVICE" else self.here(value)

    def from_(self, words: str) -> None:
        image, _, name = words.partition(" AS ")
        self.base = self.bases.get(image, image)
        self.bases[name or "last"] = self.base

    def copy(self, words: str) -> None:
        source, target = words.split()
        assert source == "."
        for name in context(self.repository):
            file = Path(self.here(target), name)
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self.repository / name, file)

    def run(self, words: str) -> str:
        ended = subprocess.run(
            ["sh", "-ec", self.here(words)],
            env={"PATH": self.path, **self.values},
            cwd=self.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert ended.returncode == 0, f"{words}\n{ended.stdout[-3000:]}"
        return ended.stdout


def test_only_what_pip_needs_is_sent_to_docker(tmp_path):
    clone = copy_of_repository(tmp_path)
    for unwanted in (
        ".git/config",
        ".venv/bin/python",
        "output/run/log.txt",
        "secret",
        "paddlevit_dist/__pycache__/a.pyc",
    ):
        (clone / unwanted).parent.mkdir(parents=True, exist_ok=True)
        (clone / unwanted).write_text("x")
    sent = set(context(clone))
    assert {name.split("/")[0] for name in sent} == {
        *("LICENSE", "MANIFEST.in", "README.md", "configs", "paddlevit_dist", "pyproject.toml", "setup.py")
    }
    assert "paddlevit_dist/images/data/digits.npz" in sent and "paddlevit_dist/__pycache__/a.pyc" not in sent


@pytest.mark.parametrize("device, paddle", [("cpu", r"3\.3\.\d"), ("gpu26", r"2\.6\.2-gpu-cuda[\w.-]+")])
def test_the_steps_of_the_container_file_install_a_command_that_works(tmp_path, device, paddle):
    image = Image(tmp_path / "root", copy_of_repository(tmp_path / "repository"), device)
    printed = image.build()
    assert re.fullmatch(rf"paddlepaddle/paddle:{paddle}", image.base)
    assert "does not provide" not in printed  # an extra that setup.py does not know
    assert f"Successfully installed paddlevit_dist-{__version__}" in printed.replace("-dist-", "_dist-")
    assert image.values["USER"] == "1000"
    for folder in ("home/anyone", "work"):
        assert stat.S_IMODE((tmp_path / "root" / folder).stat().st_mode) == 0o1777
    (program,) = re.findall(r'\["([\w-]+)"\]', image.values["ENTRYPOINT"])
    command = ["env", str(tmp_path / "root" / "python" / "bin" / program)]
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    folder = Path(image.values["WORKDIR"])
    said = well(
        run_command([*command, "inspect", "recipes"], folder=folder, PYTHONPATH=packages, HOME=image.values["HOME"])
    )
    assert "vit_digits" in said.out and f"{tmp_path}/root/python" in said.out.splitlines()[-1]
