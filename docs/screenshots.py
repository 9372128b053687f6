"""Make the pictures of the page: docs/images/*.png, and more of them into a folder to review.

    python -m docs.screenshots [--all FOLDER]

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

from tabmt import penguins, synthesize
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
    tab.wait_for_selector("#status:has-text('as the model learned')")
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
    tab.wait_for_selector("#status:has-text('as the model learned')")
    tab.fill("#cells [name=species]", "Gentoo")
    tab.click("#write button")
    tab.wait_for_selector("#written table")
    tab.locator("#write").scroll_into_view_if_needed()
    shoot(tab, f"{name}-cells", [folder])


def learn(tab: Page, address: str, folder: Path, name: str, *, every: bool) -> None:
    """Drop the table and show its columns; learn it for a moment."""
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
            problems(tab, ready, folder, name)
        tab.goto(ready.page)
        tab.wait_for_selector("#status:has-text('as the model learned')")
        tab.locator("iframe.report").scroll_into_view_if_needed()
        tab.evaluate("scrollTo(0, document.querySelector('.verdict').offsetTop - 20)")
        tab.frame_locator("iframe.report").locator("h1").first.wait_for()
        shoot(tab, f"{name}-verdict", [folder])
        learn(tab, ready.access.address, folder, name, every=every)
    context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", type=Path, help="folder for pictures of every state")
    parser.add_argument("--demo", type=Path, help="results folder of `tabmt demo`, if there is one")
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
                    if arguments.all or (width, scheme) == ("desktop", "light"):
                        states(browser, scheme, width, demo, pictures, arguments.all is not None)
            browser.close()
        IMAGES.mkdir(exist_ok=True)
        for state in ("model", "columns", "verdict"):
            shutil.copy(pictures / f"desktop-light-{state}.png", IMAGES / f"page-{state}.png")


if __name__ == "__main__":
    main()
