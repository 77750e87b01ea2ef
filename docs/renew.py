"""Run the code of documents; renew the output and the figures that they show: python docs/renew.py docs/index.md

A text block is replaced by what the Python or bash block before it prints. Pictures that the code saves, and the top of
HTML pages that it writes (if there is a Chromium), go to docs/figures.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-background-networking"]
WAIT = "--virtual-time-budget=10000"  # milliseconds


def renew(document: Path) -> None:
    """Run the blocks of a document in order, in an empty folder."""
    names: dict[str, object] = {}
    printed = ""

    def run(match: re.Match[str]) -> str:
        nonlocal printed
        language, code = match.groups()
        if language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(code, document.name, "exec"), names)
            printed = output.getvalue()
        elif language == "bash":
            printed = subprocess.run(["bash", "-euc", code], check=True, stdout=subprocess.PIPE, text=True).stdout
        return f"```text\n{printed.rstrip()}\n```" if language == "text" else match[0]

    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        document.write_text(FENCE.sub(run, document.read_text()))
        chromium = shutil.which("chromium")
        for page in Path(directory).glob("*.html") if chromium else ():
            shot = f"--screenshot={page.stem}.png"
            command = [str(chromium), *FLAGS, WAIT, "--window-size=1000,1000", shot, page.as_uri()]
            subprocess.run(command, check=True, capture_output=True)
        for picture in Path(directory).glob("*.png"):
            shutil.copy(picture, Path(__file__).parent / "figures" / picture.name)
        os.chdir(Path(__file__).parent)


if __name__ == "__main__":
    os.environ["COLUMNS"] = "120"
    for name in [Path(argument).resolve() for argument in sys.argv[1:]]:
        renew(name)
