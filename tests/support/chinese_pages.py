"""The pages that are also in Chinese."""

from .processes import ROOT

# Chinese page -> the page that it translates whole: a guide or a tutorial with the same name.
CHINESE_PAGES = {
    "README_cn.md": "README.md",
    **{
        f"docs/cn/{page.name}": f"docs/{folder}/{page.name}"
        for folder in ("tutorials", "guides")
        for page in sorted((ROOT / "docs" / folder).glob("*.md"))
        if (ROOT / "docs" / "cn" / page.name).exists()
    },
}
