"""The search of settings on a small real table."""

import tomllib

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from tabmt import TabMT, UserError, tune
from tabmt.cli import main
from tabmt.demo import penguins
from tabmt.report.front import importance_picture
from tabmt.search.studies import Place, complete
from tabmt.search.tune import SPACES

QUICK = {"minutes": 0.01, "workers": 1, "catboost_settings": {"iterations": 20}}


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return pd.read_csv(penguins()).sample(frac=1, random_state=0)


@pytest.mark.parametrize("objective", ["mle", "likelihood"])
def test_the_best_of_the_trials_is_told_beside_the_defaults(table, tmp_path, objective):
    storage = str(tmp_path / "trials.journal")
    found = tune(table, "species", trials=4, objective=objective, storage=storage, **QUICK)
    trials = complete(Place(storage, "tune", ("maximize",)).open())
    scores = [trial.value for trial in trials]
    assert found.best.score == max([found.default.score, *scores])
    assert found.default.settings == {"minutes": 0.01, "target": "species"}
    chosen = {} if found.best.score == found.default.score else trials[np.argmax(scores)].params
    assert found.best.settings == {**found.default.settings, **chosen}
    assert found.best.again is not None and found.default.again is not None
    assert found.tried == 4 and len(trials) + found.pruned == 3
    assert not scores or set(trials[0].params) == set(SPACES["cpu"])


def test_tuning_goes_on_where_it_was(table, tmp_path):
    storage = f"sqlite:///{tmp_path}/trials.db"
    options = {"objective": "likelihood", "storage": storage, **QUICK}
    one = tune(table, "species", trials=2, **options)
    before = complete(Place(storage, "tune", ("maximize",)).open())
    two = tune(table, "species", trials=3, **options)
    after = complete(Place(storage, "tune", ("maximize",)).open())
    assert two.tried == 3 and two.default.score == one.default.score
    assert [t.value for t in after[: len(before)]] == [t.value for t in before]
    with pytest.raises(UserError, match="were made with tables"):
        tune(table.head(300), "species", trials=5, **options)


def test_the_settings_found_are_a_file_that_fit_takes(table, tmp_path):
    table.to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "catboost.json").write_text('{"iterations": 20}')

    def tabmt(*arguments) -> str:
        done = CliRunner().invoke(main, list(map(str, arguments)))
        assert done.exit_code == 0, done.output
        return done.output

    said = tabmt("tune", tmp_path / "table.csv", "--target", "species", "--trials", 3, "--minutes",
                 0.01, "--workers", 1, "--catboost", tmp_path / "catboost.json", "-o",
                 tmp_path / "model.tabmt")  # fmt: skip
    settings = tomllib.loads((tmp_path / "model.toml").read_text())
    assert settings["minutes"] == 0.01 and "# mle on validation rows:" in said
    made = TabMT.load(tmp_path / "model.tabmt").card_.settings.to_json()
    assert {name: made[name] for name in settings} == settings
    assert settings["target"] == "species"

    tabmt("fit", tmp_path / "table.csv", "-o", tmp_path / "b.tabmt", "--config",
          tmp_path / "model.toml", "--width", 32, "--heads", 2)  # fmt: skip
    again = TabMT.load(tmp_path / "b.tabmt").card_.settings.to_json()
    assert again["width"] == 32 and again["heads"] == 2
    assert again["target"] == "species" and again["minutes"] == 0.01


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("widht = 3", "sets 'widht', but the settings are: gaps, quantizer, max_bins, network,"),
        ("width = ", "is not valid TOML"),
        ('width = "wide"', "width is 'wide', but must be a whole number."),
        (None, "There is no configuration file"),
    ],
)
def test_a_bad_configuration_gets_a_sentence(table, tmp_path, text, sentence):
    table.to_csv(tmp_path / "table.csv", index=False)
    if text is not None:
        (tmp_path / "c.toml").write_text(text)
    done = CliRunner().invoke(
        main,
        ["fit", str(tmp_path / "table.csv"), "-o", str(tmp_path / "m.tabmt"), "--config",
         str(tmp_path / "c.toml")],
    )  # fmt: skip
    assert done.exit_code == 2 and sentence in done.output
    assert not (tmp_path / "m.tabmt").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"objective": "mle"}, "The objective mle needs a target: the column that is predicted."),
        ({"space": "gpu"}, "space is 'gpu', but must be one of: cpu, paper."),
        ({"trials": 0}, "trials is 0, but must be a whole number from 1."),
        ({"fixed": {"width": 0}}, "width is 0, but must be at least 1."),
        (
            {"fixed": {"wdith": 3}},
            "'wdith' is fixed, but the settings are: batch_size, checkpoint_e",
        ),
        ({"target": "speceis"}, "The target 'speceis' cannot be predicted: the table has: species"),
    ],
)
def test_a_search_that_cannot_be_gets_a_sentence(table, options, sentence):
    with pytest.raises(UserError) as error:
        tune(table, **options)
    assert str(error.value).startswith(sentence)


def test_the_papers_space_is_the_appendix():
    space = SPACES["paper"]
    assert space["width"] == (16, 512, 16) and space["heads"] == [1, 2, 4, 8, 16]
    assert space["steps"] == (10_000, 40_000, 5_000) and space["max_bins"] == (10, 200, 10)
    assert len(space) == 10


def test_a_bad_fit_is_given_up(table, tmp_path):
    """Trials are pruned by the median of those before them, on one scale for all bins."""
    storage = str(tmp_path / "trials.journal")
    fixed = {"width": 16, "depth": 1, "heads": 2, "drop_path": 0.0, "batch_size": 64}
    found = tune(
        table, "species", trials=14, objective="likelihood", storage=storage, fixed=fixed,
        minutes=0.03, workers=1,
    )  # fmt: skip
    assert found.pruned > 0 and np.isclose(sum(found.importances.values()), 1.0)
    assert importance_picture(found.importances).startswith("<svg")
    study = Place(storage, "tune", ("maximize",)).open()
    pruned = [trial for trial in study.trials if trial.state.name == "PRUNED"]
    assert all(trial.intermediate_values for trial in pruned)


def test_without_a_storage_nothing_is_left_behind(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = tune(table, "species", trials=2, **QUICK)
    assert found.tried == 2 and list(tmp_path.iterdir()) == []
