"""A hook of mkdocs: the pages of docs/decisions stand in the site's list in their order, without being listed by hand."""

from pathlib import Path
from typing import Any


def on_config(config: Any) -> None:
    """Append the decisions to the list of pages."""
    pages = sorted(Path(config.docs_dir, "decisions").glob("*.md"))
    config.nav.append({"Decisions": [f"decisions/{page.name}" for page in pages]})
