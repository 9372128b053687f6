"""Likelihood, probabilities and embeddings of the rows of a table."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from tabmt.codec.table import ScoredCells
from tabmt.config import check_count
from tabmt.data.plain_values import plain_values
from tabmt.errors import UserError
from tabmt.method import devices, likelihood
from tabmt.model.fitted_model import FittedModel, token_column
from tabmt.rules.computed import ComputedCode, codes_of_table, computable
from tabmt.rules.enforce import NO_CODE
from tabmt.seeds import derive
from tabmt.tokens import MASK

SCORES = pa.schema({"log_prob": pa.float64(), "anomaly": pa.float64(), "least_likely": pa.string()})


@dataclass(frozen=True)
class CellScores:
    """The log-probability of the cells of a table, in nats."""

    codes: np.ndarray  # (S, B, C): of the codes, each given those before it in one of S orders
    shares: np.ndarray  # (B, C): of the numbers inside their codes
    constants: np.ndarray  # (B,): of constant columns
    changed_constants: np.ndarray  # (B,): number of constant columns that hold another value

    def rows(self) -> np.ndarray:
        """Log-probability of rows under the mixture of the orders, (B,)."""
        rows = self.codes.sum(2)  # (S, B)
        most = rows.max(0)
        mixed = most + np.log(np.exp(rows - most).mean(0))
        return np.asarray(mixed + self.shares.sum(1) + self.constants)


def log_prob(
    model: FittedModel, table: pa.Table, orders: int, seed: int, threads: int
) -> np.ndarray:
    """(rows,) nats, under the mixture of some orders."""
    return _score_cells(model, table, orders, seed, threads).rows()


def score(model: FittedModel, table: pa.Table, orders: int, seed: int, threads: int) -> pa.Table:
    """How likely each row is, how anomalous, and which of its columns is the least likely."""
    cells = _score_cells(model, table, orders, seed, threads)
    columns = model.codec.token_columns
    codes = cells.codes.mean(0)  # (B, C)
    known = np.maximum((codes != 0).sum(1) + cells.changed_constants, 1)
    least_likely = np.full(len(codes), None)
    if columns:
        # Relative to a random guess: otherwise it would always be a column with many codes.
        guess = np.log([max(coded.size, 2) for coded in columns])
        names = np.array([coded.name for coded in columns], dtype=object)
        least_likely = names[(codes / guess).argmin(1)]
    nats = -(codes.sum(1) + cells.shares.sum(1) + cells.constants)
    return pa.table(
        {
            "log_prob": cells.rows(),
            "anomaly": nats / known,
            "least_likely": pa.array(least_likely, pa.string()),
        },
        schema=SCORES,
    )


def _score_cells(
    model: FittedModel, table: pa.Table, orders: int, seed: int, threads: int
) -> CellScores:
    check_count("orders", orders, 1)
    cells = _without_computed(model, table, model.codec.encode_scored(table))
    # A value that was never seen is taken to be as rare as one row among those seen and itself.
    unseen_nats = np.log(model.card.rows + 1)
    codes = np.zeros((orders, *cells.tokens.shape))
    if model.net is not None:
        generator = torch.Generator().manual_seed(derive(seed, "score"))
        columns = cells.tokens.shape[1]
        drawn = [torch.randperm(columns, generator=generator) for _ in range(orders)]
        with devices.threads(threads):
            tokens = _on_device(model, cells.tokens)
            nats = likelihood.log_prob(model.net, tokens, torch.stack(drawn).to(tokens.device))
        codes = nats.cpu().numpy() - np.where(cells.unseen, unseen_nats, 0.0)
    changed = cells.changed_constants
    return CellScores(codes, cells.log_shares, 0.0 - changed * unseen_nats, changed)


def _without_computed(model: FittedModel, table: pa.Table, cells: ScoredCells) -> ScoredCells:
    """Cells that follow from others count nothing; where they contradict them, they are unseen.

    Columns with missing values are drawn to decide what is missing, so they count as they are.
    """
    codec, rules = model.codec, {rule.name: rule for rule in model.rules.rules}
    tokens, unseen, log_shares = cells.tokens.copy(), cells.unseen.copy(), cells.log_shares.copy()
    for name, step in computable(model.rules, codec).items():
        names = (step.target, *step.sources)
        if any(codec[own].missing_code is not None for own in names):
            continue
        target = codec.token_index[step.target]
        if isinstance(step, ComputedCode):
            source = cells.tokens[:, codec.token_index[step.source]]
            known = (source != MASK) & (cells.tokens[:, target] != MASK)
            violated = known & (step.codes[source] != cells.tokens[:, target])
        else:
            plain = {own: plain_values(table.column(own), codec.schema[own]) for own in names}
            values = {own: pair[0] for own, pair in plain.items()}
            missing = {own: pair[1] for own, pair in plain.items()}
            known = ~np.logical_or.reduce(list(missing.values()))
            violated = known & rules[name].violations(values, missing)
        unseen[:, target] = np.where(known, violated, unseen[:, target])
        tokens[known, target] = MASK
        log_shares[known, target] = 0.0
    return ScoredCells(tokens, unseen, log_shares, cells.changed_constants)


def predict_proba(model: FittedModel, table: pa.Table, column: str, threads: int) -> pa.Table:
    """The probability of each code of a column given the rest of the row, one column per code."""
    index = token_column(model.codec, column, "column")
    if index is None:
        raise UserError("predict_proba needs the name of a column.")
    assert model.net is not None  # it has a token column
    coded = model.codec.token_columns[index]
    given = table.drop_columns([column]) if column in table.column_names else table
    tokens = model.codec.encode_partial(given, leave=given.column_names)
    with devices.threads(threads):
        shares = likelihood.probabilities(model.net, _on_device(model, tokens), index)
    known = shares.cpu().numpy()[:, : coded.codec.size]
    known = known / known.sum(1, keepdims=True)
    for step in computable(model.rules, model.codec).values():
        if step.target == column:  # certain, given what it follows from
            codes = codes_of_table(step, model.codec, given, tokens)
            certain = np.flatnonzero(codes != NO_CODE)
            known[certain] = 0.0
            known[certain, codes[certain]] = 1.0
    return pa.table({label: known[:, k] for k, label in enumerate(coded.codec.labels())})


def embed(model: FittedModel, table: pa.Table, threads: int) -> np.ndarray:
    """The network's representation of each row, (rows, width)."""
    if model.net is None:
        raise UserError("All columns are constant or ids, so there is nothing to embed.")
    tokens = model.codec.encode_scored(table).tokens
    with devices.threads(threads):
        return likelihood.embed(model.net, _on_device(model, tokens)).cpu().numpy()


def _on_device(model: FittedModel, tokens: np.ndarray) -> Tensor:
    assert model.net is not None and tokens.min(initial=MASK) >= MASK
    return torch.from_numpy(tokens).to(next(model.net.parameters()).device)
