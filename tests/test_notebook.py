"""Progress in a notebook: a real kernel runs the cells, and its messages are read."""

import os

import pytest

from tabmt.progress import in_notebook

CELL = """
import os
import pandas as pd
import tabmt

SETTINGS = {"steps": 30, "threads": 1, "width": 16, "depth": 1, "heads": 2, "precision": "float32"}
table = pd.DataFrame({"x": [round(0.1 * n, 1) for n in range(80)], "<g>": ["a", "b"] * 40})
"""


@pytest.fixture(scope="module")
def run():
    """Run a cell; returns the pictures that it has displayed, and how often each was updated."""
    manager = pytest.importorskip("jupyter_client.manager", reason="ipykernel is not installed")
    pytest.importorskip("ipykernel")
    kernel, client = manager.start_new_kernel(
        kernel_name="python3", env={**os.environ, "OMP_NUM_THREADS": "1"}
    )

    def run_cell(code):
        shown, errors = [], []

        def on_output(message):
            if message["msg_type"] in ("display_data", "update_display_data"):
                shown.append((message["msg_type"], message["content"]["data"]))
            elif message["msg_type"] == "error":
                errors.append(message["content"]["evalue"])

        client.execute_interactive(code, output_hook=on_output, timeout=300)
        return shown, errors

    assert run_cell(CELL) == ([], [])
    yield run_cell
    client.stop_channels()
    kernel.shutdown_kernel(now=True)


def test_outside_a_notebook_there_is_no_bar():
    assert not in_notebook()


def test_a_fit_shows_its_progress_in_one_place(run):
    shown, errors = run("model = tabmt.TabMT(**SETTINGS).fit(table)")
    assert errors == []
    kinds = [kind for kind, _ in shown]
    assert kinds[0] == "display_data" and set(kinds[1:]) == {"update_display_data"}
    last = shown[-1][1]
    assert last["text/plain"].startswith("100%  step 30  loss ")
    assert 'value="1.000"' in last["text/html"]


def test_a_fit_with_its_own_function_shows_no_bar(run):
    steps = "steps = []\ntabmt.TabMT(**SETTINGS).fit(table, on_step=steps.append)\nassert steps"
    shown, errors = run(steps)
    assert (shown, errors) == ([], [])


@pytest.mark.slow
def test_all_stages_and_an_evaluation_show_their_progress(run, tmp_path):
    shown, errors = run(f"done = tabmt.synthesize(table, {str(tmp_path / 'all')!r}, **SETTINGS)")
    assert errors == []
    words = [data["text/plain"] for _, data in shown]
    assert words[-1].startswith("100%  4/4 evaluating")
    shown, errors = run("scores = tabmt.evaluate(str(done.synthetic), str(done.train))")
    assert errors == [] and shown[0][0] == "display_data"
    assert shown[-1][1]["text/plain"].startswith("100%  ")


def test_the_words_of_a_bar_are_escaped(run):
    code = "from tabmt.progress import notebook_bar\nwith notebook_bar() as draw: draw(0.5, '<b>&')"
    shown, errors = run(code)
    assert errors == [] and "<code>&lt;b&gt;&amp;</code>" in shown[-1][1]["text/html"]


def test_an_error_leaves_the_bar_where_it_was(run):
    code = (
        "from tabmt.progress import notebook_bar\n"
        "with notebook_bar() as draw:\n    draw(0.5, 'half')\n    raise ValueError('no')"
    )
    shown, errors = run(code)
    assert errors == ["no"] and shown[-1][1]["text/plain"] == "50%  half"
