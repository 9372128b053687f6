"""A fit with epsilon: its budget, its noisy answers, and that nothing else leaves the table."""

import json
import logging
import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from click.testing import CliRunner
from prv_accountant import PoissonSubsampledGaussianMechanism
from prv_accountant.other_accountants import RDP
from scipy import stats
from scipy.special import ndtr

from tabmt import Cancelled, TabMT, synthesize, tune
from tabmt.cli import main
from tabmt.config import CodecConfig, NetworkConfig
from tabmt.data.dataset import InMemory
from tabmt.data.overrides import Overrides
from tabmt.data.units import Grid
from tabmt.errors import UserError
from tabmt.method.any_order import AnyOrderNetwork, draw_orders
from tabmt.method.embedding import Field
from tabmt.method.networks import build_network
from tabmt.method.private_training import clipped_sum, row_gradients
from tabmt.model.checkpoint import read_answers
from tabmt.model.fit import FitOptions, fit
from tabmt.model.model_card import Settings
from tabmt.model.model_file import save_model
from tabmt.private import cells, forms
from tabmt.private.accounting import (
    ORDERS,
    epsilon_of_rho,
    epsilon_of_training,
    noise_of_training,
    renyi_of_sampled_gaussian,
    rho_of_epsilon,
    scale_of_rho,
    threshold,
)
from tabmt.private.budget import SHARES, Budget, Queries
from tabmt.private.noise import Answers, Noise, SecureNoise
from tabmt.private.table import PrivateTable
from tests.tables import every_type

TINY = {"width": 16, "depth": 1, "heads": 2, "steps": 4, "warmup": 1, "threads": 1,
        "precision": "float32", "batch_size": 64, "average_steps": 0}  # fmt: skip


class NoNoise(Noise):
    """No noise at all: answers are exact, and choices are of the best score."""

    def normal(self, size):
        return np.zeros(size)

    def uniform(self, size):
        return np.full(size, 0.5)


class KeptNoise(Noise):
    """Draws by a seed, for distributions; a fit must not use it."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def normal(self, size):
        return self.rng.normal(size=size)

    def uniform(self, size):
        return self.rng.random(size)


def people(rows: int, seed: int, missing: float = 0.1) -> pd.DataFrame:
    """Text, a category, whole numbers, decimals, dates, booleans and a key."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 90, rows)
    paid = np.round(np.exp(rng.normal(4 + age / 60, 0.5)), 2)
    days = pd.Timestamp("2021-03-01") + pd.to_timedelta(rng.integers(0, 300, rows), "D")
    return pd.DataFrame(
        {
            "id": np.arange(1, rows + 1),
            "city": np.array(["Oslo", "Bergen", "Molde"])[rng.integers(0, 3, rows)],
            "class": pd.Categorical(np.where(age > 50, "old", "young"), ["young", "old"]),
            "age": age,
            "paid": np.where(rng.random(rows) < missing, np.nan, paid),
            "since": days,
            "member": rng.random(rows) < 0.3,
        }
    )


def other_people(rows: int, seed: int) -> pd.DataFrame:
    """A very different table with the same names and types."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "id": rng.integers(-(10**9), 10**9, rows),
            "city": [f"secret {word}" for word in rng.integers(0, rows, rows)],
            "class": pd.Categorical(
                rng.choice(["x", "y"], rows), [f"v{i}" for i in range(300)] + ["y", "x"]
            ),
            "age": rng.integers(10**6, 10**7, rows),
            "paid": rng.normal(size=rows) * 1e9,
            "since": pd.Timestamp("1850-01-01") + pd.to_timedelta(rng.integers(0, 9, rows), "D"),
            "member": np.ones(rows, bool),
        }
    )


def settings(**changes):
    return TabMT(**TINY | {"epsilon": 8.0} | changes).get_params()


# --- accounting ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "noise", "steps"), [(0.01, 1.0, 1000), (0.04, 2.0, 500), (0.2, 5.0, 300)]
)
def test_the_epsilon_of_training_equals_that_of_another_library(rate, noise, steps):
    mechanism = PoissonSubsampledGaussianMechanism(
        noise_multiplier=noise, sampling_probability=rate
    )
    orders = [order for order in ORDERS if order <= 64]
    expected = RDP([mechanism], orders=orders).compute_epsilon(1e-6, [steps])[1]
    own = epsilon_of_training(0.0, rate, noise, steps, 1e-6, np.array(orders))
    assert own == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_gaussian_answers_keep_to_the_exact_curve_of_the_gaussian_mechanism(epsilon):
    rho = rho_of_epsilon(epsilon, 1e-6)
    assert epsilon_of_rho(rho, 1e-6) == pytest.approx(epsilon, rel=1e-6)
    distance = math.sqrt(2 * rho)  # Balle and Wang 2018, theorem 8: the least delta possible
    least = ndtr(distance / 2 - epsilon / distance) - math.exp(epsilon) * ndtr(
        -distance / 2 - epsilon / distance
    )
    assert least <= 1e-6
    assert least > 1e-8  # the bound is not far from it either


def test_many_whole_steps_of_training_are_a_gaussian_answer():
    assert renyi_of_sampled_gaussian(1.0, 5.0, 8.0) == 8 * 1 / (2 * 5.0**2)


def test_the_noise_of_training_is_the_least_that_keeps_to_epsilon():
    noise = noise_of_training(0.001, 0.02, 200, 1.0, 1e-6)
    assert epsilon_of_training(0.001, 0.02, noise, 200, 1e-6) <= 1.0
    assert epsilon_of_training(0.001, 0.02, noise * 0.97, 200, 1e-6) > 1.0


# --- noise -----------------------------------------------------------------------------------


def test_secure_noise_is_standard_normal_and_never_the_same():
    noise = SecureNoise()
    draws = noise.normal(20_000)
    assert stats.kstest(draws, "norm").pvalue > 1e-6
    uniform = noise.uniform(20_000)
    assert uniform.min() > 0 and uniform.max() < 1
    assert stats.kstest(uniform, "uniform").pvalue > 1e-6
    assert not np.array_equal(noise.normal(8), noise.normal(8))


def queries(noise, epsilon=1.0, method="marginals") -> Queries:
    return Queries(Budget(epsilon, 1e-6, SHARES[method]), noise, Answers())


def test_noisy_counts_are_exact_counts_with_gaussian_noise_of_the_stated_scale():
    asked = queries(KeptNoise(0))
    rho = asked.budget.of("cells")
    noisy = asked.counts("cells", rho, lambda: np.full(20_000, 100.0))
    assert np.array_equal(noisy, np.round(noisy))
    errors = (noisy - 100) / scale_of_rho(rho)
    jitter = np.random.default_rng(1).uniform(-0.5, 0.5, len(errors)) / scale_of_rho(rho)
    assert stats.kstest(errors + jitter, "norm").pvalue > 1e-3


def test_a_value_of_one_row_is_released_as_rarely_as_delta_says():
    delta, scale = 0.01, 7.0
    noisy = np.round(1 + scale * KeptNoise(0).normal(200_000))
    least = math.ceil(threshold(scale, delta) + 0.5)
    released = int((noisy >= least).sum())
    assert stats.binomtest(released, len(noisy), delta, alternative="greater").pvalue > 1e-3
    assert released > 0.5 * delta * len(noisy)  # not far below either


def test_values_of_few_rows_are_not_released_and_frequent_ones_are():
    asked = queries(KeptNoise(0), epsilon=8.0)
    exact = {"often": 5000, "once": 1, "twice": 2}
    found = asked.frequent("columns", asked.budget.of("columns"), 1e-8, lambda: exact)
    assert list(found) == ["often"]
    assert found["often"] == pytest.approx(5000, abs=50)


def test_a_choice_follows_the_exponential_mechanism():
    asked = queries(KeptNoise(0))
    rho = asked.budget.of("choice") / 4000
    scores = np.array([0.0, 60.0, 100.0])
    chosen = [asked.choose("choice", rho, lambda: scores) for _ in range(4000)]
    expected = np.exp(scores * math.sqrt(8 * rho) / 2)
    counts = np.bincount(chosen, minlength=3)
    assert stats.chisquare(counts, 4000 * expected / expected.sum()).pvalue > 1e-3


def test_cells_of_numbers_close_in_on_the_quantiles():
    rng = np.random.default_rng(0)
    units = np.round(np.exp(rng.normal(6, 1, 20_000)))
    grid, noise, scale = Grid(pa.int64(), 0), KeptNoise(1), 20.0
    edges = cells.first_edges(grid)
    for _ in range(2):
        noisy = cells.count_cells(edges, units) + scale * noise.normal(len(edges) - 1)
        edges = cells.divide(edges, noisy, scale, 32, continuous=False)
    counts = cells.count_cells(edges, units) + scale * noise.normal(len(edges) - 1)
    below = np.concatenate([[0], np.cumsum(counts)]) / counts.sum()
    for share in (0.1, 0.5, 0.9):
        found = np.interp(share, below, edges)
        rank = (units <= found).mean()
        assert rank == pytest.approx(share, abs=0.02)


# --- the budget ------------------------------------------------------------------------------


def test_the_parts_of_the_budget_add_up():
    for shares in SHARES.values():
        assert sum(shares.values()) == pytest.approx(1.0)
    budget = Budget(1.0, 1e-6, SHARES["marginals"])
    for part in budget.shares:
        budget.spend(part, budget.of(part))
    budget.spend("rows", 0.0, delta=5e-7)
    assert budget.spent_epsilon == pytest.approx(1.0)
    with pytest.raises(AssertionError, match="rows spends more than its share"):
        budget.spend("rows", 1e-4)
    with pytest.raises(AssertionError):
        budget.spend("rows", 0.0, delta=1e-9)


@pytest.mark.parametrize("target", ["class", "age", None])
def test_a_fit_spends_its_budget_and_no_more(target):
    model = TabMT(**TINY | {"epsilon": 4.0, "target": target}).fit(people(1500, 0))
    promise = model.card_.privacy
    assert promise is not None
    assert promise.spent_epsilon <= promise.epsilon == 4.0
    assert promise.spent_epsilon > 3.5
    assert set(promise.spent) == set(promise.shares)


@pytest.mark.parametrize("epsilon", [0, -1.0, 1e6, float("nan"), float("inf"), "1"])
def test_an_epsilon_that_promises_nothing_is_refused(epsilon):
    with pytest.raises(UserError, match=r"^epsilon is .*, but must be .*\.$"):
        TabMT(epsilon=epsilon).fit(people(50, 0))


def test_delta_must_be_small_and_needs_an_epsilon():
    with pytest.raises(UserError) as error:
        TabMT(epsilon=1.0, delta=0.5).fit(people(50, 0))
    assert str(error.value) == (
        "delta is 0.5, but must be above 0 and at most 0.001: it should be far below 1 / rows."
    )
    with pytest.raises(UserError) as error:
        TabMT(delta=1e-7).fit(people(50, 0))
    assert str(error.value) == (
        "delta is 1e-07, but epsilon is not set; set epsilon (--epsilon) for differential privacy."
    )


def test_a_budget_that_is_too_small_for_the_table_is_refused():
    with pytest.raises(UserError) as error:
        fit(people(300, 0), settings(epsilon=0.5), FitOptions(noise=NoNoise()))
    assert str(error.value) == (
        "epsilon is 0.5, which is too small for this table of about 300 rows and 7 columns: its "
        "counts would be mostly noise. Set epsilon to at least about 1.4, or fit more rows or "
        "fewer columns."
    )


def test_a_fit_with_epsilon_does_not_continue_from_a_model():
    plain = TabMT(**TINY).fit(people(100, 0))
    with pytest.raises(UserError, match="cannot continue from a model that has no differential"):
        TabMT(**TINY, epsilon=8.0).fit(people(400, 1), continue_from=plain)
    private = TabMT(**TINY, epsilon=8.0).fit(people(600, 0))
    with pytest.raises(UserError, match="has differential privacy, which training on new rows"):
        TabMT(**TINY).fit(people(100, 1), continue_from=private)


# --- nothing else leaves the table -----------------------------------------------------------


def files_and_messages(table, answers, folder, caplog, **changes):
    """What is in the model file of a fit, and its messages. The header of a file has its entries in
    any order, and a checksum that depends on it."""
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "tabmt"):
        model = fit(table, settings(**changes), FitOptions(answers=answers))
    if model.card.summary is not None:  # the time that training took
        summary = replace(model.card.summary, seconds=0.0)
        model = replace(model, card=replace(model.card, summary=summary))
    path = folder / "model.tabmt"
    save_model(model, path, force=True)
    messages = [re.sub(r"in \d+ s", "", record.getMessage()) for record in caplog.records]
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"].pop("checksum")
    return (header, content[8 + length :]), messages


def neighbours_and_others() -> dict:
    table = people(700, 0)
    extreme = table.iloc[[0]].assign(age=10**8, city="only here", paid=-1e-7, id=-5)
    extreme["class"] = "new"
    more = pd.concat([table, extreme], ignore_index=True)
    return {
        "one row less": table.iloc[1:],
        "one extreme row more": more.astype({"class": "category"}),
        "another table": other_people(350, 1),
    }


@pytest.mark.parametrize("case", neighbours_and_others())
def test_files_and_messages_depend_on_the_noisy_answers_alone(case, tmp_path, caplog):
    """The fit of another table is given the noisy answers of the first one: whatever then differs
    has leaked past the noise."""
    answers = Answers()
    first = files_and_messages(people(700, 0), answers, tmp_path, caplog, target="class")
    other = neighbours_and_others()[case]
    again = files_and_messages(other, answers.from_start(), tmp_path, caplog, target="class")
    assert again[1] == first[1]
    assert again[0] == first[0]


def test_files_and_messages_of_text_depend_on_the_noisy_answers_alone(tmp_path, caplog):
    paths = []
    for number, table in enumerate((people(700, 0), other_people(300, 1))):
        paths.append(tmp_path / f"{number}.csv")
        table.to_csv(paths[-1], index=False)
    answers = Answers()
    first = files_and_messages(paths[0], answers, tmp_path, caplog)
    again = files_and_messages(paths[1], answers.from_start(), tmp_path, caplog)
    assert again[1] == first[1]
    assert again[0] == first[0]


def test_files_and_messages_of_dp_sgd_depend_on_the_noisy_answers_alone(tmp_path, caplog):
    answers, changes = Answers(keeps_gradients=True), {"private_method": "dp-sgd", "target": "city"}
    first = files_and_messages(people(700, 0), answers, tmp_path, caplog, **changes)
    for table in neighbours_and_others().values():
        again = files_and_messages(table, answers.from_start(), tmp_path, caplog, **changes)
        assert again[1] == first[1]
        assert again[0] == first[0]


def test_other_noisy_answers_give_other_files(tmp_path, caplog):
    """So the comparison above can fail."""
    table = people(700, 0)
    first = files_and_messages(table, Answers(), tmp_path, caplog)
    again = files_and_messages(table, Answers(), tmp_path, caplog)
    assert again[0] != first[0]


class Exact(Queries):
    """Remembers the exact values of what is asked, besides giving the answers of before."""

    def __init__(self, budget, answers):
        super().__init__(budget, NoNoise(), answers)
        self.exact = []

    def counts(self, part, rho, exact):
        self.exact.append((part, np.asarray(exact())))
        return super().counts(part, rho, exact)

    def frequent(self, part, rho, delta, exact):
        self.exact.append((part, exact()))
        return super().frequent(part, rho, delta, exact)

    def choose(self, part, rho, exact):
        self.exact.append((part, np.asarray(exact())))
        return super().choose(part, rho, exact)


def asked_of(table, answers, target):
    dataset = InMemory(table)
    asked = Exact(Budget(20.0, 1e-6, SHARES["marginals"]), answers)
    found = PrivateTable.find(dataset, asked, CodecConfig(), Overrides())
    found.learn_rows(dataset, asked, target, 0)
    return asked.exact


def test_one_row_changes_each_exact_value_by_at_most_one():
    """What the noise is scaled for: of counts one by one, of a choice each score by one."""
    table = pa.concat_tables([every_type()] * 20).combine_chunks()
    for target in ("bool", "int8"):
        answers = Answers()
        exact = asked_of(table, answers, target)
        for row in (0, 1, 2, 17):
            rest = pa.concat_tables([table.slice(0, row), table.slice(row + 1)])
            others = asked_of(rest, answers.from_start(), target)
            assert len(others) == len(exact)
            for (part, one), (_, two) in zip(exact, others, strict=True):
                if isinstance(one, dict):
                    changes = [abs(one.get(w, 0) - two.get(w, 0)) for w in {*one, *two}]
                    assert sum(changes) <= 1
                elif part == "choice":
                    assert np.abs(one - two).max() <= 1 + 1e-9
                else:
                    assert np.abs(one - two).sum() <= 1


# --- what is found ---------------------------------------------------------------------------


def found_in(table, config=None, entries=None, epsilon=50.0):
    dataset = InMemory(pa.Table.from_pandas(table, preserve_index=False))
    asked = queries(NoNoise(), epsilon)
    return PrivateTable.find(dataset, asked, config or CodecConfig(), entries or Overrides())


def test_private_rows_have_the_types_and_ranges_of_the_table():
    table = people(2000, 0)
    model = TabMT(**TINY | {"epsilon": 50.0, "target": "class"}).fit(table)
    rows = model.sample(500, seed=0)
    assert list(rows.dtypes.astype(str)) == list(table.dtypes.astype(str))
    assert set(rows["city"]) == {"Oslo", "Bergen", "Molde"}
    assert set(rows["class"]) == {"old", "young"}
    assert rows["age"].between(15, 95).mean() > 0.95
    assert rows["since"].between("2021-02-01", "2022-02-01").mean() > 0.95
    assert 0.03 < rows["paid"].isna().mean() < 0.25
    assert np.allclose(rows["paid"].dropna(), rows["paid"].dropna().round(2))
    assert rows["id"].is_unique


def test_dependencies_are_learned():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 4, 4000)
    table = pd.DataFrame(
        {"a": a, "b": (a + (rng.random(4000) < 0.1)) % 4, "c": a * 10 + rng.integers(0, 10, 4000)}
    )
    dataset = InMemory(pa.Table.from_pandas(table, preserve_index=False))
    for target in (None, "a"):
        method = "marginals" if target else "marginals without target"
        asked = queries(KeptNoise(0), 8.0, method)
        found = PrivateTable.find(dataset, asked, CodecConfig(), Overrides())
        rows = found.learn_rows(dataset, asked, target, 0).to_pandas()
        assert (rows["a"] == rows["b"]).mean() > 0.8
        assert (rows["c"] // 10 == rows["a"]).mean() > 0.9


def test_every_type_of_column_has_private_rows_of_its_type():
    table = pa.concat_tables([every_type()] * 40).combine_chunks()
    asked = queries(NoNoise(), 50.0)
    found = PrivateTable.find(InMemory(table), asked, CodecConfig(), Overrides())
    for rows in (found.learn_rows(InMemory(table), asked, "bool", 0), found.independent_rows(0)):
        assert rows.schema.types == table.schema.types
        for name in table.column_names:
            expected = table.column(name).null_count / table.num_rows
            assert rows.column(name).null_count / rows.num_rows == pytest.approx(expected, abs=0.06)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("12", "decimals 0"), ("-3.25", "decimals 2"), ("1e-05", "scientific"),
        ("NA", "missing NA"),
        ("2020-01-31", "%Y-%m-%d"), ("13/01/2020", "%d/%m/%Y"), ("01/13/2020", "%m/%d/%Y"),
        ("02/03/2020", "either"), ("0012", "word"), ("Oslo", "word"), ("", "missing "),
    ],
)  # fmt: skip
def test_the_class_of_a_text(word, expected):
    assert forms.class_of_text(word, None) == expected


def test_text_is_read_by_noisy_counts_of_its_classes():
    table = pd.DataFrame(
        {
            "whole": [str(i % 50) for i in range(2000)],
            "fixed": [f"{i % 70}.{i % 10}0" for i in range(2000)],
            "mixed": [f"{i % 50}" if i % 3 else f"{i % 50}.5" for i in range(2000)],
            "day": [f"2020-01-{i % 28 + 1:02}" for i in range(2000)],
            "gone": ["?" if i % 4 == 0 else str(i % 9) for i in range(2000)],
            "word": [f"w{i % 5}" for i in range(2000)],
            "unique": [f"w{i}" for i in range(2000)],
        }
    )
    columns = {c.name: c for c in found_in(table).columns}
    formats = {name: column.form.format for name, column in columns.items()}
    assert formats == {
        "whole": "integer", "fixed": "fixed:2", "mixed": "plain", "day": "s:%Y-%m-%d",
        "gone": "integer", "word": None, "unique": None,
    }  # fmt: skip
    assert columns["gone"].form.missing_text == "?"
    assert type(columns["unique"]).__name__ == "IdColumn"
    assert columns["word"].words == tuple(f"w{i}" for i in range(5))


def test_what_a_person_says_about_a_column_is_used():
    table = people(2000, 0)
    entries = {
        "age": {"name": "age", "kind": "categorical"},
        "city": {"name": "city", "kind": "id"},
    }
    columns = {c.name: c for c in found_in(table, entries=Overrides(entries)).columns}
    assert type(columns["age"]).__name__ == "ValueColumn"
    assert type(columns["city"]).__name__ == "IdColumn"


def test_rare_values_are_rare_in_private_rows_too():
    words = ["often"] * 1200 + [f"rare {i}" for i in range(400)] + ["also"] * 400
    model = TabMT(**TINY, epsilon=50.0).fit(pd.DataFrame({"w": words, "x": np.arange(2000) % 7}))
    assert set(model.sample(300, seed=0)["w"]) == {"often", "also"}
    assert model.model_.codec["w"].codec.has_rare


# --- DP-SGD ----------------------------------------------------------------------------------


def small_network(columns: int = 3) -> tuple[AnyOrderNetwork, torch.Tensor, torch.Tensor]:
    ratios = tuple(np.linspace(0, 1, 12))
    fields = [Field(5), Field(13, ratios, (True,) * 12), Field(4)][:columns]
    generator = torch.Generator().manual_seed(0)
    net = build_network(fields, NetworkConfig(width=16, depth=2, heads=2), generator)
    assert isinstance(net, AnyOrderNetwork)
    rng = np.random.default_rng(0)
    tokens = torch.tensor(np.stack([rng.integers(-1, f.size, 9) for f in fields], axis=1))
    return net, tokens, draw_orders(tuple(tokens.shape), generator)


def test_the_gradient_of_each_row_is_that_of_the_row_alone():
    net, tokens, orders = small_network()
    gradients = row_gradients(net, tokens, orders)
    for row in range(len(tokens)):
        net.zero_grad()
        loss, _ = net.loss_sum_and_count(tokens[row : row + 1], orders[row : row + 1])
        (loss / tokens.shape[1]).backward()
        for name, parameter in net.named_parameters():
            own = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
            assert torch.allclose(gradients[f"net.{name}"][row], own, atol=1e-6), name
    assert (tokens == -1).any()


def test_no_row_changes_the_sum_of_gradients_by_more_than_the_norm():
    net, tokens, orders = small_network()
    for clip in (0.05, 100.0):
        total = clipped_sum(net, tokens, orders, clip)
        for row in range(len(tokens)):
            rest = [i for i in range(len(tokens)) if i != row]
            change = total - clipped_sum(net, tokens[rest], orders[rest], clip)
            assert change.norm() <= clip * (1 + 1e-4)
    plain = torch.cat([g.flatten(1) for g in row_gradients(net, tokens, orders).values()], 1).sum(0)
    assert torch.allclose(total, plain, atol=1e-5)  # what is below the norm is not clipped


def test_batches_have_each_row_with_the_same_probability():
    asked = queries(KeptNoise(0), method="dp-sgd")
    drawn = np.concatenate([asked.batch(0.1, 50) for _ in range(4000)])
    counts = np.bincount(drawn, minlength=50)
    assert stats.binomtest(len(drawn), 200_000, 0.1).pvalue > 1e-3
    assert abs(counts - 400).max() < 6 * math.sqrt(4000 * 0.1 * 0.9)


def test_a_fit_by_dp_sgd_states_steps_and_noise_and_spends_its_budget():
    model = TabMT(**TINY | {"steps": 6}, epsilon=4.0, private_method="dp-sgd", target="class")
    promise = model.fit(people(1500, 0)).card_.privacy
    assert promise is not None
    assert promise.steps == 6 and promise.noise_multiplier > 0.3
    assert 3.5 < promise.spent_epsilon <= 4.0
    rho = sum(promise.spent.values())
    again = epsilon_of_training(
        rho, promise.sampling_rate, promise.noise_multiplier, promise.steps, 5e-7
    )
    assert again == promise.spent_epsilon
    assert len(model.sample(50, seed=0)) == 50


def test_dp_sgd_learns_without_noise():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 3, 2000)
    table = pd.DataFrame({"a": pd.Series(a).map(str), "b": pd.Series(a).map(lambda v: f"w{v}")})
    changes = {"steps": 120, "width": 32, "private_method": "dp-sgd", "epsilon": 50.0}
    model = fit(table, settings(**changes), FitOptions(noise=KeptNoise(0)))
    rows = TabMT()
    rows._model = model
    sample = rows.sample(400, seed=0)
    assert ("w" + sample["a"] == sample["b"]).mean() > 0.8


# --- interrupted fits, files and the command line ----------------------------------------------


def test_a_resumed_fit_gets_the_same_answers_and_ends_with_the_same_model(tmp_path):
    table, checkpoint = people(700, 0), tmp_path / "m.checkpoint"
    changes = {"steps": 12, "checkpoint_every": 0.0, "target": "class"}

    def stop(progress):
        if progress.step == 6:
            raise Cancelled

    with pytest.raises(Cancelled):
        fit(table, settings(**changes), FitOptions(checkpoint=checkpoint, on_step=stop))
    answers = read_answers(checkpoint, Settings.of(settings(**changes)))
    whole = fit(table, settings(**changes), FitOptions(answers=answers))
    # Nothing but its names and types is asked of a table any more, so it may be another one.
    for resumed_on in (table, other_people(90, 3)):
        copied = tmp_path / "copy.checkpoint"
        copied.write_bytes(checkpoint.read_bytes())
        options = FitOptions(checkpoint=copied, resume=True)
        resumed = fit(resumed_on, settings(**changes), options)
        assert resumed.card.privacy == whole.card.privacy
        weights = zip(
            whole.net.state_dict().values(), resumed.net.state_dict().values(), strict=True
        )
        assert all(torch.equal(one, two) for one, two in weights)
    with pytest.raises(UserError) as error:
        options = FitOptions(checkpoint=checkpoint, resume=True)
        fit(table, settings(**changes, epsilon=9.0), options)
    assert str(error.value) == (
        f"The checkpoint {str(checkpoint)!r} belongs to a fit with other settings of differential "
        "privacy. Resume with the same epsilon, delta and private_method, or delete the file to "
        "start again."
    )


def test_what_was_found_in_a_table_is_not_taken_as_public():
    schema = {"columns": [{"name": "age", "kind": "numeric", "reason": "whole numbers"}]}
    with pytest.raises(UserError, match=r"^The schema holds what `tabmt schema` found in a table"):
        TabMT(**TINY, epsilon=8.0).fit(people(300, 0), schema=schema)


def test_the_command_line_states_the_promise_and_refuses_in_one_sentence(tmp_path):
    people(900, 0).to_csv(tmp_path / "people.csv", index=False)
    model = tmp_path / "people.tabmt"
    small = ["--steps", "3", "--threads", "1", "--width", "16", "--heads", "2", "--depth", "1"]
    runner = CliRunner()
    arguments = ["fit", str(tmp_path / "people.csv"), "-o", str(model), *small]
    for wrong in (["--epsilon", "0"], ["--epsilon", "-1"], ["--epsilon", "1e9"],
                  ["--delta", "1e-7"], ["--epsilon", "0.01"]):  # fmt: skip
        result = runner.invoke(main, [*arguments, *wrong])
        assert result.exit_code == 2
        assert len(result.stderr.strip().splitlines()[-1].split(". ")) <= 2
        assert not model.exists()
    assert runner.invoke(main, [*arguments, "--epsilon", "8"]).exit_code == 0
    shown = " ".join(runner.invoke(main, ["info", str(model)]).output.split())
    assert "differential privacy: epsilon 8, delta 1e-06, by marginals" in shown
    assert "unit: one row added or removed; the number of rows is noisy" in shown
    content = json.loads(runner.invoke(main, ["info", str(model), "--json"]).output)
    promise = content["card"]["privacy"]
    assert promise["epsilon"] == 8.0 and promise["delta"] == 1e-6
    assert sum(promise["shares"].values()) == pytest.approx(1.0)
    loaded = TabMT.load(model)
    assert loaded.card_.privacy.not_covered.startswith("time, memory and other side channels")
    assert "differential privacy: epsilon 8" in loaded._repr_html_()


def test_a_search_of_settings_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"^A search fits many models, each of which would spend"):
        tune(people(100, 0), "class", valid=people(50, 1), fixed={"epsilon": 1.0})


def test_synthesize_says_what_the_promise_covers(tmp_path):
    table = people(900, 0).drop(columns=["id", "since"])
    result = synthesize(table, tmp_path / "out", target="class", epsilon=20.0, **TINY)
    text = result.readme.read_text()
    assert "A fit with --epsilon draws new noise and spends its epsilon once more" in text
    assert "differential privacy: epsilon 20" in text
    assert "Only model.tabmt and synthetic.parquet have this promise." in text
    report = result.report.read_text()
    assert "differential privacy: epsilon 20" in report
    assert "The promise does not cover this report" in report
    card = TabMT.load(result.model).card_
    assert len(pd.read_parquet(result.synthetic)) == card.rows  # which is noisy
