"""What lets the same documents work on a code host and as a site.

Documents link to files of the repository, such as `../results/README.md`. Pages among these become pages of the site,
other files are copied, and links are turned to where the target is on the site. A link to a folder becomes plain text:
a site does not list folders. MkDocs calls the two functions.
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
    "benchmarks/README.md": "benchmarks.md",
    "results/README.md": "results.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
LINK = re.compile(r"\[([^\]]*)\]\((?![a-z]+:)([^)#\s]+)(#[^)\s]*)?\)")  # text, path and anchor, also of a picture


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, and the other files that documents link to."""
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
    """Turn links from where their targets are in the repository to where they are on the site."""
    here = os.path.dirname(page.file.src_uri) or "."

    def turned(link: re.Match[str]) -> str:
        text, target, anchor = link.groups(default="")
        source = _source(page.file, target)
        if (ROOT / source).is_dir():
            return text
        return f"[{text}]({os.path.relpath(_address(source), here)}{anchor})"

    return LINK.sub(turned, markdown)


def _source(document: File, target: str) -> str:
    """The file that a document of the site means, from the root of the repository."""
    origin = Path(str(document.abs_src_path)).resolve().parent
    return os.path.relpath(origin / target, ROOT)


def _address(source: str) -> str:
    """Where a file of the repository is on the site."""
    if source == "README.md":
        return "index.md"  # what it says to a visitor, the front page says
    return PAGES.get(source, source.removeprefix("docs/"))
