"""What a fit with epsilon learns from instead of the real table: private rows."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabmt.data.dataset import Dataset
from tabmt.data.overrides import parse_overrides, read_overrides
from tabmt.errors import UserError
from tabmt.method.distributed import Group
from tabmt.model.model_card import ModelCard, Settings
from tabmt.private.budget import SHARES, Budget, Queries
from tabmt.private.noise import Answers, Noise, SecureNoise
from tabmt.private.statement import PrivacyStatement
from tabmt.private.table import PrivateTable, private_dataset

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PrivateRows:
    """Private rows, and what may be said about them."""

    dataset: Dataset
    statement: PrivacyStatement
    answers: Answers  # from which all of it can be computed again


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
    if Group.current().size > 1:
        raise UserError(
            "A fit with epsilon runs in one process, but several have been started; start one."
        )
    log.info(
        "differential privacy with epsilon %g and delta %g: every fit of the same rows spends its "
        "own, and all of them add up",
        privacy.epsilon,
        privacy.delta,
    )
    shares = SHARES["marginals" if target is not None else "marginals without target"]
    budget = Budget(privacy.epsilon, privacy.delta, shares)
    queries = Queries(budget, noise or SecureNoise(), answers or Answers())
    overrides = parse_overrides(read_overrides(schema), dataset.column_names)
    table = PrivateTable.find(dataset, queries, settings.codec, overrides)
    log.info("the table has about %s rows, by a noisy count", f"{table.rows:,}")
    if privacy.delta * table.rows > 1:
        log.warning("delta is above 1 / rows, so that the rows of single persons may be revealed.")
    rows = table.learn_rows(dataset, queries, target, seed)
    log.info("learning from %s private rows, drawn by noisy counts", f"{table.rows:,}")
    statement = PrivacyStatement(
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        method=privacy.private_method,
        spent=dict(budget.spent),
        spent_epsilon=budget.spent_epsilon,
        shares=dict(shares),
    )
    return PrivateRows(private_dataset(rows, dataset), statement, queries.answers)


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
