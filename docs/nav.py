"""Hooks of mkdocs: the version, the list of decisions and the sources of the examples, without copies made by hand.

And the search of pages that are opened as files: see `search_from_files.js`.
"""

import re
from pathlib import Path
from typing import Any


def on_config(config: Any) -> None:
    """Add the version to the title, and the decisions to the pages for maintainers."""
    (version,) = re.findall(r'^__version__ = "(.*)"$', Path("mpi_runtime/__init__.py").read_text(), re.MULTILINE)
    config.site_name += f" {version}"
    pages = sorted(Path(config.docs_dir, "decisions").glob("[0-9]*.md"))
    (maintainers,) = (section["For maintainers"] for section in config.nav if "For maintainers" in section)
    maintainers.append({"Decisions": ["decisions/README.md", *(f"decisions/{page.name}" for page in pages)]})


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Add to each example that the gallery names its source, to be unfolded."""
    if page.file.src_uri != "examples.md":
        return markdown
    parts = re.split(r"^(?=#)", markdown, flags=re.MULTILINE)
    return "".join(part + _source(part, Path(config.docs_dir).parent) for part in parts)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Add a script to each page, which is loaded from files only."""
    name = "../" * page.file.dest_uri.count("/") + "search_from_files.js"
    loads = f'document.write("<script src=\\"{name}\\"><\\/script>")'
    return output.replace("</head>", f'<script>if (location.protocol === "file:") {loads}</script></head>', 1)


def on_post_build(config: Any) -> None:
    """Write the index of the search as the script that the theme loads from files."""
    index = Path(config.site_dir, "search", "search_index.json")
    index.with_suffix(".js").write_text(f"var __index = {index.read_text()};")


def _source(part: str, root: Path) -> str:
    named = re.match(r"### `(examples/.*)`\n", part)
    if not named:
        return ""
    text = (root / named[1]).read_text().rstrip()
    language = "python" if named[1].endswith(".py") else "toml"
    return f'??? example "the program"\n\n    ```{language}\n{re.sub("^(?=.)", "    ", text, flags=re.M)}\n    ```\n\n'
