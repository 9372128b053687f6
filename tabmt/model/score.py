"""Likelihood, probabilities and embeddings of tables; `likelihood` is the part without tables."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from tabmt.codec.columns import NumericCodec
from tabmt.errors import UserError
from tabmt.method import devices, likelihood
from tabmt.model.fitted import Learned, token_column
from tabmt.model.impute import partial_tokens
from tabmt.seeds import derive
from tabmt.tokens import MASK

SCORES = pa.schema({"log_prob": pa.float64(), "anomaly": pa.float64(), "oddest": pa.string()})


@dataclass(frozen=True)
class Cells:
    """What the cells of a table weigh, in nats: along S orders their codes, (S, B, C), each given
    those before it; the shares that numbers have of their codes, (B, C); and what stands in
    constant columns, (B,)."""

    codes: np.ndarray
    shares: np.ndarray
    constants: np.ndarray
    changed: np.ndarray  # (B,) constant columns that hold another value

    def rows(self) -> np.ndarray:
        """Log-probability of rows under the mixture of the orders, (B,)."""
        rows = self.codes.sum(2)  # (S, B)
        most = rows.max(0)
        mixed = most + np.log(np.exp(rows - most).mean(0))
        return np.asarray(mixed + self.shares.sum(1) + self.constants)


def log_prob(learned: Learned, table: pa.Table, orders: int, seed: int, threads: int) -> np.ndarray:
    """(rows,) nats, of the mixture of some orders."""
    return _weigh(learned, table, orders, seed, threads).rows()


def score(learned: Learned, table: pa.Table, orders: int, seed: int, threads: int) -> pa.Table:
    cells = _weigh(learned, table, orders, seed, threads)
    columns = learned.codec.token_columns
    codes = cells.codes.mean(0)  # (B, C)
    known = np.maximum((codes != 0).sum(1) + cells.changed, 1)
    oddest = np.full(len(codes), None)
    if columns:
        # Against a guess among its codes: a column of many would otherwise always be the oddest.
        guess = np.log([max(coded.size, 2) for coded in columns])
        names = np.array([coded.column.name for coded in columns], dtype=object)
        oddest = names[(codes / guess).argmin(1)]
    surprise = -(codes.sum(1) + cells.shares.sum(1) + cells.constants)
    return pa.table(
        {
            "log_prob": cells.rows(),
            "anomaly": surprise / known,
            "oddest": pa.array(oddest, pa.string()),
        },
        schema=SCORES,
    )


def _weigh(learned: Learned, table: pa.Table, orders: int, seed: int, threads: int) -> Cells:
    if not isinstance(orders, int | np.integer) or isinstance(orders, bool) or orders < 1:
        raise UserError(f"orders is {orders!r}, but must be a whole number from 1.")
    tokens, unseen, shares, changed = learned.codec.look(table)
    # A value that was never seen is no rarer than one row among those seen and itself.
    rare = np.log(learned.card.rows + 1)
    codes = np.zeros((orders, *tokens.shape))
    if learned.net is not None:
        generator = torch.Generator().manual_seed(derive(seed, "score"))
        columns = tokens.shape[1]
        ways = torch.stack([torch.randperm(columns, generator=generator) for _ in range(orders)])
        with devices.threads(threads):
            given = _on_device(learned, tokens)
            nats = likelihood.log_prob(learned.net, given, ways.to(given.device))
        codes = nats.cpu().numpy() - np.where(unseen, rare, 0.0)
    return Cells(codes, shares, 0.0 - changed * rare, changed)


def predict_proba(learned: Learned, table: pa.Table, column: str, threads: int) -> pa.Table:
    place = token_column(learned.codec, column, "column")
    if place is None:
        raise UserError("predict_proba needs the name of a column.")
    assert learned.net is not None  # it has a token column
    coded = learned.codec.token_columns[place]
    given = table.drop_columns([column]) if column in table.column_names else table
    tokens = partial_tokens(learned.codec, given, leave=given.column_names)
    with devices.threads(threads):
        chances = likelihood.probabilities(learned.net, _on_device(learned, tokens), place)
    own = chances.cpu().numpy()[:, : coded.codec.size]
    own = own / own.sum(1, keepdims=True)
    if isinstance(coded.codec, NumericCodec):
        labels = _bin_labels(coded.codec)
    else:
        labels = [str(word) for word in coded.codec.values.to_pylist()]
    return pa.table({label: own[:, place] for place, label in enumerate(labels)})


def _bin_labels(codec: NumericCodec) -> list[str]:
    """Each code of numbers as a person would write it: a value, or from..to."""
    codes, labels, place = codec.codes, [], 0
    for centre, atom in zip(codes.centres, codes.atom, strict=True):
        if atom:
            ends = [centre]
        else:
            low, high = codes.edges[place], codes.edges[place + 1]
            last = place == len(codes.edges) - 2
            if not codes.continuous:
                low, high = np.ceil(low), high if last else np.ceil(high) - 1
            ends, place = [low, high], place + 1
        labels.append(
            "..".join(str(word) for word in codec.grid.values(np.array(ends)).to_pylist())
        )
    return labels


def embed(learned: Learned, table: pa.Table, threads: int) -> np.ndarray:
    if learned.net is None:
        raise UserError("No column varies, so there is nothing to embed.")
    tokens, *_ = learned.codec.look(table)
    with devices.threads(threads):
        return likelihood.embed(learned.net, _on_device(learned, tokens)).cpu().numpy()


def _on_device(learned: Learned, tokens: np.ndarray) -> Tensor:
    assert learned.net is not None and tokens.min(initial=MASK) >= MASK
    return torch.from_numpy(tokens).to(next(learned.net.parameters()).device)
