"""From a real table to a private one: rows that a fit may use as it likes.

This is the only function that reads the real table when a fit has an epsilon (DP-SGD reads it once
more, in its training steps). All that it finds out it asks through `Queries`, with noise. What
follows, whether it is a bin, a rule, a message or a weight, is computed from the private rows.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tabmt.config import CodecConfig
from tabmt.data.arrow_types import check_learnable
from tabmt.data.dataset import Dataset, InMemory
from tabmt.data.frames import forget_categories
from tabmt.data.overrides import Overrides
from tabmt.data.schema import check_names, unknown_column
from tabmt.errors import UserError
from tabmt.private.accounting import epsilon_of_rho, scale_of_rho
from tabmt.private.budget import Queries
from tabmt.private.columns import ROUNDS, UNKNOWN, ColumnFinder, PrivateColumn
from tabmt.private.tree import TreeLearner
from tabmt.seeds import numpy_stream

log = logging.getLogger(__name__)

LEAST_ROWS = 10.0  # standard deviations of the noise of a column's counts that a table must have
FEWEST_BINS, MOST_BINS = 2, 32
MOST_TARGET_BINS = 10
ROWS_PER_CELL = 3.0  # that a cell of a triple should hold, in standard deviations of its noise


@dataclass(frozen=True)
class PrivateTable:
    """The columns of a real table as noisy answers describe them, and the noisy number of rows."""

    columns: tuple[PrivateColumn, ...]
    rows: int

    @classmethod
    def find(
        cls, dataset: Dataset, queries: Queries, config: CodecConfig, overrides: Overrides
    ) -> "PrivateTable":
        """Ask for the number of rows, and for what the columns hold."""
        _check(dataset)
        budget, names = queries.budget, dataset.column_names
        noisy = queries.counts("rows", budget.of("rows"), lambda: np.array([dataset.num_rows]))
        rows = max(1, int(noisy[0]))
        rho = budget.of("columns") / len(names)
        _check_budget(rows, rho, queries, len(names))
        delta = budget.delta_of_values / len(names)
        finder = ColumnFinder(queries, config, rho, delta, float(rows))
        columns = []
        for name in names:
            array = dataset.column(name)
            entries = {"missing_text": overrides.missing_text, **overrides.of(name)}
            columns.append(finder.find(name, array, entries))
        return cls(tuple(columns), rows)

    def learn_rows(
        self, dataset: Dataset, queries: Queries, target: str | None, seed: int
    ) -> pa.Table:
        """Private rows by noisy counts of pairs and triples of columns."""
        chosen = self._index_of(target)
        per_column = queries.budget.of("columns") / len(self.columns)
        bins = self._bins(queries, chosen)
        codes = np.stack(
            [
                _coarse(column.encode(dataset.column(column.name)), own)
                for column, own in zip(self.columns, bins, strict=True)
            ],
            axis=1,
        )
        shares = [
            np.bincount(own, column.shares) for column, own in zip(self.columns, bins, strict=True)
        ]
        sizes = [int(own.max()) + 1 for own in bins]
        if len(self.columns) == 1:
            return self.independent_rows(seed)
        learner = TreeLearner(
            queries, codes, sizes, shares, scale_of_rho(per_column * ROUNDS[-1]),
            float(self.rows), chosen,
        )  # fmt: skip
        tree = learner.learn()
        rng = numpy_stream(seed, "private rows")
        drawn = tree.draw(self.rows, rng)
        leaves = [
            _leaves_in(drawn[:, index], own, column.shares, rng)
            for index, (column, own) in enumerate(zip(self.columns, bins, strict=True))
        ]
        return self._table(leaves, rng)

    def independent_rows(self, seed: int) -> pa.Table:
        """Private rows in which no column says anything about another."""
        rng = numpy_stream(seed, "private rows")
        leaves = [
            rng.choice(len(column.counts), self.rows, p=column.shares) for column in self.columns
        ]
        return self._table(leaves, rng)

    def project(self, dataset: Dataset, rng: np.random.Generator) -> pa.Table:
        """The real rows, with each cell replaced by a value of the same leaf."""
        leaves = [column.encode(dataset.column(column.name)).clip(0) for column in self.columns]
        return self._table(leaves, rng)

    def _table(self, leaves: Sequence[np.ndarray], rng: np.random.Generator) -> pa.Table:
        arrays = [column.draw(own, rng) for column, own in zip(self.columns, leaves, strict=True)]
        return pa.Table.from_arrays(arrays, [column.name for column in self.columns])

    def _index_of(self, target: str | None) -> int | None:
        names = [column.name for column in self.columns]
        if target is None:
            return None
        if target not in names:
            raise UserError(f"The target is {target!r}, {unknown_column(str(target), names)}")
        return names.index(target)

    def _bins(self, queries: Queries, target: int | None) -> list[np.ndarray]:
        """The bin of each leaf, for counts of pairs: as many bins as counts can tell apart."""
        rho = queries.budget.of("cells") / max(1, len(self.columns) - 1)
        cells = self.rows / (ROWS_PER_CELL * scale_of_rho(rho))
        of_target = 1
        if target is not None:
            own = self.columns[target]
            most = int(np.clip(cells ** (1 / 3), FEWEST_BINS, MOST_TARGET_BINS))
            if not own.is_ordered:
                most = max(most, min(MOST_TARGET_BINS, int(cells / 8)))
            target_bins = group_leaves(own, most)
            of_target = int(target_bins.max()) + 1
        most = int(np.clip(np.sqrt(cells / of_target), FEWEST_BINS, MOST_BINS))
        bins = [group_leaves(column, most) for column in self.columns]
        if target is not None:
            bins[target] = target_bins
        return bins


def group_leaves(column: PrivateColumn, most: int) -> np.ndarray:
    """The bin of each leaf of a column, at most about `most` of them: neighbours of numbers; the
    most frequent values, and all others together."""
    shares = column.shares
    count = len(shares)
    if count <= most:
        return np.arange(count)
    known = count - column.has_missing
    bins = np.zeros(count, np.int64)
    if column.is_ordered:
        bins[:known] = _neighbours(shares[:known], max(1, most - column.has_missing))
    else:
        order = np.argsort(-shares[:known], kind="stable")
        bins[order] = np.minimum(np.arange(known), max(1, most - column.has_missing) - 1)
    if column.has_missing:
        bins[-1] = bins[:known].max() + 1
    return bins


def _neighbours(shares: np.ndarray, most: int) -> np.ndarray:
    """Bins of neighbouring leaves with about the same share each; a leaf with more is alone."""
    bins, current, held = np.zeros(len(shares), np.int64), 0, 0.0
    least = shares.sum() / most
    for index, share in enumerate(shares):
        if index and (held + share / 2 > least or (share >= least and held > 0)):
            current, held = current + 1, 0.0
        bins[index] = current
        held += share
    return np.minimum(bins, most - 1)


def _coarse(leaves: np.ndarray, bins: np.ndarray) -> np.ndarray:
    return np.where(leaves == UNKNOWN, UNKNOWN, bins[leaves.clip(0)])


def _leaves_in(
    codes: np.ndarray, bins: np.ndarray, shares: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """A leaf of each bin, drawn by the shares of the leaves."""
    leaves = np.zeros(len(codes), np.int64)
    for code in np.unique(codes):
        rows = np.flatnonzero(codes == code)
        own = np.flatnonzero(bins == code)
        weights = shares[own]
        total = weights.sum()
        weights = weights / total if total > 0 else np.full(len(own), 1 / len(own))
        leaves[rows] = rng.choice(own, len(rows), p=weights)
    return leaves


def _check(dataset: Dataset) -> None:
    """What the types and names of the columns say, which are public."""
    if not dataset.fits_in_memory:
        raise UserError(
            "A fit with epsilon holds the table in memory, but this one is too large or consists "
            "of several files; fit some of its rows, in one file."
        )
    if dataset.num_columns == 0:
        raise UserError("The table has no columns.")
    check_names(dataset.column_names)
    for name in dataset.column_names:
        check_learnable(name, dataset.column(name).type)


def _check_budget(rows: int, rho: float, queries: Queries, columns: int) -> None:
    """Refuse a budget with which counts are mostly noise."""
    scale = scale_of_rho(rho * ROUNDS[-1])
    if rows >= LEAST_ROWS * scale:
        return
    wanted = queries.budget.rho * (LEAST_ROWS * scale / rows) ** 2
    enough = math.ceil(10 * epsilon_of_rho(wanted, queries.budget.delta_of_rho)) / 10
    raise UserError(
        f"epsilon is {queries.budget.epsilon:g}, which is too small for this table of about "
        f"{rows:,} rows and {columns} columns: its counts would be mostly noise. Set epsilon to at "
        f"least about {enough:g}, or fit more rows or fewer columns."
    )


def private_dataset(table: pa.Table, dataset: Dataset) -> InMemory:
    """Private rows as a table of the same kind as the real one."""
    source = forget_categories(dataset.source, table)
    return InMemory(table.replace_schema_metadata(None), source)
