"""Draw the figures of a document by running its code: python docs/figures.py docs/reading-a-model.md

Of HTML pages that the code writes, a screenshot is taken, if Chromium is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-background-networking"]
WAIT = "--virtual-time-budget=10000"  # milliseconds


def main() -> None:
    """Run all Python blocks in order, and copy the pictures to docs/figures."""
    document = Path(sys.argv[1]).resolve()
    figures = document.parent / "figures"
    figures.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        namespace: dict[str, object] = {}
        for code in re.findall(r"^```python\n(.*?)^```", document.read_text(), re.DOTALL | re.MULTILINE):
            exec(compile(code, document.name, "exec"), namespace)
        chromium = shutil.which("chromium")
        for page in Path(directory).glob("*.html") if chromium else ():
            screenshot = f"--screenshot={page.stem}.png"
            command = [str(chromium), *FLAGS, WAIT, "--window-size=1000,1000", screenshot, page.as_uri()]
            subprocess.run(command, check=True, capture_output=True)
        for picture in Path(directory).glob("*.png"):
            shutil.copy(picture, figures / picture.name)


if __name__ == "__main__":
    main()
