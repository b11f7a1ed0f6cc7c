"""The commands on a page, in the order a reader meets them."""

import re

from support.processes import ROOT

# In reading order: tutorials, guides, reference, explanation. Chinese pages have the commands of the English ones.
PAGES = [
    "README.md",
    *(
        f"docs/tutorials/{name}.md"
        for name in (
            "quickstart_custom_images",
            "finetuning",
            "detection",
            "keypoints",
            "panoptic",
            "point_clouds",
            "sonata",
            "volumes",
        )
    ),
    *(
        f"docs/guides/{name}.md"
        for name in (
            *(
                "installation",
                "devices",
                "running",
                "training_at_scale",
                "image_data",
                "models",
                "detection",
                "keypoints",
                "several_labels",
                "pretraining",
                "segmentation",
            ),
            *(
                "sparse_networks",
                "predictor",
                "exporting",
                "custom_training_loop",
                "own_task",
                "extending",
                "own_scores",
                "samples",
                "migrating",
                "errors",
                "troubleshooting_metrics",
            ),
        )
    ),
    *(f"docs/reference/{name}.md" for name in ("keys", "commands", "api", "file_formats")),
    "docs/explanation/scoring_and_confidence_intervals.md",
    "docs/explanation/benchmarks.md",
    "docs/explanation/equivalence.md",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "benchmarks" / "results").glob("*.md")),
    "CONTRIBUTING.md",
    "RELEASING.md",
    "CHANGELOG.md",
]
_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_PROGRAMS = ("tensorboard ", "srun ", "docker ")
_LANGUAGES = {"", "bash", "python", "sh", "text", "yaml"}  # what is of "sh" is a script, and a tutorial's
_STARTS = ("make ", "paddlevit-dist ", ". ", "./", "sh ", "python ", "python3 ", "pip ", "CUDA_VISIBLE_DEVICES=")


def make_text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def make_blocks(page: str) -> list[tuple[str, str]]:
    """Language and content of each block of code."""
    return _BLOCK.findall(make_text(page))


def make_anchors(page: str) -> set[str]:
    """What a link can name after ``#``: the headings as GitHub spells them there."""
    headings = re.findall(r"^#+ (.*)$", _BLOCK.sub("", make_text(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def make_commands(page: str) -> list[str]:
    """The lines of blocks without a language or of shell, with lines that end in a backslash joined, without comments.

    A block of anything else has to say what it is: every line of these must be a command.
    """
    commands = []
    for language, content in _BLOCK.findall(make_text(page)):
        assert language in _LANGUAGES, f"{page}: a block of '{language}': commands stand in blocks without a language"
        if language not in ("", "bash"):
            continue
        for line in content.replace("\\\n", " ").splitlines():
            command = " ".join(re.sub(r"\s+# .*$", "", line).split())
            if command:
                assert command.startswith(_STARTS), f"{page}: '{command}' is no command; is its block ```text?"
                commands.append(command)
    return commands


def make_commands_in_text(page: str) -> list[str]:
    """Commands in blocks of text: first lines before what they print, and lines for other programs."""
    lines = "\n".join(content.replace("\\\n", " ") for language, content in make_blocks(page) if language == "text")
    found = (" ".join(re.sub(r"\s+# .*$", "", line).split()) for line in lines.splitlines())
    return [line for line in found if line.startswith((*_STARTS, *_PROGRAMS))]


def make_inline_commands(page: str) -> list[str]:
    """Commands inside sentences and tables."""
    outside = _BLOCK.sub("", make_text(page)).replace("\n", " ")
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", outside) if code.startswith(_STARTS)]
