"""The site builds, without a warning, and has every page."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.documents import PAGES, ROOT, reference

ZENSICAL = shutil.which(
    "zensical", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
)


@pytest.mark.skipif(ZENSICAL is None, reason="zensical is not installed: `make setup` installs it")
def test_the_site_builds(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    for path, text in reference().items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    done = subprocess.run(
        [str(ZENSICAL), "build", "--strict"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    site = tmp_path / "out" / "site"
    pages = [page for page in (*PAGES, *reference()) if page.startswith("docs/")]
    missing = [page for page in pages if not (site / built(page)).is_file()]
    assert missing == []
    assert "exactly" in (site / "index.html").read_text(encoding="utf-8")


def built(page: str) -> Path:
    return Path(page).relative_to("docs").with_suffix(".html")
