"""The page in a real browser, over a running pipeline with 64 slots; pictures go to out/ui."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.browser.pipelines import HOSTILE, running
from tests.servers.stores import server_of
from tests.unit.engine.support import counting, follower_of

from headrace.engine.commands import Remote
from headrace.engine.job import Job
from headrace.observe.ui.server import UiServer
from headrace.store.disk import DiskStore

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PICTURES = Path(__file__).parents[2] / "out" / "ui"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        CHROMIUM is None,
        reason="there is no Chromium: apt-get install --no-install-recommends chromium",
    ),
]
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
]
VIEWS = ("graph", "slots", "epochs", "state", "letters", "events")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Job, Path]]:
    where = tmp_path_factory.mktemp("page") / "state"
    job = running(where, epochs=12)
    yield job, where
    job.leave()


@pytest.fixture(scope="module")
def server(job: tuple[Job, Path]) -> Iterator[UiServer]:
    with UiServer([str(job[1])]) as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="there is no playwright")
    with api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


class Page:
    """A page of the browser that remembers what went wrong on it."""

    def __init__(self, browser: Any, scheme: str = "light", width: int = 1280) -> None:
        self._context = browser.new_context(
            color_scheme=scheme, viewport={"width": width, "height": 860}, device_scale_factor=1
        )
        self.page = self._context.new_page()
        self.wrong: list[str] = []
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", self._asked)
        self.asked: list[str] = []

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(message.text)

    def _asked(self, dialog: Any) -> None:
        self.asked.append(f"{dialog.type}: {dialog.message}")
        dialog.accept()

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *exc: object) -> None:
        self._context.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
def test_every_view_shows_the_running_pipeline_without_an_error(
    browser: Any, server: UiServer, scheme: str, width: int
) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    with Page(browser, scheme, width) as shown:
        page = shown.page
        for view in VIEWS:
            page.goto(f"{server.url}#/p/0/{view}")
            page.wait_for_selector(f"nav.tabs a[aria-current]:has-text('{title(view)}')")
            look_for(page, view)
            page.screenshot(path=PICTURES / f"{view}-{scheme}-{width}.png")
            overflow = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert overflow <= 0, f"{view} is wider than the window"
            tab = page.locator("nav.tabs a[aria-current]").bounding_box()
            assert tab["x"] >= 0 and tab["x"] + tab["width"] <= width, f"the tab {view} is cut off"
        assert page.locator("img[src=x]").count() == 0
    assert shown.wrong == []
    assert shown.asked == []


def title(view: str) -> str:
    return {"letters": "Dead letters"}.get(view, view.capitalize())


def look_for(page: Any, view: str) -> None:
    """What each view must show of this pipeline."""
    if view == "graph":
        # The leader tells of sources, sinks and rates once it has run for a moment.
        page.wait_for_selector("svg .part >> nth=5", state="attached")
        page.wait_for_selector("svg text:has-text('/s') >> nth=1", state="attached")
        assert page.locator("svg .part").count() == 6
        state_of_orders = page.locator("tr:has(b:text-is('Orders')) td").nth(7).inner_text()
        assert state_of_orders.endswith((" kB", " MB")), state_of_orders  # from the beginning
    elif view == "slots":
        page.wait_for_selector(".cell >> nth=127")
        assert page.locator(".cell").count() == 2 * 64
        assert page.locator("svg .arc").count() >= 2 * 64
    elif view == "epochs":
        page.wait_for_selector("svg rect.f-job")
        page.wait_for_selector("svg rect.f-commit >> nth=9", state="attached")
    elif view == "state":
        page.fill("input[data-key=state-key]", "c1")
        page.get_by_text("Look up").click()
        page.wait_for_selector("#state-result td:has-text('cents')")
    elif view == "letters":
        page.wait_for_selector("td:has-text('unlucky')")
        assert HOSTILE in page.locator("main").inner_text()  # as text, not as an element
    else:
        page.wait_for_selector("h2:has-text('Decisions')")


def test_a_pipeline_is_paused_resumed_and_rescaled_from_the_page(
    browser: Any, server: UiServer, job: tuple[Job, Path]
) -> None:
    with Page(browser) as shown:
        page = shown.page
        page.goto(f"{server.url}#/p/0/slots")
        page.get_by_role("button", name="Pause").click()
        page.wait_for_selector(".pill:has-text('paused')")
        assert checkpoint_says_paused(job[1])
        page.screenshot(path=PICTURES / "paused.png")
        page.get_by_role("button", name="Resume").click()
        page.wait_for_selector(".pill:has-text('running')")
        page.fill("input[data-key='rescale-Shops']", "16")
        page.locator("form:has(input[data-key='rescale-Shops']) button").click()
        page.wait_for_selector("span:has-text('16 slots')")
    assert shown.wrong == []
    assert [asked.partition(":")[0] for asked in shown.asked] == ["confirm", "confirm"]


def test_a_slow_press_and_a_selection_outlast_the_next_reading(
    browser: Any, server: UiServer, job: tuple[Job, Path]
) -> None:
    with Page(browser) as shown:
        page = shown.page
        page.goto(f"{server.url}#/p/0/slots")
        button = page.get_by_role("button", name="Pause").bounding_box()
        page.mouse.move(button["x"] + 5, button["y"] + 5)
        page.mouse.down()
        page.wait_for_timeout(1500)
        page.mouse.up()
        page.get_by_role("button", name="Resume").click()
        page.get_by_role("button", name="Pause").focus()
        page.wait_for_timeout(1500)
        assert page.evaluate("document.activeElement.textContent") == "Pause"
        page.evaluate("getSelection().selectAllChildren(document.querySelector('h1'))")
        page.wait_for_timeout(1500)
        assert page.evaluate("String(getSelection())").strip() == "shop"
    assert shown.wrong == []
    assert [asked.partition(":")[0] for asked in shown.asked] == ["confirm"]


def test_the_state_view_begins_when_there_is_a_checkpoint(browser: Any, tmp_path: Path) -> None:
    with UiServer([str(tmp_path / "state")]) as server, Page(browser) as shown:
        shown.page.goto(f"{server.url}#/p/0/state")
        shown.page.wait_for_selector(".card.alert:has-text('there is no directory')")
        Job(follower_of(counting(["a"]), DiskStore(tmp_path / "state"), lease_s=1.0)).wait(60)
        shown.page.wait_for_selector("#state-result", state="attached")
    assert shown.wrong == []


def test_every_view_works_over_a_checkpoint_on_an_object_store(browser: Any) -> None:
    """The page reads by requests only: the pipeline may run on another machine."""
    url = server_of("ministack").new_url()
    job = running(url, epochs=12)
    try:
        with UiServer([url]) as server, Page(browser) as shown:
            page = shown.page
            for view in VIEWS:
                page.goto(f"{server.url}#/p/0/{view}")
                page.wait_for_selector(f"nav.tabs a[aria-current]:has-text('{title(view)}')")
                look_for(page, view)
                page.screenshot(path=PICTURES / f"{view}-store.png")
            page.goto(f"{server.url}#/p/0/slots")
            page.get_by_role("button", name="Pause").click()
            page.wait_for_selector(".pill:has-text('paused')")
            assert checkpoint_says_paused(url)
            page.get_by_role("button", name="Resume").click()
            page.wait_for_selector(".pill:has-text('running')")
        assert shown.wrong == []
    finally:
        job.leave()


def test_a_name_that_was_made_to_point_here_is_refused(browser: Any, server: UiServer) -> None:
    """DNS rebinding: a page of `rebound.example`, whose name then points to this machine."""
    rule = "--host-resolver-rules=MAP rebound.example 127.0.0.1"
    other = browser.browser_type.launch(executable_path=CHROMIUM, args=[*ARGUMENTS, rule])
    try:
        page = other.new_page()
        answer = page.goto(f"http://rebound.example:{server.port}/")
        assert answer.status == 403 and "is not this server's" in page.content()
        told = page.evaluate("async () => (await fetch('/api/pipelines')).status")
        assert told == 403
    finally:
        other.close()


def checkpoint_says_paused(where: Path | str) -> bool:
    return Remote(where).ledger().control.paused


def test_another_origin_can_neither_read_nor_ask(
    browser: Any, server: UiServer, job: tuple[Job, Path]
) -> None:
    """A page of another server in the same browser tries everything that a browser allows."""
    epoch = job[0].status().epoch
    with foreign_site() as site, Page(browser) as shown:
        shown.page.goto(site)
        tries = shown.page.evaluate(ATTACK, server.url)
        assert [tuple(each[:2]) for each in tries] == [
            ("json", "failed"),
            ("simple", "failed"),
            ("plain", "failed"),
            ("read", "failed"),
        ]
    assert job[0].status().phase == "running"
    assert job[0].status().epoch >= epoch


ATTACK = """async (target) => {
    const said = [], url = `${target}api/pipeline/0/ask`;
    const attempt = async (name, options) => {
        try { const answer = await fetch(url, options); said.push([name, answer.status]); }
        catch (error) { said.push([name, "failed"]); }
    };
    const body = JSON.stringify({verb: "pause"});
    const json = {"Content-Type": "application/json"}, plain = {"Content-Type": "text/plain"};
    await attempt("json", {method: "POST", body, headers: json});
    await attempt("simple", {method: "POST", body, mode: "no-cors"});
    await attempt("plain", {method: "POST", body, headers: plain});
    try { await (await fetch(`${target}api/pipelines`)).text(); said.push(["read", "read"]); }
    catch (error) { said.push(["read", "failed"]); }
    return said;
}"""


class foreign_site:
    """A web server of somebody else on this machine."""

    def __enter__(self) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(b"<!doctype html><title>other</title><body>other")

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return f"http://localhost:{self._server.server_address[1]}/"

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
