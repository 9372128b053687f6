"""Likelihood, probabilities and embeddings of tables; `likelihood` is the part without tables."""

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from tabmt import likelihood, train
from tabmt.codecs import NumericCodec
from tabmt.errors import UserError
from tabmt.learned import Learned, token_column
from tabmt.partial import partial_tokens
from tabmt.seeds import derive
from tabmt.tokens import MASK

SCORES = pa.schema({"log_prob": pa.float64(), "anomaly": pa.float64(), "oddest": pa.string()})


def log_prob(learned: Learned, table: pa.Table, orders: int, seed: int, threads: int) -> np.ndarray:
    """(rows,) nats, of the mixture of some orders."""
    return _rows(*_cells(learned, table, orders, seed, threads))


def score(learned: Learned, table: pa.Table, orders: int, seed: int, threads: int) -> pa.Table:
    cells, constants = _cells(learned, table, orders, seed, threads)
    names = np.array([coded.column.name for coded in learned.codec.token_columns], dtype=object)
    mean = cells.mean(0)  # (B, C)
    known = np.maximum((mean != 0).sum(1), 1)
    oddest = names[mean.argmin(1)] if mean.shape[1] else np.full(len(mean), None)
    return pa.table(
        {
            "log_prob": _rows(cells, constants),
            "anomaly": -(mean.sum(1) + constants) / known,
            "oddest": pa.array(oddest, pa.string()),
        },
        schema=SCORES,
    )


def _rows(cells: np.ndarray, constants: np.ndarray) -> np.ndarray:
    """Log-probability of rows under the mixture of orders: (S, B, C) and (B,) -> (B,)."""
    rows = cells.sum(2)
    most = rows.max(0)
    return np.asarray(most + np.log(np.exp(rows - most).mean(0)) + constants)


def _cells(
    learned: Learned, table: pa.Table, orders: int, seed: int, threads: int
) -> tuple[np.ndarray, np.ndarray]:
    """Log-probability of each cell given those before it in each order, (S, B, C), and of what
    stands in constant columns, (B,)."""
    if not isinstance(orders, int) or isinstance(orders, bool) or orders < 1:
        raise UserError(f"orders is {orders!r}, but must be a whole number from 1.")
    tokens, unseen, shares, changed = learned.codec.look(table)
    # A value that was never seen is no rarer than one row among those seen and itself.
    rare = np.log(learned.card.rows + 1)
    if learned.net is None:
        return np.zeros((orders, *tokens.shape)), -changed * rare
    generator = torch.Generator().manual_seed(derive(seed, "score"))
    columns = tokens.shape[1]
    ways = torch.stack([torch.randperm(columns, generator=generator) for _ in range(orders)])
    with train.threads(threads):
        given = _on_device(learned, tokens)
        nats = likelihood.log_prob(learned.net, given, ways.to(given.device)).cpu().numpy()
    return np.asarray(nats + shares - np.where(unseen, rare, 0.0)), -changed * rare


def predict_proba(learned: Learned, table: pa.Table, column: str, threads: int) -> pa.Table:
    place = token_column(learned.codec, column, "column")
    assert place is not None and learned.net is not None
    coded = learned.codec.token_columns[place]
    given = table.drop_columns([column]) if column in table.column_names else table
    leave = [name for name in given.column_names if name != column]
    tokens = partial_tokens(learned.codec, given, leave)
    with train.threads(threads):
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
    with train.threads(threads):
        return likelihood.embed(learned.net, _on_device(learned, tokens)).cpu().numpy()


def _on_device(learned: Learned, tokens: np.ndarray) -> Tensor:
    assert learned.net is not None and tokens.min(initial=MASK) >= MASK
    return torch.from_numpy(tokens).to(next(learned.net.parameters()).device)
