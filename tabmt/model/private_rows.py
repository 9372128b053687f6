"""What a fit with epsilon learns from instead of the real table: private rows, and with DP-SGD
noisy gradients."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tabmt.codec.table import TableCodec
from tabmt.data.dataset import Dataset
from tabmt.data.overrides import Overrides, parse_overrides, read_overrides
from tabmt.data.typed_columns import parse_column
from tabmt.errors import UserError
from tabmt.method.any_order import AnyOrderNetwork
from tabmt.method.distributed import Group
from tabmt.method.networks import Network
from tabmt.method.private_training import SHOWN_ROWS, PrivateSteps, train_privately
from tabmt.method.train import Progress, Summary
from tabmt.model.fitted_model import order_of_columns
from tabmt.model.model_card import ModelCard, Settings
from tabmt.private.accounting import epsilon_of_training, noise_of_training
from tabmt.private.budget import SHARES, Budget, Queries
from tabmt.private.noise import Answers, Noise, SecureNoise
from tabmt.private.statement import PrivacyStatement
from tabmt.private.table import PrivateTable, private_dataset
from tabmt.seeds import derive, numpy_stream
from tabmt.tokens import TokenStore

log = logging.getLogger(__name__)


ROWS_PER_STEP, MOST_STEPS = 256, 300  # of DP-SGD: more steps need more noise each
LEARNING_RATE = 2e-3


@dataclass(frozen=True)
class PrivateRows:
    """Private rows, and what may be said about them."""

    dataset: Dataset
    statement: PrivacyStatement
    queries: Queries
    training: "RealRows | None" = None  # of DP-SGD

    @property
    def answers(self) -> Answers:
        """From which all of it can be computed again."""
        return self.queries.answers


@dataclass(frozen=True)
class RealRows:
    """The real rows, for the steps of DP-SGD alone."""

    dataset: Dataset
    table: PrivateTable
    plan: PrivateSteps

    def tokens(self, codec: TableCodec, seed: int) -> np.ndarray:
        """Their tokens, (rows, C), by a codec that was fitted to private rows. A cell that no
        private row is like has any code."""
        rows = self.table.project(self.dataset, numpy_stream(seed, "real rows"))
        columns = []
        for coded in codec.token_columns:
            typed = parse_column(rows.column(coded.name), coded.column)
            columns.append(coded.encode(typed)[0])
        return np.stack(columns, axis=1).astype(np.int64)


def find_private_rows(
    dataset: Dataset,
    settings: Settings,
    seed: int,
    schema: Mapping[str, Any] | str | Path | None,
    answers: Answers | None,
    noise: Noise | None,
) -> PrivateRows:
    """Spend the budget of a fit, unless the answers of an interrupted one are given."""
    privacy, target = settings.privacy, settings.train.target
    assert privacy.epsilon is not None
    _check_possible(settings)
    log.info(
        "differential privacy with epsilon %g and delta %g: every fit of the same rows spends its "
        "own, and all of them add up",
        privacy.epsilon,
        privacy.delta,
    )
    by_marginals = privacy.private_method == "marginals"
    shares = SHARES[privacy.private_method]
    if by_marginals and target is None:
        shares = SHARES["marginals without target"]
    budget = Budget(privacy.epsilon, privacy.delta, shares)
    queries = Queries(budget, noise or SecureNoise(), answers or Answers())
    overrides = _public_overrides(schema, dataset.column_names)
    table = PrivateTable.find(dataset, queries, settings.codec, overrides)
    log.info("the table has about %s rows, by a noisy count", f"{table.rows:,}")
    if privacy.delta * table.rows > 1:
        log.warning("delta is above 1 / rows, so that the rows of single persons may be revealed.")
    training = None
    if by_marginals:
        rows = table.learn_rows(dataset, queries, target, seed)
    else:
        rows = table.independent_rows(seed)
        training = RealRows(dataset, table, _plan(budget, table.rows, settings.train.steps))
    log.info("learning from %s private rows, drawn by noisy counts", f"{table.rows:,}")
    statement = _statement(privacy.private_method, budget, training)
    return PrivateRows(private_dataset(rows, dataset), statement, queries, training)


def _check_possible(settings: Settings) -> None:
    if Group.current().size > 1:
        raise UserError(
            "A fit with epsilon runs in one process, but several have been started; start one."
        )
    network, method = settings.network.network, settings.privacy.private_method
    if method == "dp-sgd" and network != "any-order":
        raise UserError(
            f"private_method is 'dp-sgd', which trains the any-order network, but network is "
            f"{network!r}; set network to any-order, or private_method to marginals."
        )


def _public_overrides(
    schema: Mapping[str, Any] | str | Path | None, names: Sequence[str]
) -> Overrides:
    """What a person says about the columns, which is taken as public."""
    content = read_overrides(schema)
    overrides = parse_overrides(content, names)
    is_found = any("reason" in entries for entries in overrides.columns.values())
    if is_found or (content is not None and content.get("found")):
        raise UserError(
            "The schema holds what `tabmt schema` found in a table, which epsilon does not cover; "
            "pass a schema with only the names of columns and the entries that you set yourself."
        )
    return overrides


def _plan(budget: Budget, rows: int, steps: int) -> PrivateSteps:
    """Steps of DP-SGD that spend what the columns leave."""
    rate = min(1.0, ROWS_PER_STEP / rows)
    count = max(1, min(steps, MOST_STEPS))
    rho = budget.of("rows") + budget.of("columns")
    noise = noise_of_training(rho, rate, count, budget.epsilon, budget.delta_of_rho)
    return PrivateSteps(count, rate, noise)


def _statement(method: str, budget: Budget, training: RealRows | None) -> PrivacyStatement:
    statement = PrivacyStatement(
        epsilon=budget.epsilon,
        delta=budget.delta,
        method=method,
        spent=dict(budget.spent),
        spent_epsilon=budget.spent_epsilon,
        shares=dict(budget.shares),
    )
    if training is None:
        return statement
    plan, rho = training.plan, sum(budget.spent.values())
    spent = epsilon_of_training(rho, plan.rate, plan.noise, plan.steps, budget.delta_of_rho)
    return replace(
        statement,
        spent_epsilon=spent,
        noise_multiplier=plan.noise,
        sampling_rate=plan.rate,
        steps=plan.steps,
    )


def train_on_real_rows(
    net: Network,
    codec: TableCodec,
    private_tokens: TokenStore,
    private: PrivateRows,
    settings: Settings,
    seed: int,
    on_step: Callable[[Progress], None] | None,
    should_stop: Callable[[], bool] | None,
) -> Summary:
    """Train a network by DP-SGD, in place."""
    real = private.training
    assert real is not None and isinstance(net, AnyOrderNetwork)
    tokens = real.tokens(codec, seed)
    log.info(
        "training by DP-SGD: %d steps, each with %.2f%% of the rows, noise %.2f",
        real.plan.steps,
        100 * real.plan.rate,
        real.plan.noise,
    )
    return train_privately(
        net,
        tokens,
        real.plan,
        seed=derive(seed, "train"),
        learning_rate=LEARNING_RATE,
        draw_rows=lambda: private.queries.batch(real.plan.rate, len(tokens)),
        noisy=private.queries.gradient,
        rows=real.table.rows,
        column_order=order_of_columns(codec, settings),
        shown=private_tokens[np.arange(min(SHOWN_ROWS, len(private_tokens)))],
        on_step=on_step,
        should_stop=should_stop,
    )


def check_continued(before: ModelCard, settings: Settings) -> None:
    """Refuse to train a model further if its promise, or the new one, would not hold."""
    if before.privacy is not None:
        raise UserError(
            "The model to continue from has differential privacy, which training on new rows would "
            "end; fit all rows together with epsilon (--epsilon) instead."
        )
    if settings.privacy.epsilon is not None:
        raise UserError(
            "A fit with epsilon cannot continue from a model that has no differential privacy; "
            "leave out continue_from (--from)."
        )
