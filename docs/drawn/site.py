"""The documentation site: `python -m docs.drawn.site` writes pictures and pages of reference, and builds site/.

Guarantees: a link that leads nowhere fails the build. Nothing that a page shows or runs is fetched from elsewhere, and
the search works without a network, also where pages are opened as files.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from docs.drawn.pictures import write_pictures
from docs.drawn.reference import write_pages

ROOT = Path(__file__).parents[2]
SITE = ROOT / "site"
# What the generator loads from elsewhere for pages that are opened as files, and our own script that does the same.
FOREIGN_WORKER = "https://unpkg.com/iframe-worker/shim"
OWN_WORKER = "assets/file-worker.js"
_LOADED = re.compile(
    r'<(?:script|img|iframe|source)\b[^>]*\bsrc="(https?:[^"]+)"|<link\b[^>]*\bhref="(https?:[^"]+)"'
)


def build() -> None:
    """Build the site; what is wrong with it is said, and is an error."""
    write_pictures()
    write_pages()
    command = [str(Path(sys.executable).parent / "zensical"), "build", "--clean", "--strict"]
    if subprocess.run(command, cwd=ROOT, check=False, env={**os.environ, "NO_COLOR": "1"}).returncode:
        raise SystemExit("the site was not built: see above")
    pages = sorted(SITE.rglob("*.html"))
    for page in pages:
        up = "../" * (len(page.relative_to(SITE).parts) - 1)
        text = page.read_text(encoding="utf-8").replace(FOREIGN_WORKER, up + OWN_WORKER)
        page.write_text(text, encoding="utf-8")
    foreign = {f"{page.relative_to(SITE)}: {url}" for page in pages for url in loaded_from_elsewhere(page)}
    if foreign:
        raise SystemExit("pages load from elsewhere:\n" + "\n".join(sorted(foreign)))
    print(f"{len(pages)} pages: open {SITE.relative_to(ROOT)}/index.html")


def loaded_from_elsewhere(page: Path) -> list[str]:
    """The addresses outside this site from which a page loads something, diagrams that need a script included."""
    text = page.read_text(encoding="utf-8")
    urls = [script or link for script, link in _LOADED.findall(text)]
    return urls + ["a diagram of mermaid's"] * text.count('class="mermaid"')


if __name__ == "__main__":
    build()
