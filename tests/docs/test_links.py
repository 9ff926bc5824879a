"""Links between documents lead to a file, and to a heading in it."""

import re
from pathlib import Path

import pytest
from tests.docs.documents import DOCUMENTS, PAGES, ROOT, prose_lines, reference, text_of

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"#+ (.+)")
NAV = re.compile(r"^ +- (?:[^:\n]+): (\S+\.md)$|^ +- (\S+\.md)$", re.MULTILINE)


@pytest.mark.parametrize("document", (*DOCUMENTS, *reference()))
def test_links_lead_somewhere(document: str) -> None:
    wrong = []
    for line, text in prose_lines(document, reference().get(document)):
        for link in LINK.findall(re.sub(r"`[^`]*`", "", text)):
            if "://" in link or link.startswith("mailto:"):
                continue
            target, _, anchor = link.partition("#")
            path = resolved(document, target)
            if not exists(path):
                wrong.append(f"{document}:{line}: there is no {path}")
            elif anchor and anchor not in anchors(path):
                wrong.append(f"{document}:{line}: {path} has no heading #{anchor}")
    assert wrong == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/")])
def test_pages_of_the_site_link_only_to_pages_of_the_site(page: str) -> None:
    for _, text in prose_lines(page):
        for link in LINK.findall(re.sub(r"`[^`]*`", "", text)):
            if "://" not in link:
                path = resolved(page, link.partition("#")[0])
                assert path.startswith("docs/"), f"{page}: {link} is not part of the site"


def test_the_navigation_has_every_page_once() -> None:
    listed = [a or b for a, b in NAV.findall(text_of("mkdocs.yml"))]
    pages = [page for page in (*PAGES, *reference()) if page.startswith("docs/")]
    assert sorted(f"docs/{name}" for name in listed) == sorted(pages)


def resolved(document: str, target: str) -> str:
    if not target:
        return document
    path = (ROOT / document).parent / target
    return str(Path(*path.parts).resolve().relative_to(ROOT.resolve()))


def exists(path: str) -> bool:
    return path in reference() or (ROOT / path).exists()


def anchors(path: str) -> set[str]:
    """The anchors of a page's headings, as Python-Markdown makes them."""
    found = set()
    for _, text in prose_lines(path, reference().get(path)):
        heading = HEADING.fullmatch(text)
        if heading:
            plain = re.sub(r"[^\w\s-]", "", heading[1]).strip().lower()
            found.add(re.sub(r"[-\s]+", "-", plain))
    return found
