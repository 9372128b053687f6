import re
import shutil
import sys
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from tabmt.evaluation.evaluate import Evaluator
from tabmt.evaluation.report.report import (
    associations,
    format_number,
    headlines,
    render,
    verdict,
    write_report,
)
from tests.tables import mixed_frame

HOSTILE = '<script>alert("x")</script>'
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def report():
    """A report on two tables with hostile column names and values."""

    def hostile(frame):
        renamed = frame.rename(columns={"height": HOSTILE, "weight": "{{ 7 * 7 }}"})
        return renamed.assign(city=renamed["city"].replace("Oslo", "<img src=x onerror=alert(1)>"))

    train, test, synthetic = (hostile(mixed_frame(150, seed=seed)) for seed in range(3))
    evaluator = Evaluator.of(train, test, target="group", catboost_settings={"iterations": 20})
    tables = {"synthetic": synthetic, HOSTILE: train}
    return render(evaluator, [evaluator.evaluate(table, name) for name, table in tables.items()])


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.names, self.attributes = set(), []

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        self.attributes += attrs


def test_hostile_names_and_values_stay_text(report):
    tags = Tags()
    tags.feed(report)
    assert not tags.names & {"script", "img", "iframe", "object", "link", "foreignobject"}
    assert not [name for name, _ in tags.attributes if name.startswith("on")]
    assert "&lt;script&gt;" in report and "{{ 7 * 7 }}" in report


def test_attacks_are_explained_by_rates_and_by_the_success_on_test_rows(report):
    assert "true positive rate at 1 % false positives" in report
    assert (
        "Share of training rows on which the worst attack succeeds beyond its success on test rows."
        in report
    )


def test_the_report_needs_no_other_host(report):
    outside = [url for url in re.findall(r"https?://[^\s\"'<]+", report) if "w3.org" not in url]
    assert outside == []
    assert "default-src 'none'" in report


def test_the_report_is_small_and_shows_every_part(report):
    assert len(report.encode()) < 6_000_000
    for part in ("Comparison of 2 synthetic tables", "Columns", "Relations between columns",
                 "Privacy", "Missing values", "All scores", "Columns left out"):  # fmt: skip
        assert part in report
    assert report.count("<svg") >= 2 * (7 + 3 + 3)
    comparison = report[: report.index("<section>")]
    assert "Safe by these tests" in comparison and "Do not share these rows" in comparison


def test_a_report_file_is_complete_and_the_only_file_written(tmp_path):
    train, test, synthetic = (mixed_frame(100, seed=seed) for seed in range(3))
    evaluator = Evaluator.of(train, test)
    write_report(evaluator, [evaluator.evaluate(synthetic, "synthetic")], tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text().rstrip().endswith("</html>")
    assert len(list(tmp_path.iterdir())) == 1


def test_the_verdict_warns_of_copies_and_does_not_of_fresh_rows():
    train, test, synthetic = (mixed_frame(300, seed=seed) for seed in range(3))
    evaluator = Evaluator.of(train, test, target="group")
    copied, fresh = (evaluator.evaluate(table).evaluation for table in (train, synthetic))
    assert verdict(copied)[0] == "Do not share these rows."
    assert verdict(copied)[1] == (
        "300 training rows are repeated exactly; expected by chance: none."
    )
    assert verdict(fresh)[:2] == [
        "Safe by these tests.",
        "No test finds that these rows reveal individual training rows. That is a check, not a "
        "guarantee.",
    ]
    positions = {item.score.name: item.position for item in headlines(copied)}
    assert positions["worst_attack"] < 0.1 < positions["detector_auc"]


def test_associations_are_the_strongest_correlations_of_two_columns():
    rng = np.random.default_rng(0)
    x = rng.normal(size=500)
    frame = pd.DataFrame({"x": x, "y": -x, "c": np.where(x > 0, "a", "b"), "z": rng.random(500)})
    evaluator = Evaluator.of(frame, frame)
    strength = associations(evaluator.train)
    assert strength[0, 1] == pytest.approx(1.0)
    assert strength[0, 2] == pytest.approx(abs(np.corrcoef(x, x > 0)[0, 1]))
    assert strength[0, 3] < 0.2 and np.isnan(strength[0, 0])


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "n/a"), (0, "0.000"), (0.5, "0.500"), (0.001234, "1.23e-03"), (12345.6, "12,346")],
)
def test_numbers_are_written_for_people(value, text):
    assert format_number(value) == text


@pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium package")
@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 1200), ("light", 390)])
def test_a_browser_shows_the_report_without_messages_or_requests(report, tmp_path, scheme, width):
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = tmp_path / "report.html"
    path.write_text(report, encoding="utf-8")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync",
             "--disable-component-update", "--no-first-run", "--disable-quic"]  # fmt: skip
    messages, requests = [], []
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        tab.on("console", lambda message: messages.append(message.text))
        tab.on("pageerror", lambda error: messages.append(str(error)))
        tab.on("dialog", lambda dialog: (messages.append(dialog.message), dialog.dismiss()))
        tab.on("request", lambda request: requests.append(request.url))
        tab.goto(path.as_uri())
        drawn = tab.evaluate(
            "[...document.querySelectorAll('figure svg')].map(s => s.getBoundingClientRect().width)"
        )
        scroll_width = tab.evaluate("document.documentElement.scrollWidth")
        tab.screenshot(path=str(tmp_path / f"report-{scheme}-{width}.png"), full_page=True)
        browser.close()
    assert messages == [] and requests == [path.as_uri()]
    assert len(drawn) > 20 and min(drawn) > 50
    assert scroll_width <= width
    print(f"screenshot in {tmp_path}", file=sys.stderr)


@pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium package")
def test_a_printed_report_hides_nothing_and_fits_the_paper(report, tmp_path):
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = tmp_path / "report.html"
    path.write_text(report, encoding="utf-8")
    width = 680  # pixels between the margins of A4
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": width, "height": 1000}, color_scheme="dark")
        tab.goto(path.as_uri())
        inside = "[...document.querySelectorAll('details > :last-child')]"
        on_screen = tab.evaluate(f"{inside}.map(e => e.checkVisibility())")
        tab.emulate_media(media="print")
        printed = tab.evaluate(f"{inside}.map(e => e.checkVisibility())")
        background = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        scroll_width = tab.evaluate("document.documentElement.scrollWidth")
        browser.close()
    assert len(printed) >= 4 and all(printed) and not any(on_screen)
    assert background == "rgb(255, 255, 255)"  # also of a dark desktop
    assert scroll_width <= width
