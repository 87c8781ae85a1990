"""Pages as a person sees them, in headless Chromium where it is installed."""

import shutil
import subprocess
from pathlib import Path

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def shown(url: str, folder: Path) -> str:
    """The content of a page after its scripts have run, as HTML.

    Args:
        url: Its address.
        folder: Receives what the browser keeps.
    """
    assert BROWSER, "needs Chromium"
    settings = f"--headless --no-sandbox --disable-gpu --user-data-dir={folder} --virtual-time-budget=30000"
    words = [BROWSER, *settings.split(), "--dump-dom", url]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=120).stdout
