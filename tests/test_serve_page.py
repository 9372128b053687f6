"""The page in a real browser: what people do on it, without a message or an outside request."""

import contextlib
import shutil
from pathlib import Path

import pandas as pd
import pytest

from tabmt.search.pareto_front import Front, Point
from tests.serving import running
from tests.tables import mixed_frame

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text(encoding="utf-8")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync",
         "--disable-component-update", "--no-first-run", "--disable-quic"]  # fmt: skip
PATIENCE = 300_000  # milliseconds: machines of tests may be busy

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium package"),
]


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def served(fitted, tmp_path_factory):
    folder = tmp_path_factory.mktemp("serve")
    fitted.save(folder / "people.tabmt")
    with running(folder / "work", [folder / "people.tabmt"]) as server:
        yield server


@contextlib.contextmanager
def opened(browser, address, expected=(), **options):
    """A tab; at its end there was no message of the browser and no request to another host."""
    context = browser.new_context(accept_downloads=True, **options)
    context.set_default_timeout(PATIENCE)
    messages, requests = [], []
    tab = context.new_page()
    tab.on("console", lambda message: messages.append(message.text))
    tab.on("pageerror", lambda error: messages.append(str(error)))
    tab.on("request", lambda request: requests.append(request.url))
    tab.goto(address)
    yield tab
    origin = address.partition("?")[0]
    assert [m for m in messages if not any(word in m for word in expected)] == []
    outside = [url for url in requests if not url.startswith((origin[:20], "blob:", "data:"))]
    assert outside == []
    context.close()


def ready(tab):
    """Wait until the pictures of a model are drawn."""
    tab.wait_for_selector("#columns[aria-busy=false] .card")
    tab.wait_for_selector("#status:has-text('charts')")


def violations(tab):
    """What axe finds on a page."""
    tab.evaluate(AXE)
    found = tab.evaluate("async () => (await axe.run()).violations")
    return [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found]


def downloaded(tab, path):
    with tab.expect_download() as download:
        tab.click("#download")
    download.value.save_as(path)
    return pd.read_csv(path)


def test_a_person_chooses_rows_and_downloads_them(browser, served, tmp_path):
    with opened(browser, served.opened.page) as tab:
        ready(tab)
        tab.click("[data-column=group] .bar:has-text('a')")
        tab.fill("[aria-label='height from']", "155")
        tab.press("[aria-label='height from']", "Enter")
        tab.click("[aria-label='city not missing']")
        tab.wait_for_selector("#status:has-text('your 3')")
        assert tab.locator("#chips button").count() == 3
        tab.fill("#rows", "60")
        tab.click("summary:has-text('More settings')")
        rows = downloaded(tab, tmp_path / "rows.csv")
        assert len(rows) == 60
        assert set(rows["group"]) == {"a"} and rows["height"].min() >= 155
        assert rows["city"].notna().all()
        shown = tab.text_content("[data-command]")
        assert "--where 'group = a'" in shown and "--where 'height >= 155'" in shown
        tab.click("#chips button >> nth=0")
        tab.wait_for_selector("#status:has-text('your 2')")


def test_a_range_is_dragged_and_a_mistake_is_said(browser, served):
    with opened(browser, served.opened.page, expected=("422",)) as tab:
        ready(tab)
        picture = tab.locator("[data-column=height] .histogram")
        picture.scroll_into_view_if_needed()
        box = picture.bounding_box()
        tab.mouse.move(box["x"] + 0.45 * box["width"], box["y"] + 40)
        tab.mouse.down()
        tab.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 40, steps=4)
        tab.mouse.up()
        tab.wait_for_selector("#chips button:has-text('height from')")
        tab.wait_for_selector("#status:has-text('your con')")
        tab.fill("[aria-label='weight from']", "100000")
        tab.press("[aria-label='weight from']", "Enter")
        tab.wait_for_selector("#status.wrong")
        assert "weight" in tab.text_content("#status")
        saved = []
        tab.on("download", lambda one: saved.append(one))
        tab.click("#download")  # says why, and does not save the error as rows
        assert "weight" in tab.text_content("#alert")
        tab.click("#chips button:has-text('weight')")
        tab.wait_for_selector("#status:has-text('your con')")
        tab.fill("#rows", "0")
        tab.click("#download")
        tab.wait_for_timeout(500)
        assert saved == [] and tab.evaluate("document.activeElement.id") == "rows"


def test_some_cells_are_written_and_the_rest_is_drawn(browser, served):
    with opened(browser, served.opened.page) as tab:
        ready(tab)
        tab.fill("#cells [name=group]", "b")
        tab.fill("#cells [name=height]", "165")
        tab.fill("#cells [name=weight]", "?")
        tab.click("#write button")
        tab.wait_for_selector("#written table")
        cells = tab.locator("#written tbody tr >> nth=0").locator("td").all_text_contents()
        assert cells[1:3] == ["b", "165"]
        assert tab.locator("#written tbody tr").count() == 5
        tab.wait_for_selector("#write-status.good")
        tab.click("#cells-commands summary")
        assert "tabmt complete" in tab.text_content("[data-cells-command]")
        assert "'height': '165'" in tab.text_content("[data-cells-python]")
        assert violations(tab) == []


def test_the_dial_follows_the_front(browser, fitted, tmp_path):
    fitted.save(tmp_path / "people.tabmt")
    from tabmt.model.model_file import model_fingerprint

    columns = list(fitted.model_.codec.token_index)
    points = tuple(
        Point(dict.fromkeys(columns, t), 0.1 * n, 0.6, 0.1 * n, 0.6, 0.1 * n, 0.6)
        for n, t in enumerate((0.7, 1.0, 2.0), 1)
    )
    search = {"model": model_fingerprint(fitted.model_), "trials": 3}
    real = {"privacy": 0.3, "quality": 0.5, "valid_quality": 0.5}
    Front("dcr", "detector", None, points, (), (), real, search).save(tmp_path / "front.json")
    with (
        running(tmp_path / "work", [tmp_path / "people.tabmt"]) as served,
        opened(browser, served.opened.page) as tab,
    ):
        ready(tab)
        assert violations(tab) == []
        tab.focus("#dial")
        tab.keyboard.press("ArrowRight")
        assert tab.text_content("#dial-words") == (
            "Point 1 of 3: distance to the closest training row (more is more private): 0.100; "
            "detector AUC (0.5 is best): 0.600."
        )
        tab.wait_for_selector("[data-command]:has-text('group=0.7')", state="attached")
        tab.wait_for_selector("#status:has-text('with your temperatures')")
        assert "point%22%3A1" in tab.get_attribute("#download", "href")


def test_temperatures_of_single_columns_are_those_of_the_download(browser, served, tmp_path):
    with opened(browser, served.opened.page) as tab:
        ready(tab)
        tab.fill("#temperature", "1.5")
        tab.wait_for_selector("#status:has-text('with your temperatures')")
        tab.click("summary:has-text('A temperature for each column')")
        tab.fill("#temperatures label:has-text('group') input", "0.7")
        tab.wait_for_selector("[data-command]:has-text('group=0.7')", state="attached")
        assert "height=1.5" in tab.text_content("[data-command]")
        tab.fill("#rows", "30")
        rows = downloaded(tab, tmp_path / "rows.csv")
        namespace = {}
        tab.wait_for_selector("[data-python]:has-text('sample(30,')", state="attached")
        exec(tab.text_content("[data-python]"), namespace)
        assert namespace["rows"]["visits"].tolist() == rows["visits"].tolist()
        assert violations(tab) == []


def test_a_file_comes_to_a_verdict_and_to_rows(browser, tmp_path):
    table = tmp_path / "people.csv"
    mixed_frame(1000).to_csv(table, index=False)  # so many that training does not end by itself
    with running(tmp_path / "work") as served, opened(browser, served.opened.page) as tab:
        assert "There is nothing here yet" in tab.text_content("main")
        assert violations(tab) == []
        tab.set_input_files("#file", table)
        tab.wait_for_url("**/tables/*")
        tab.select_option("[data-column=visits]", "numeric")
        tab.wait_for_selector("#kinds-status.good")
        assert violations(tab) == []
        tab.fill("[name=rows]", "90")
        assert "--rows 90 --schema schema.json" in tab.text_content("[data-command]")
        tab.click("button[value=synthesize]")
        tab.wait_for_url("**/jobs/*")
        tab.wait_for_selector("[data-action=stop]:enabled")
        tab.wait_for_selector("#curves svg")
        assert violations(tab) == []
        tab.click("[data-action=stop]")
        tab.wait_for_selector(".verdict", timeout=2 * PATIENCE)
        frame = tab.frame_locator("iframe.report")
        frame.locator("h2:has-text('Columns')").first.wait_for()
        assert frame.locator("figure svg").count() > 10
        assert violations(tab) == []
        tab.click("a:has-text('Generate rows')")
        ready(tab)
        tab.fill("#rows", "40")
        assert len(downloaded(tab, tmp_path / "rows.csv")) == 40
        tab.goto(served.address)
        assert tab.locator("main table").count() == 2
        assert violations(tab) == []
        tab.set_viewport_size({"width": 390, "height": 800})
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390


def test_ten_thousand_rows_are_dropped_and_come_to_a_verdict(browser, tmp_path):
    """Mixed columns with gaps and dates; the browser's own drop, nothing on the command line."""
    content = mixed_frame(10_000, seed=7).to_csv(index=False)
    with running(tmp_path / "work") as served, opened(browser, served.opened.page) as tab:
        drop(tab, "people.csv", content)
        tab.wait_for_url("**/tables/*")
        assert "10,000 rows, 8 columns" in tab.text_content("main")
        kinds = {
            select.get_attribute("data-column"): select.input_value()
            for select in tab.locator("select[data-column]").all()
        }
        assert kinds["id"] == "id" and kinds["since"] == "datetime" and kinds["height"] == "numeric"
        tab.select_option("[name=minutes]", "1")
        tab.click("button[value=synthesize]")
        tab.wait_for_url("**/jobs/*")
        tab.wait_for_selector("#details:has-text('left.')")
        tab.wait_for_selector("#curves svg")
        tab.wait_for_selector(".verdict", timeout=2 * PATIENCE)
        assert tab.locator(".facts dd").count() == 3
        tab.frame_locator("iframe.report").locator("h2:has-text('Columns')").first.wait_for()
        tab.click("a:has-text('Generate rows')")
        ready(tab)
        tab.fill("[aria-label='since from']", "2020-06-01")
        tab.press("[aria-label='since from']", "Enter")
        tab.wait_for_selector("#status:has-text('your condition')")
        tab.fill("#rows", "200")
        rows = downloaded(tab, tmp_path / "rows.csv")
        assert len(rows) == 200 and list(rows.columns) == list(mixed_frame(1).columns)
        assert rows["since"].min() >= "2020-06-01" and rows["city"].isna().any()


def test_rows_of_another_program_are_evaluated(browser, tmp_path):
    with running(tmp_path / "work") as served, opened(browser, served.opened.page) as tab:
        for seed, name in enumerate(("train.csv", "test.csv", "rows.csv")):
            tab.goto(served.address)
            drop(tab, name, mixed_frame(130, seed).to_csv(index=False))
            tab.wait_for_url("**/tables/*")
        tab.select_option("#evaluate [name=train]", label="train.csv")
        tab.select_option("#evaluate [name=test]", label="test.csv")
        tab.select_option("#evaluate [name=target]", "group")
        shown = tab.text_content("[data-evaluate-command]")
        assert shown == (
            "tabmt evaluate rows.csv --train train.csv --test test.csv --target group "
            "--report report.html"
        )
        assert violations(tab) == []
        tab.click("#evaluate button")
        tab.wait_for_url("**/jobs/*")
        tab.wait_for_selector(".verdict", timeout=2 * PATIENCE)
        assert tab.text_content("[data-command]") == shown
        tab.frame_locator("iframe.report").locator("h2:has-text('Columns')").first.wait_for()


def drop(tab, name, content):
    """Drop a file on the page as the browser does."""
    transfer = tab.evaluate_handle(
        """([name, content]) => {
            const transfer = new DataTransfer();
            transfer.items.add(new File([content], name, { type: "text/csv" }));
            return transfer;
        }""",
        [name, content],
    )
    for event in ("dragenter", "dragover", "drop"):
        tab.dispatch_event("#drop", event, {"dataTransfer": transfer})


def test_a_dropped_file_that_is_no_table_is_refused_with_a_sentence(browser, served, tmp_path):
    (tmp_path / "notes.csv").write_bytes(b"\0\0\0")
    with opened(browser, served.opened.page, expected=("422",)) as tab:
        tab.click(".brand")
        tab.set_input_files("#file", tmp_path / "notes.csv")
        tab.wait_for_selector("#upload-status.wrong")
        assert "'notes.csv'" in tab.text_content("#upload-status")


def test_a_wrong_token_and_a_login_that_has_ended(browser, fitted, tmp_path):
    fitted.save(tmp_path / "people.tabmt")
    with running(tmp_path / "work", [tmp_path / "people.tabmt"]) as served:
        wrong = f"{served.address}?token=wrong"
        with opened(browser, wrong, expected=("401",)) as tab:
            assert "Please open the printed address" in tab.text_content("main")
            assert violations(tab) == []
        with opened(browser, served.opened.page, expected=("401",)) as tab:
            ready(tab)
            served.opened.access._sessions.clear()  # as after twelve hours
            tab.click("[data-column=group] .bar >> nth=0")
            tab.wait_for_selector("#alert:not([hidden])")
            assert "no longer logged in" in tab.text_content("#alert")
            tab.wait_for_selector("#status:text-is('This page is logged out.')")


GONE = ("401", "ERR_CONNECTION_REFUSED")  # what a browser says of a server that is gone


def test_a_server_that_is_gone_and_started_again_under_an_open_page(browser, fitted, tmp_path):
    fitted.save(tmp_path / "people.tabmt")
    arguments = (tmp_path / "work", [tmp_path / "people.tabmt"])
    with contextlib.ExitStack() as stack:
        with running(*arguments) as served:
            tab = stack.enter_context(opened(browser, served.opened.page, GONE))
            ready(tab)
        tab.click("[data-column=group] .bar:has-text('a')")
        tab.wait_for_selector("#alert:has-text('cannot be reached')")
        served = stack.enter_context(running(*arguments, port=served.opened.access.port))
        tab.click("[data-column=group] .bar:has-text('b')")
        tab.wait_for_selector("#alert:has-text('no longer logged in')")
        tab.goto(served.opened.page)
        ready(tab)
        tab.click("[data-column=group] .bar:has-text('b')")
        tab.wait_for_selector("#status:has-text('your condition')")
        assert tab.is_hidden("#alert")


def test_a_job_that_was_interrupted_is_resumed_on_the_page(browser, tmp_path):
    table = tmp_path / "people.csv"
    mixed_frame(1000).to_csv(table, index=False)
    with contextlib.ExitStack() as stack:
        with running(tmp_path / "work") as served:
            tab = stack.enter_context(opened(browser, served.opened.page, GONE))
            tab.set_input_files("#file", table)
            tab.wait_for_url("**/tables/*")
            tab.click("button[value=fit]")
            tab.wait_for_url("**/jobs/*")
            tab.wait_for_selector("#curves svg")
        tab.wait_for_selector("#alert:has-text('cannot be reached')")
        port = served.opened.access.port
        served = stack.enter_context(running(tmp_path / "work", port=port))
        tab.wait_for_selector("#alert:has-text('no longer logged in')")
        tab.goto(served.opened.page)
        tab.click("table a:has-text('Fit a model')")
        tab.wait_for_selector(".badge.interrupted")
        assert violations(tab) == []
        tab.click("[data-action=resume]")
        tab.wait_for_selector("[data-action=stop]:enabled")
        tab.click("[data-action=stop]")
        tab.wait_for_selector(".badge.finished")


def test_two_tabs_do_not_disturb_each_other(browser, served):
    with opened(browser, served.opened.page) as tab:
        ready(tab)
        other = tab.context.new_page()
        other.goto(tab.url)
        ready(other)
        for page, group in ((tab, "a"), (other, "b")):
            page.click(f"[data-column=group] .bar:has-text('{group}')")
            page.wait_for_selector(f"#chips button:has-text('group: {group}')")
            page.wait_for_selector("#status:has-text('your condition')")
        for page, group in ((tab, "a"), (other, "b")):
            words = page.locator("#prompted tbody tr td:nth-child(2)").all_text_contents()
            assert set(words) == {group}


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 1200), ("dark", 390)])
def test_everyone_can_use_the_page(browser, served, scheme, width):
    options = {"color_scheme": scheme, "viewport": {"width": width, "height": 900}}
    with opened(browser, served.opened.page, **options) as tab:
        ready(tab)
        tab.click("[data-column=group] .bar >> nth=1")
        tab.wait_for_selector("#status:has-text('your con')")
        assert violations(tab) == []
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.evaluate("document.activeElement.dataset.key").startswith("group=")
