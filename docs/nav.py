"""A hook of mkdocs: the site lists the pages of docs/decisions in their order, without a list made by hand."""

from pathlib import Path
from typing import Any


def on_config(config: Any) -> None:
    """Append the decisions to the list of pages."""
    pages = sorted(Path(config.docs_dir, "decisions").glob("*.md"))
    config.nav.append({"Decisions": [f"decisions/{page.name}" for page in pages]})
