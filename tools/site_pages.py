"""Hooks of ``make site``: add the pages outside docs/ to the site, and rewrite links.

Pages contain links as GitHub needs them: relative to the file, among all files of the repository. The hook replaces a
link to a page by the address of that page on the site, and a link to another file by its text.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File
from pymdownx.slugs import slugify

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = {  # page of the repository -> its location on the site
    "README.md": "index.md",
    "README_cn.md": "cn/index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "RELEASING.md": "releasing.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "code_of_conduct.md",
    **{f"benchmarks/results/{path.name}": f"measured/{path.name}" for path in ROOT.glob("benchmarks/results/*.md")},
}
_LINK = re.compile(r"\[([^\]\[]*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    """Give headings the same anchors as on GitHub, including Chinese ones."""
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages outside docs/."""
    for source, place in OUTSIDE.items():
        files.append(File.generated(config, place, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Convert the links of a page to links of the site."""
    place = page.file.src_uri
    if place == "guides/errors.md":
        page.meta["search"] = {"boost": 4}  # who searches for a message wants this page
    source = next((name for name, other in OUTSIDE.items() if other == place), f"docs/{place}")
    parts = _FENCE.split(markdown)
    return "".join(part if part.startswith("```") else _with_links(part, source, place) for part in parts)


def _with_links(text: str, source: str, place: str) -> str:
    def lead(link: re.Match) -> str:
        shown, target = link.groups()
        path, hash_, anchor = target.partition("#")
        if "://" in target or not path:
            return link.group(0)
        in_repository = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        on_site = OUTSIDE.get(in_repository) or in_repository.removeprefix("docs/")
        if in_repository not in OUTSIDE and not in_repository.startswith("docs/"):
            return shown
        return f"[{shown}]({posixpath.relpath(on_site, posixpath.dirname(place) or '.')}{hash_}{anchor})"

    return _LINK.sub(lead, text)
