"""MkDocs hooks that let the same documents work on a code host and as a site.

Documents link to files of the repository, such as `../results/README.md`. Markdown files among these become pages of
the site, other files are copied, and links are rewritten to match. A link to a directory becomes plain text, because a
site does not list directories. MkDocs calls the two public functions.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {  # files outside docs/, and the pages that they become
    "results/README.md": "results.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
LINK = re.compile(r"\[([^\]]*)\]\((?![a-z]+:)([^)#\s]+)(#[^)\s]*)?\)")  # text, path and anchor; also matches images


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/, and the other files that documents link to."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    for document in files.documentation_pages():
        for _, target, _ in LINK.findall(document.content_string):
            source = _source(document, target)
            address = _address(source)
            if address == source and (ROOT / source).is_file() and files.get_file_from_path(address) is None:
                files.append(File.generated(config, address, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links from the layout of the repository to the layout of the site."""
    here = os.path.dirname(page.file.src_uri) or "."

    def rewrite(link: re.Match[str]) -> str:
        text, target, anchor = link.groups(default="")
        source = _source(page.file, target)
        if (ROOT / source).is_dir():
            return text
        return f"[{text}]({os.path.relpath(_address(source), here)}{anchor})"

    return LINK.sub(rewrite, markdown)


def _source(document: File, target: str) -> str:
    """Return the target of a link as a path from the root of the repository."""
    origin = Path(str(document.abs_src_path)).resolve().parent
    return os.path.relpath(origin / target, ROOT)


def _address(source: str) -> str:
    """Return the path on the site of a file of the repository."""
    if source == "README.md":
        return "index.md"  # the front page takes its place
    return PAGES.get(source, source.removeprefix("docs/"))
