"""The search of temperatures on a small real table, with real trials, kills and databases."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from tabmt import TabMT, UserError, pareto, penguins
from tabmt.cli import main
from tabmt.search.pareto import UNIFORM
from tabmt.search.pareto_front import Front, hypervolume, non_dominated
from tabmt.search.trial_storage import StudyLocation, completed_trials
from tests.conftest import TINY

FAST = {"iterations": 20}  # of CatBoost


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Train, validation and test rows as files, with a model and CatBoost's settings."""
    folder = tmp_path_factory.mktemp("penguins")
    table = pd.read_csv(penguins()).sample(frac=1, random_state=0)
    table[:160].to_csv(folder / "train.csv", index=False)
    table[160:250].to_csv(folder / "val.csv", index=False)
    table[250:].to_csv(folder / "test.csv", index=False)
    (folder / "catboost.json").write_text(json.dumps(FAST))
    model = TabMT(steps=400, learning_rate=5e-3, patience=10, threads=1, **TINY)
    model.fit(folder / "train.csv")
    model.save(folder / "model.tabmt")
    return folder


def search(folder: Path, **options) -> Front:
    settings = {"trials": 12, "workers": 1, "catboost_settings": FAST, **options}
    return pareto(
        folder / "model.tabmt", folder / "train.csv", folder / "val.csv", "species", **settings
    )


@pytest.fixture(scope="module")
def front(folder) -> Front:
    return search(folder, test=folder / "test.csv", trials=40, rows=400)


def test_the_front_holds_what_no_trial_beats_from_faithful_to_private(front):
    tried = np.array(front.tried)
    assert len(tried) == 40 == front.search["trials"]
    expected = {tuple(row) for row in tried[non_dominated(tried)].tolist()}
    assert {(p.privacy, p.quality) for p in front.points} == expected
    assert [p.privacy for p in front.points] == sorted(p.privacy for p in front.points)
    assert [p.uniform_temperature for p in front.uniform] == sorted(UNIFORM)
    names = list(pd.read_csv(penguins()))
    for point in (*front.points, *front.uniform):
        assert list(point.temperatures) == names
        assert all(0.5 <= value <= 5.0 for value in point.temperatures.values())
    highest, lowest = front.uniform[-1], front.uniform[0]
    assert highest.privacy > lowest.privacy  # high temperatures lead away from training rows


def test_the_front_is_compared_with_one_temperature_by_area_on_unseen_rows(folder):
    options = {"trials": 30, "rows": 400, "sampler": "guided", "seed": 1}
    found = search(folder, test=folder / "test.csv", **options)
    front_area, uniform_area = found.gain()
    points, uniform = (
        np.array([(p.test_privacy, p.test_quality) for p in points])
        for points in (found.points, found.uniform)
    )
    worst = np.concatenate([points, uniform]).min(0) - 1e-9
    assert front_area == hypervolume(points, worst)
    assert uniform_area == hypervolume(uniform, worst)
    assert front_area > 0.9 * uniform_area > 0  # of 94 rows; docs/benchmarks.md has larger tables


def test_nsga2_counts_the_uniform_trials_to_its_first_generation(folder, tmp_path):
    storage = str(tmp_path / "trials.journal")
    search(folder, trials=20, rows=60, storage=storage)
    trials = StudyLocation(storage, "search", ("maximize", "maximize")).open().trials
    generations = [t.system_attrs["NSGAIISampler:generation"] for t in trials]
    first = generations[: len(UNIFORM)]
    assert first == sorted(first) and first[0] == 0
    assert max(generations) > 0


def test_with_other_test_rows_points_are_scored_again(folder, tmp_path):
    storage = str(tmp_path / "trials.journal")
    tests = pd.read_csv(folder / "test.csv")
    one, two, other = (
        search(folder, trials=2, rows=60, storage=storage, test=rows)
        for rows in (tests[:40], tests[:40], tests[40:])
    )
    assert one.points == two.points  # nothing was drawn again
    for before, after in zip(one.points, other.points, strict=True):
        assert before.valid_quality == after.valid_quality
        assert before.test_quality != after.test_quality
    with pytest.raises(UserError, match="were made with tables"):  # other validation rows
        search(folder, trials=2, rows=60, storage=storage)


def test_validation_rows_as_test_rows_are_refused_and_training_rows_give_a_warning(folder, caplog):
    with pytest.raises(UserError, match="The test and validation tables are the same, but"):
        search(folder, trials=1, test=folder / "val.csv")
    half = pd.read_csv(folder / "train.csv")[:100]
    pareto(folder / "model.tabmt", half, half[:80], "species", trials=1, rows=60, workers=1,
           catboost_settings=FAST)  # fmt: skip
    assert "The training table has 100 rows, but the model was fitted on 160" in caplog.text
    assert "100 % of the validation rows are also training rows" in caplog.text


def test_a_detector_needs_no_target(folder):
    found = pareto(folder / "model.tabmt", folder / "train.csv", folder / "val.csv", trials=5,
                   rows=60, workers=1, quality="detector", sampler="guided")  # fmt: skip
    assert found.target is None and len(found.tried) == 5


def test_searches_with_different_names_share_a_database(folder, tmp_path):
    storage = f"sqlite:///{tmp_path}/trials.db"
    one, two = (
        search(folder, trials=2, rows=rows, storage=storage, study=name)
        for rows, name in ((60, "one"), (61, "two"))
    )
    assert one.tried != two.tried
    again = search(folder, trials=2, rows=60, storage=storage, study="one")
    assert (again.tried, again.points) == (one.tried, one.points)


def test_a_table_without_a_column_is_refused(folder):
    short = pd.read_csv(folder / "val.csv").drop(columns="sex")
    with pytest.raises(UserError, match=r"The table has no column 'sex'; it has: species, island"):
        pareto(folder / "model.tabmt", folder / "train.csv", short, "species", trials=2)


def test_a_front_of_another_table_is_not_applied(front):
    other = TabMT(steps=2, **TINY).fit(pd.DataFrame({"a": [1, 2, 3] * 20, "b": list("xyz") * 20}))
    with pytest.raises(UserError, match="they belong to another model"):
        other.with_temperatures(front.points[0].temperatures)


@pytest.mark.parametrize("sampler", ["tpe", "gp", "guided", "random"])
def test_every_sampler_searches_within_bounds(folder, sampler):
    found = search(folder, sampler=sampler, trials=13, rows=60)
    assert len(found.tried) == 13
    values = [value for p in found.points for value in p.temperatures.values()]
    assert all(0.5 <= value <= 5.0 for value in values)


@pytest.mark.parametrize(
    ("privacy", "quality"), [("closer", "mle"), ("attack", "detector")], ids=str
)
def test_the_front_also_holds_what_no_trial_beats_if_less_is_better(folder, privacy, quality):
    found = search(folder, trials=4, rows=100, privacy=privacy, quality=quality)
    tried = np.array(found.tried)
    signed = tried * [-1, 1 if quality == "mle" else -1]
    expected = {tuple(row) for row in tried[non_dominated(signed)].tolist()}
    assert {(p.privacy, p.quality) for p in found.points} == expected
    assert [p.privacy for p in found.points] == sorted(p.privacy for p in found.points)[::-1]


def test_the_same_seed_finds_the_same_front(folder):
    one, two = (search(folder, trials=12, rows=60, seed=3) for _ in range(2))
    assert one.tried == two.tried and one.points == two.points


def test_an_applied_point_is_what_sample_uses(front, folder, tmp_path):
    model = TabMT.load(folder / "model.tabmt")
    point = front.points[0]
    applied = model.with_temperatures(point.temperatures)
    applied.save(tmp_path / "applied.tabmt")
    loaded = TabMT.load(tmp_path / "applied.tabmt")
    expected = model.sample(200, seed=1, temperature=point.temperatures)
    assert loaded.sample(200, seed=1).equals(expected)
    assert not model.sample(200, seed=1).equals(expected)
    # Temperatures of a call count before those of the model.
    plain = model.sample(200, seed=1)
    assert loaded.sample(200, seed=1, temperature=1.0).equals(plain)
    mixed = {**point.temperatures, "sex": 0.7}
    one = loaded.sample(200, seed=1, temperature={"sex": 0.7})
    assert one.equals(model.sample(200, seed=1, temperature=mixed))


def test_points_are_scored_again_on_fresh_samples(front):
    """Three tables of the same temperatures: of the trial, on validation and on test rows."""
    for point in (*front.points, *front.uniform):
        found = {point.privacy, point.valid_privacy, point.test_privacy}
        assert len(found) == 3


def test_a_front_is_the_same_after_saving_and_loading(front, tmp_path):
    front.save(tmp_path / "front.json")
    assert Front.load(tmp_path / "front.json") == front


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.clear(),
        lambda data: data.update(privacy="bla"),
        lambda data: data.update(real={}),
        lambda data: data.update(search={}),
        lambda data: data.update(points=[]),
        lambda data: data["uniform"][0].update(uniform_temperature=None),
        lambda data: data["points"][0].update(valid_quality="0.5"),
        lambda data: data["points"][0]["temperatures"].update(sex=-1),
        lambda data: data["points"][0]["temperatures"].update(sex="hot"),
    ],
)
def test_a_file_that_is_no_front_is_refused(front, tmp_path, change):
    data = front.to_json()
    data = json.loads(json.dumps(data))
    change(data)
    (tmp_path / "other.json").write_text(json.dumps(data))
    with pytest.raises(UserError, match=r"is not a front that `tabmt pareto search`"):
        Front.load(tmp_path / "other.json")


# --- killed, resumed, shared --------------------------------------------------------------------


def trials_in(storage: str) -> dict[int, list[float]]:
    study = StudyLocation(storage, "search", ("maximize", "maximize")).open()
    return {trial.number: trial.values for trial in completed_trials(study)}


def command_of(folder: Path, *options: object) -> list[str]:
    command = [sys.executable, "-m", "tabmt.cli", "pareto", "search", folder / "model.tabmt"]
    command += ["--train", folder / "train.csv", "--valid", folder / "val.csv"]
    command += ["--target", "species", "--catboost", folder / "catboost.json"]
    command += ["-o", "front.json", *options]
    return [str(word) for word in command]


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["trials.journal", "sqlite:///trials.db"])
def test_a_killed_search_continues_and_loses_no_finished_trial(folder, tmp_path, storage):
    few = ("--rows", 100, "--final-rows", 100)
    command = command_of(folder, "--storage", storage, "--trials", 12, "--workers", 2, *few)
    running = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    where = storage.replace("sqlite:///", f"sqlite:///{tmp_path}/")
    where = where if "://" in where else str(tmp_path / storage)
    file = Path(where.removeprefix("sqlite:///"))
    before: dict[int, list[float]] = {}
    while len(before) < 4:
        assert running.poll() is None, "it ended before it could be killed"
        time.sleep(0.2)
        if file.exists() and file.stat().st_size > 2000:
            before = trials_in(where)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    assert not (tmp_path / "front.json").exists()
    before |= trials_in(where)
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    after = trials_in(where)
    assert len(after) >= 12 and all(after[number] == values for number, values in before.items())
    found = Front.load(tmp_path / "front.json")
    assert {tuple(values) for values in after.values()} == set(found.tried)
    # The uniform trials that the kill interrupted were done again.
    assert [p.uniform_temperature for p in found.uniform] == sorted(UNIFORM)


def test_an_interrupted_search_says_how_to_continue(folder, tmp_path):
    command = command_of(folder, "--trials", 500, "--workers", 1)
    running = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    assert any(line.startswith("trial 2 of 500") for line in running.stderr)
    running.send_signal(signal.SIGINT)
    output = running.communicate()[1]
    assert running.returncode == 130
    assert output.endswith(
        "Interrupted; run the same command to resume with the trials in front.trials.\n"
    )
    assert "Traceback" not in output


def test_two_workers_never_do_the_same_trial_and_no_more_than_asked(folder, tmp_path):
    storage = str(tmp_path / "trials.journal")
    search(folder, storage=storage, workers=2, trials=13, rows=60)
    study = StudyLocation(storage, "search", ("maximize", "maximize")).open()
    assert [trial.number for trial in study.trials] == list(range(13))
    temperatures = {tuple(trial.params.values()) for trial in study.trials}
    assert len(temperatures) == 13
    workers = {tuple(trial.user_attrs["worker"]) for trial in study.trials}
    assert len(workers) == 2


def test_trials_of_another_search_are_not_continued(folder, tmp_path):
    storage = str(tmp_path / "trials.journal")
    search(folder, storage=storage, trials=2, rows=60)
    with pytest.raises(UserError) as error:
        search(folder, storage=storage, trials=2, rows=61)
    assert str(error.value) == (
        f"The trials in {storage!r} were made with rows 60, not 61. Use the same value to "
        "resume, or another storage or study."
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"sampler": "nsga9"}, "sampler is 'nsga9', but must be one of: nsga2, tpe, gp, guided"),
        ({"privacy": "mle"}, "privacy is 'mle', but must be one of: dcr, closer, attack."),
        ({"trials": 0}, "trials is 0, but must be a whole number of at least 1."),
        ({"minutes": 0}, "minutes is 0, but must be a number above 0."),
        ({"minutes": "x"}, "minutes is 'x', but must be a number above 0."),
        ({"storage": "no/such/trials"}, "There is no folder"),
        ({"storage": "nosql://x/y"}, "The storage 'nosql://x/y' cannot be used:"),
        (
            {"catboost_settings": {"num_trees": "5"}},
            "CatBoost's iterations are '5', but must be a whole number of at least 1.",
        ),
    ],
)
def test_a_search_with_invalid_options_is_refused(folder, options, sentence):
    with pytest.raises(UserError) as error:
        search(folder, **options)
    assert str(error.value).startswith(sentence)


def test_any_seed_and_catboosts_other_names_for_iterations_are_accepted(folder):
    found = search(folder, trials=2, rows=60, seed=-1, catboost_settings={"n_estimators": 5})
    assert len(found.tried) == 2


def test_too_few_rows_to_evaluate_are_refused(folder):
    two = pd.read_csv(folder / "val.csv").dropna().head(2)
    with pytest.raises(UserError, match="Cannot score real rows: too few validation or test rows"):
        pareto(folder / "model.tabmt", folder / "train.csv", two, "body_mass_g", trials=2,
               catboost_settings=FAST, workers=1)  # fmt: skip


def test_without_optuna_a_search_says_what_to_install(folder, front, tmp_path):
    front.save(tmp_path / "front.json")
    blocked = "import sys; sys.modules['optuna'] = None; from tabmt.cli import main; main()"

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", blocked, "pareto", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    model = folder / "model.tabmt"
    done = run("search", model, "--train", folder / "train.csv", "--valid", folder / "val.csv",
               "--target", "species", "-o", "other.json")  # fmt: skip
    assert done.returncode == 2
    assert (
        done.stderr.strip()
        == "Error: A search needs Optuna: install the extra search, with pip install "
        "'tabmt[search]', or pip install '.[search]' in a clone."
    )
    done = run("apply", "front.json", model, "--point", 1, "-o", "private.tabmt")
    assert done.returncode == 0, done.stderr


# --- the command line ---------------------------------------------------------------------------


def test_apply_and_show_on_the_command_line(front, folder, tmp_path):
    front.save(tmp_path / "front.json")

    def tabmt(*arguments) -> str:
        done = CliRunner().invoke(main, ["pareto", *map(str, arguments)])
        assert done.exit_code == 0, done.output
        return done.output

    quality = sorted(p.valid_quality for p in front.points)[0]
    output = tabmt("apply", tmp_path / "front.json", folder / "model.tabmt", "--quality", quality,
                   "-o", tmp_path / "private.tabmt")  # fmt: skip
    assert "on test rows, which were not used to choose" in output
    stored = TabMT.load(tmp_path / "private.tabmt").card_.temperatures
    assert stored == front.choose(quality=quality).temperatures
    assert f"point {front.points.index(front.choose(quality=quality)) + 1}: dcr" in output
    # A model with temperatures is still the one that was searched.
    output = tabmt("apply", tmp_path / "front.json", tmp_path / "private.tabmt", "--point", 1, "-o",
                   tmp_path / "again.tabmt")  # fmt: skip
    assert "another fit" not in output
    most = front.real["valid_quality"] + 1
    tabmt("apply", tmp_path / "front.json", folder / "model.tabmt", "--quality-loss", most, "-o",
          tmp_path / "private.tabmt")  # fmt: skip
    stored = TabMT.load(tmp_path / "private.tabmt").card_.temperatures
    assert stored == front.choose(quality_loss=most).temperatures
    for name, start in (("a.svg", b"<svg"), ("a.png", b"\x89PNG"), ("a.html", b"<!doctype html>")):
        tabmt("show", tmp_path / "front.json", "-o", tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)
    html = (tmp_path / "a.html").read_text()
    assert "<script" not in html and "real rows" in html

    wrong = CliRunner().invoke(
        main, ["pareto", "show", str(tmp_path / "front.json"), "-o", str(tmp_path / "a.gif")]
    )
    assert wrong.exit_code == 2 and "must end in .svg or .png or .html." in wrong.output


def test_a_search_overwrites_no_file_that_it_reads(folder, tmp_path):
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps(FAST))
    for more, sentence in (
        (["--catboost", settings], "is also an input of this command"),
        (["--storage", settings], "so it is not replaced"),
    ):
        done = CliRunner().invoke(
            main,
            ["pareto", "search", str(folder / "model.tabmt"), "--train", str(folder / "train.csv"),
             "--valid", str(folder / "val.csv"), "-o", str(settings), *map(str, more)],
        )  # fmt: skip
        assert done.exit_code == 2
        assert sentence in " ".join(done.output.split())
    assert json.loads(settings.read_text()) == FAST


def test_a_target_named_like_markup_is_shown_as_it_is(front, tmp_path):
    dataclasses.replace(front, target="[/b]").save(tmp_path / "front.json")
    done = CliRunner().invoke(main, ["pareto", "show", str(tmp_path / "front.json")])
    assert done.exit_code == 0 and "[/b]" in done.output


def test_a_report_can_show_the_front(front, folder, tmp_path):
    front.save(tmp_path / "front.json")
    done = CliRunner().invoke(
        main,
        ["evaluate", str(folder / "val.csv"), "--train", str(folder / "train.csv"), "--test",
         str(folder / "test.csv"), "--report", str(tmp_path / "r.html"), "--front",
         str(tmp_path / "front.json")],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "temperatures along the front" in (tmp_path / "r.html").read_text()
