"""Make the pictures of the page: docs/images/*.png, and more of them into a folder to review.

    python -m docs.screenshots [--all FOLDER] [--look desktop-light]

Serves a results folder of the bundled penguins table, opens the page in Debian's chromium, and
takes pictures of its states. The three of the docs are at a width at which they can be read.
"""

import argparse
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from tabmt import TabMT, penguins, synthesize
from tabmt.model.model_file import model_fingerprint
from tabmt.search.pareto_front import Front, Point
from tabmt.serve.server import Opened, opened

IMAGES = Path(__file__).parent / "images"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
WIDTHS = {"desktop": 1100, "phone": 390}
PATIENCE = 600_000  # milliseconds


@contextmanager
def served(folder: Path, models: list[str]) -> Iterator[Opened]:
    with opened(models, folder, 0) as ready:
        thread = threading.Thread(target=ready.run)
        thread.start()
        while not ready.server.started:
            time.sleep(0.05)
        try:
            yield ready
        finally:
            ready.server.should_exit = True
            thread.join()


def choose(tab: Page) -> None:
    """Adelie penguins over 4,000 g, as a newcomer would."""
    tab.wait_for_selector("#status:has-text('without conditions')")
    tab.click("[data-column=species] .bar:has-text('Adelie')")
    tab.fill("[aria-label='body_mass_g from']", "4000")
    tab.press("[aria-label='body_mass_g from']", "Enter")
    tab.wait_for_selector("#status:has-text('your 2')")
    tab.wait_for_selector("#columns[aria-busy=false]")
    tab.evaluate("document.activeElement.blur(), scrollTo(0, 0)")


def shoot(tab: Page, name: str, targets: list[Path], *, whole: bool = False) -> None:
    tab.wait_for_timeout(400)  # bars move
    for target in targets:
        tab.screenshot(path=str(target / f"{name}.png"), full_page=whole)


def problems(tab: Page, ready: Opened, folder: Path, name: str) -> None:
    """What people see when there is nothing yet, and when something is wrong."""
    tab.goto(ready.access.address)
    wrong = {"name": "notes.csv", "mimeType": "text/csv", "buffer": b"a,a\n1,2\n"}
    tab.set_input_files("#file", wrong)  # type: ignore[arg-type]
    tab.wait_for_selector("#upload-status.wrong")
    shoot(tab, f"{name}-bad-file", [folder])
    tab.goto(ready.page)
    choose(tab)
    tab.fill("[aria-label='bill_length_mm from']", "1000")
    tab.press("[aria-label='bill_length_mm from']", "Enter")
    tab.wait_for_selector("#status.wrong")
    shoot(tab, f"{name}-mistake", [folder])
    ready.access._sessions.clear()  # as after twelve hours
    tab.click("#chips button >> nth=0")
    tab.wait_for_selector("#alert:not([hidden])")
    shoot(tab, f"{name}-expired", [folder])
    tab.goto(f"{ready.access.address}?token=wrong")
    shoot(tab, f"{name}-refused", [folder])


def beginnings(tab: Page, ready: Opened, folder: Path, name: str) -> None:
    """A model whose pictures are not drawn yet, and a row of which some cells are written."""
    tab.route("**/columns", lambda _: None)
    tab.goto(ready.page)
    shoot(tab, f"{name}-loading", [folder])
    tab.unroute("**/columns")  # what was held goes on
    tab.wait_for_selector("#status:has-text('without conditions')")
    tab.fill("#cells [name=species]", "Gentoo")
    tab.click("#write button")
    tab.wait_for_selector("#written table")
    tab.locator("#write").scroll_into_view_if_needed()
    shoot(tab, f"{name}-cells", [folder])


def wishes(tab: Page, ready: Opened, folder: Path, name: str) -> None:
    """Temperatures, and rows with conditions beside rows without."""
    tab.goto(ready.page)
    choose(tab)
    tab.locator("#prompted").scroll_into_view_if_needed()
    tab.click(".commands summary >> nth=-2")
    shoot(tab, f"{name}-beside", [folder])
    tab.fill("#temperature", "1.5")
    tab.click("summary:has-text('A temperature for each column')")
    tab.fill("#temperatures input >> nth=0", "0.8")
    tab.wait_for_timeout(3000)
    tab.locator("#temperatures").scroll_into_view_if_needed()
    shoot(tab, f"{name}-temperatures", [folder])


def dial(tab: Page, demo: Path, folder: Path, name: str) -> None:
    """A model with a front. Its points are made up: these pictures are for review only."""
    fitted = TabMT.load(demo / "model.tabmt").model_
    columns = list(fitted.codec.token_index)
    points = tuple(
        Point(dict.fromkeys(columns, t), 0.1 * n, 0.6, 0.1 * n, 0.6, 0.1 * n, 1.1 - 0.1 * n)
        for n, t in enumerate((0.7, 1.0, 1.4, 2.0), 1)
    )
    search = {"model": model_fingerprint(fitted), "trials": 4}
    real = {"privacy": 0.3, "quality": 0.5, "valid_quality": 0.5}
    with tempfile.TemporaryDirectory() as work:
        model = Path(shutil.copy(demo / "model.tabmt", work))
        Front("dcr", "detector", None, points, (), (), real, search).save(model.parent / "f.json")
        with served(Path(work) / "page", [str(model)]) as ready:
            tab.goto(ready.page)
            choose(tab)
            tab.focus("#dial")
            for _ in range(3):
                tab.keyboard.press("ArrowRight")
            tab.wait_for_timeout(3000)
            tab.locator("#dial").scroll_into_view_if_needed()
            shoot(tab, f"{name}-dial", [folder])


def failed(tab: Page, address: str, folder: Path, name: str) -> None:
    """A table that is too small, and a job that the server has left behind."""
    few = "\n".join(Path(penguins()).read_text().splitlines()[:21]).encode()
    tab.goto(address)
    small = {"name": "few.csv", "mimeType": "text/csv", "buffer": few}
    tab.set_input_files("#file", small)  # type: ignore[arg-type]
    tab.wait_for_url("**/tables/*")
    tab.click("button[value=synthesize]")
    tab.wait_for_url("**/jobs/*")
    tab.wait_for_selector(".badge.failed")
    shoot(tab, f"{name}-failed", [folder])


def left_alone(tab: Page, folder: Path, name: str) -> None:
    """A server that ends under an open page, and the job that it was running."""
    with tempfile.TemporaryDirectory() as work:
        with served(Path(work), []) as ready:
            learn(tab, ready.page, folder, name)
            job = tab.url.removeprefix(ready.access.address)
        tab.wait_for_selector("#alert:not([hidden])")
        shoot(tab, f"{name}-server-gone", [folder])
        with served(Path(work), []) as ready:
            tab.goto(ready.page)
            tab.goto(f"{ready.access.address}{job}")
            shoot(tab, f"{name}-interrupted", [folder], whole=True)


def learn(tab: Page, address: str, folder: Path, name: str) -> None:
    """Drop the table, change a kind, and begin to fit."""
    tab.goto(address)
    tab.dispatch_event("#drop", "dragenter")
    shoot(tab, f"{name}-drop", [folder])
    tab.set_input_files("#file", penguins())
    tab.wait_for_url("**/tables/*")
    tab.select_option("[data-column=year]", "numeric")
    tab.wait_for_selector("#kinds-status.good")
    tab.click(".commands summary")
    shoot(tab, f"{name}-override", [folder], whole=True)
    tab.click("button[value=fit]")
    tab.wait_for_url("**/jobs/*")
    tab.wait_for_selector("#details:has-text('validation loss')")


def stopped(tab: Page, address: str, folder: Path, name: str, *, every: bool) -> None:
    """The columns of a table; every: fit it for a moment, and keep the model."""
    tab.goto(address)
    tab.set_input_files("#file", penguins())
    tab.wait_for_url("**/tables/*")
    shoot(tab, f"{name}-columns", [folder])
    if not every:
        return
    tab.click("button[value=fit]")
    tab.wait_for_url("**/jobs/*")
    tab.wait_for_selector("#details:has-text('validation loss')")
    tab.wait_for_timeout(4000)
    shoot(tab, f"{name}-training", [folder], whole=True)
    tab.click("[data-action=stop]")
    tab.wait_for_selector(".badge.finished")
    shoot(tab, f"{name}-stopped", [folder])
    tab.goto(address)
    shoot(tab, f"{name}-home", [folder], whole=True)


def states(browser: Any, scheme: str, width: str, demo: Path, folder: Path, every: bool) -> None:
    """Pictures of each state in one look."""
    name = f"{width}-{scheme}"
    context = browser.new_context(
        color_scheme=scheme, viewport={"width": WIDTHS[width], "height": 860}
    )
    context.set_default_timeout(PATIENCE)
    tab = context.new_page()
    if every:
        with tempfile.TemporaryDirectory() as work, served(Path(work), []) as empty:
            tab.goto(empty.page)
            shoot(tab, f"{name}-empty", [folder])
    with (
        tempfile.TemporaryDirectory() as work,
        served(Path(work), [str(demo / "model.tabmt")]) as ready,
    ):
        tab.goto(ready.page)
        choose(tab)
        shoot(tab, f"{name}-model", [folder])
        if every:
            shoot(tab, f"{name}-model-whole", [folder], whole=True)
            beginnings(tab, ready, folder, name)
            wishes(tab, ready, folder, name)
            problems(tab, ready, folder, name)
        tab.goto(ready.page)
        tab.wait_for_selector("#status:has-text('without conditions')")
        tab.locator("iframe.report").scroll_into_view_if_needed()
        tab.evaluate("scrollTo(0, document.querySelector('.verdict').offsetTop - 20)")
        tab.frame_locator("iframe.report").locator("h1").first.wait_for()
        shoot(tab, f"{name}-verdict", [folder])
        stopped(tab, ready.access.address, folder, name, every=every)
        if every:
            failed(tab, ready.access.address, folder, name)
    if every:
        dial(tab, demo, folder, name)
        left_alone(tab, folder, name)
    context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", type=Path, help="folder for pictures of every state")
    parser.add_argument("--demo", type=Path, help="results folder of `tabmt demo`, if there is one")
    parser.add_argument(
        "--look", help="only one look, such as phone-dark, and not those of the docs"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        demo = arguments.demo or Path(scratch) / "demo"
        if arguments.demo is None:
            synthesize(penguins(), demo, target="species", minutes=1)
        pictures = arguments.all or Path(scratch) / "pictures"
        pictures.mkdir(parents=True, exist_ok=True)
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            for width in WIDTHS:
                for scheme in ("light", "dark"):
                    if arguments.look not in (None, f"{width}-{scheme}"):
                        continue
                    if arguments.all or (width, scheme) == ("desktop", "light"):
                        states(browser, scheme, width, demo, pictures, arguments.all is not None)
            browser.close()
        if arguments.look is not None:
            return
        IMAGES.mkdir(exist_ok=True)
        for state in ("model", "columns", "verdict"):
            shutil.copy(pictures / f"desktop-light-{state}.png", IMAGES / f"page-{state}.png")


if __name__ == "__main__":
    main()
