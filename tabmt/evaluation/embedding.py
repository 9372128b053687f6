"""Embeddings and log-likelihoods of the rows of any table, by one fitted model.

As in the paper, precision and recall of all generators are computed in the embedding of the same
model, which need not be one of them. The likelihood is for attackers who have the model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tabmt.errors import UserError

if TYPE_CHECKING:
    from tabmt.estimator import TabMT

ROWS_AT_ONCE = 16_384  # encoded and embedded together


@dataclass(frozen=True)
class RowEmbedding:
    model: "TabMT"
    name: str  # for notes and errors

    @classmethod
    def of(cls, model: Any, option: str = "embed") -> "RowEmbedding":
        """From a fitted `TabMT` or the path of a model file; `option` names it in errors."""
        from tabmt.estimator import TabMT  # torch is imported only if it is needed

        if isinstance(model, str | Path):
            return cls(TabMT.load(model), Path(model).name)
        if not isinstance(model, TabMT):
            raise UserError(
                f"{option} is a {type(model).__name__}, but must be a fitted TabMT or the path of "
                "a model file."
            )
        return cls(model, "the given model")

    def vectors(self, table: pa.Table, what: str) -> np.ndarray:
        """(rows, width) float32; `what` names the table in errors."""
        return self._by_parts(table, what, "embed", self.model.embed)

    def log_prob(self, table: pa.Table, what: str) -> np.ndarray:
        """(rows,) in nats; `what` names the table in errors."""

        def score(part: pa.Table) -> np.ndarray:
            found = self.model.score(part, output="arrow").column("log_prob")
            return np.asarray(found.to_numpy())

        return self._by_parts(table, what, "score", score)

    def _by_parts(
        self, table: pa.Table, what: str, verb: str, compute: Callable[[pa.Table], np.ndarray]
    ) -> np.ndarray:
        try:
            known = self._columns_of_model(table)
            parts = [
                compute(known.slice(start, ROWS_AT_ONCE))
                for start in range(0, max(known.num_rows, 1), ROWS_AT_ONCE)
            ]
        except UserError as error:
            raise UserError(f"{self.name} cannot {verb} the {what} table: {error}") from error
        return np.concatenate(parts)

    def _columns_of_model(self, table: pa.Table) -> pa.Table:
        """Without columns that the model does not know, and with empty ones in place of absent
        ids and constants, which are not part of an embedding."""
        used = self.model.model_.codec.token_index
        names = self.model.schema_.names
        absent = [name for name in used if name not in table.column_names]
        if absent:
            raise UserError(f"the table has no column {absent[0]!r}, which the model needs.")
        columns = {name: table.column(name) for name in names if name in table.column_names}
        empty = pa.nulls(table.num_rows)
        columns |= {name: empty for name in names if name not in columns and name not in used}
        return pa.table(columns)
