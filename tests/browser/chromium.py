"""The system's Chromium, and how it is started."""

from __future__ import annotations

import shutil

_NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((found for name in _NAMES if (found := shutil.which(name))), _NAMES[0])
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
