"""New rows from a fitted model, in batches of bounded size.

What users asked for arrives as a `Request`; the drawing itself is method/sample.py.
"""

import dataclasses
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from tabmt.codec.columns import CANDIDATES_PER_BIN, Bounds
from tabmt.codec.table import TableCodec
from tabmt.conditions.selections import Selections, Share, row_counts
from tabmt.config import MOST_ROWS_PER_ORDER, Decode, is_number
from tabmt.errors import UserError
from tabmt.method import devices
from tabmt.method.column_order import ColumnOrder
from tabmt.method.compiled_sample import Chunk, compile_network, draw_chunks
from tabmt.method.draw_codes import LEAST_FLOAT32
from tabmt.method.networks import FrozenNetwork
from tabmt.method.sample import (
    ImprobableCondition,
    RowConstraint,
    draw_conditioned,
    draw_order,
    fill,
)
from tabmt.model.fitted_model import FittedModel
from tabmt.rules.computed import computable
from tabmt.rules.enforce import RuleState
from tabmt.rules.enforce_found import FoundRules, FoundRuleState
from tabmt.rules.redraw import Candidates, redraw
from tabmt.seeds import derive, numpy_stream
from tabmt.tokens import MASK

log = logging.getLogger(__name__)

# PAPER-DIFF rows_per_order: the paper draws 512 rows with one order. The results of two orders
# differ a little, so a sample has many orders; beyond that, larger chunks are faster (docs/log.md).
ORDERS = 64
LEAST_CHUNK, MOST_CHUNK = 64, 4096  # rows that share one order of columns
MOST_CELLS, MOST_WEIGHTS = 2**16, 2**22  # of a chunk: its cache and its weights are bounded
BATCH_ROWS = MOST_ROWS_PER_ORDER  # rows that are decoded and written at a time
LEAST_COMPILED = 20_000  # rows for which loading compiled kernels is worthwhile
ROWS_AT_ONCE, CELLS_AT_ONCE = 2**13, 2**17  # most that compiled kernels draw side by side
MOST_ATTEMPTS = 50  # to draw rows that satisfy every rule


@dataclass(frozen=True)
class Request:
    """How rows are to be drawn. Each share of the rows has its own conditions."""

    seed: int
    temperature: Tensor  # (C,)
    allow_missing: bool = True
    decode: Decode = "inside"
    threads: int = 1
    shares: Sequence[Share] = (Share(1.0, {}),)


class Rows(NamedTuple):
    """Codes of rows, (B, C), and where the numbers of some columns must lie, in units."""

    tokens: np.ndarray
    within: Mapping[str, Bounds]

    def take(self, rows: np.ndarray) -> "Rows":
        within = {name: (low[rows], high[rows]) for name, (low, high) in self.within.items()}
        return Rows(self.tokens[rows], within)


def stack(chunks: Sequence[Rows]) -> Rows:
    """Chunks one below the other; a chunk without bounds for a column is unbounded there."""
    names = {name for chunk in chunks for name in chunk.within}
    within = {}
    for name in sorted(names):
        ends = [chunk.within.get(name, unbounded(len(chunk.tokens))) for chunk in chunks]
        low, high = (np.concatenate(side) for side in zip(*ends, strict=True))
        within[name] = (low, high)
    return Rows(np.concatenate([chunk.tokens for chunk in chunks]), within)


def unbounded(rows: int) -> Bounds:
    return np.full(rows, -np.inf), np.full(rows, np.inf)


def resolve_temperatures(
    temperature: float | Mapping[str, float] | None, model: FittedModel
) -> Tensor:
    """(C,) float64: one temperature per token column; the model's own where none is given."""
    codec = model.codec
    given: Mapping[str, float] = model.card.temperatures
    if isinstance(temperature, Mapping):
        given = {**given, **temperature}
    elif temperature is not None:
        given = dict.fromkeys(codec.schema.names, temperature)
    for name, value in given.items():
        codec.find(name, "A temperature is set for column")
        if not is_number(value) or not math.isfinite(value) or value < 0:
            raise UserError(
                f"The temperature of column {name!r} is {value!r}, but must be a number of at "
                "least 0 (1 is the model's own distribution)."
            )
    by_column = [given.get(coded.name, 1.0) for coded in codec.token_columns]
    return torch.tensor(by_column, dtype=torch.float64)


def drawn_codes(codec: TableCodec, *, allow_missing: bool) -> list[np.ndarray | None]:
    """Weights of the codes of each token column that leave out those that are not generated: rare
    values, and missing ones if none are allowed."""
    return [coded.drawn_codes(allow_missing=allow_missing) for coded in codec.token_columns]


class Sampler:
    """Fills chunks of rows with a model's network."""

    def __init__(self, model: FittedModel, request: Request, *, compiled: bool = False) -> None:
        assert model.net is not None
        self._request = request
        with devices.threads(request.threads):
            self._net = FrozenNetwork(model.net)
            self._compiled = compile_network(model.net) if compiled else None
        self._device = next(model.net.parameters()).device

    @property
    def is_compiled(self) -> bool:
        return self._compiled is not None

    def fill(
        self,
        tokens: np.ndarray,
        seed: int,
        *,
        allowed: Sequence[np.ndarray | None],
        column_order: ColumnOrder,
        conditioned: Sequence[int] = (),
        leave: Sequence[int] = (),
        last: Sequence[int] = (),
        constraint: RowConstraint | None = None,
    ) -> np.ndarray:
        """Draw the masked cells of a chunk, (B, C) -> (B, C), in an order of their own."""
        with devices.threads(self._request.threads):
            filled = fill(
                self._net,
                torch.from_numpy(tokens).to(self._device),
                temperature=self._request.temperature,
                generator=torch.Generator().manual_seed(seed),
                allowed=[None if w is None else torch.from_numpy(w) for w in allowed],
                conditioned=conditioned,
                column_order=column_order,
                leave=leave,
                last=last,
                constraint=constraint,
            )
        return filled.cpu().numpy()

    def start(
        self,
        rows: int,
        seed: int,
        *,
        allowed: Sequence[np.ndarray | None],
        conditioned: Sequence[int],
    ) -> np.ndarray:
        """New rows in which only the columns with conditions are drawn, (B, C)."""
        with devices.threads(self._request.threads):
            started = draw_conditioned(
                self._net,
                rows,
                conditioned,
                [None if w is None else torch.from_numpy(w) for w in allowed],
                self._request.temperature,
                torch.Generator().manual_seed(seed),
                self._device,
            )
            return started.tokens.cpu().numpy()

    def fill_new(
        self,
        sizes: Sequence[int],
        seeds: Sequence[int],
        *,
        allowed: Sequence[np.ndarray | None],
        column_order: ColumnOrder,
        leave: Sequence[int] = (),
        last: Sequence[int] = (),
    ) -> Iterator[np.ndarray]:
        """Draw the cells of chunks of new rows, (B, C) each: several at once, if compiled."""
        columns = len(self._net.sizes)
        order_of: Any = {"column_order": column_order, "leave": leave, "last": last}
        if self._compiled is None:
            for size, seed in zip(sizes, seeds, strict=True):
                yield self.fill(np.full((size, columns), MASK), seed, allowed=allowed, **order_of)
            return
        weights = [None if w is None else torch.from_numpy(w) for w in allowed]
        chunks = []
        for size, seed in zip(sizes, seeds, strict=True):
            generator = torch.Generator().manual_seed(seed)
            order = draw_order(columns, generator, **order_of).tolist()
            chunks.append(Chunk(order, generator, np.full((columns, size), MASK)))
        at_once = max(1, min(ROWS_AT_ONCE, CELLS_AT_ONCE // columns) // max(sizes))
        for first in range(0, len(chunks), at_once):
            group = chunks[first : first + at_once]
            with devices.threads(self._request.threads):
                draw_chunks(
                    self._compiled, group, temperature=self._request.temperature, allowed=weights
                )
            yield from (chunk.tokens.T for chunk in group)


def generate_batches(
    model: FittedModel, rows: int, request: Request, span: range | None = None
) -> Iterator[pa.Table]:
    """New rows; only a span of them, if one is given, which begins with a batch.

    The shares of a table are well mixed.
    """
    span = range(rows) if span is None else span
    model = as_decoded(model, request)
    assert span.start % BATCH_ROWS == 0
    if not request.allow_missing:
        for coded in model.codec.coded:
            if coded.codec.is_empty:
                had = "only missing values in the training table"
                if coded.codec.has_rare:
                    had = "no value in the training table that is frequent enough to be stored"
                log.warning(
                    "Column %r had %s, so its generated values are missing.", coded.name, had
                )
    # Whether kernels are used depends on all rows, not on the span, as their rounding is different.
    shares = [
        NewRows(model, request, share.selections, compiled=rows >= LEAST_COMPILED)
        for share in request.shares
    ]
    chunk = _chunk_rows(model, rows, tries_values=any(share.tries_values for share in shares))
    firsts = range(span.start, max(span.stop, 1), BATCH_ROWS)  # no rows are one empty batch
    drawn = (
        _batch(shares, min(BATCH_ROWS, span.stop - first), first, chunk, request)
        for first in firsts
    )
    for first, batch in zip(firsts, _ahead(drawn), strict=True):
        yield model.codec.decode(
            batch.tokens,
            seed=request.seed,
            first_row=first,
            within=batch.within,
        )


def as_decoded(model: FittedModel, request: Request) -> FittedModel:
    """The model whose codes stand for the numbers that are asked for: also what conditions select
    and rules try."""
    if request.decode != "centre":
        return model
    sums = [s for s in computable(model.rules, model.codec).values() if s.is_sum]
    codec = model.codec.at_centres(
        on_grid={name for step in sums for name in step.sources},
        computed={step.target for step in sums},
    )
    return dataclasses.replace(model, codec=codec)


def _ahead(batches: Iterator[Rows]) -> Iterator[Rows]:
    """The same batches, each drawn in a thread while the one before is decoded and written."""
    with ThreadPoolExecutor(1, "draw") as pool:
        drawing = pool.submit(next, batches, None)
        while (batch := drawing.result()) is not None:
            drawing = pool.submit(next, batches, None)
            yield batch


def _chunk_rows(model: FittedModel, rows: int, *, tries_values: bool) -> int:
    """Rows with one order, a power of two, so that batches begin with a chunk."""
    if (fixed := model.card.settings.generation.rows_per_order) is not None:
        return fixed
    most = most_chunk_rows(model, tries_values=tries_values)
    return int(2 ** round(math.log2(max(LEAST_CHUNK, min(rows / ORDERS, most)))))


def most_chunk_rows(model: FittedModel, *, tries_values: bool) -> float:
    """Rows of a chunk whose memory is bounded."""
    sizes = model.codec.sizes
    if tries_values:  # several candidates of each code
        sizes = [CANDIDATES_PER_BIN * size for size in sizes]
    return min(MOST_CHUNK, MOST_CELLS / max(1, len(sizes)), MOST_WEIGHTS / max(sizes, default=1))


def _batch(
    shares: Sequence["NewRows"], rows: int, first: int, chunk: int, request: Request
) -> Rows:
    """New rows of all shares, mixed."""
    drawn = []
    for index, count in enumerate(row_counts(rows, request.shares)):
        seed = derive(request.seed, "part", index) if index else request.seed
        drawn.append(shares[index].draw(count, first, chunk, seed))
    batch = stack(drawn)
    if len(drawn) == 1:
        return batch
    return batch.take(numpy_stream(request.seed, "mix", first).permutation(rows))


class NewRows:
    """Draws new rows under one set of conditions."""

    def __init__(
        self, model: FittedModel, request: Request, selections: Selections, *, compiled: bool
    ) -> None:
        self._model, self._request, self._selections = model, request, selections
        self._rules = model.rules.for_rows(allow_missing=request.allow_missing)
        self._found = FoundRules.of(
            self._rules,
            model.codec,
            conditioned=selections.keys(),
            allow_missing=request.allow_missing,
        )
        self._leave = () if self._found is None else self._found.leave
        self._last = () if self._found is None else self._found.last
        if model.net is None:
            return
        codec = model.codec
        self._allowed = drawn_codes(codec, allow_missing=request.allow_missing)
        single: list[int] = []
        ranges: list[int] = []
        for name, selection in selections.items():
            column = codec.token_index[name]
            self._allowed[column] = self._combined(name, selection.weights, column)
            (single if selection.is_one_code else ranges).append(column)
        # Given values first, then restricted columns, then the rest, as the network was trained:
        # any set of cells may be known.
        self._conditioned = single + self._rarest_first(ranges)
        unrestricted = not self._conditioned and not self.tries_values
        precise = bool((request.temperature > LEAST_FLOAT32).all())  # enough in float32
        self._sampler = Sampler(model, request, compiled=compiled and unrestricted and precise)

    def _combined(self, name: str, weights: np.ndarray, column: int) -> np.ndarray:
        """The weights of a condition, without the missing code if none is allowed."""
        allowed = self._allowed[column]
        weights = weights if allowed is None else weights * allowed
        if not weights.any():
            raise UserError(
                f"The condition on column {name!r} asks for missing values, but missing values are "
                "turned off (allow_missing=False, --no-missing). Remove one of them."
            )
        return weights

    def _rarest_first(self, columns: list[int]) -> list[int]:
        """Columns by the probability of their conditions: if the rarest comes first, all candidates
        meet it, and it need not be searched among them."""
        net = self._model.net
        if len(columns) < 2 or net is None:
            return columns
        device = next(net.parameters()).device
        row = torch.zeros(1, dtype=torch.int64, device=device)
        names = [coded.name for coded in self._model.codec.token_columns]
        probability = {}
        with devices.threads(self._request.threads):
            state = net.start(torch.full((1, len(net.sizes)), MASK, device=device))
            for column in columns:
                shares = state.logits(row, column).double().softmax(1)[0].cpu()
                weights = torch.from_numpy(self._selections[names[column]].weights)
                probability[column] = float(shares @ weights)
        return sorted(columns, key=lambda column: probability[column])

    def start(self, rows: int, seed: int) -> np.ndarray:
        """New rows in which only the columns with conditions are drawn, (B, C)."""
        if not self._conditioned:
            return np.full((rows, len(self._allowed)), MASK)
        try:
            return self._sampler.start(
                rows, seed, allowed=self._allowed, conditioned=self._conditioned
            )
        except ImprobableCondition as error:
            raise UserError(self._improbable(error)) from error

    @property
    def tries_values(self) -> bool:
        """Whether there are rules that are tried with values of the columns."""
        return bool(self._rules.rules) and self._found is None

    def draw(self, rows: int, first: int, chunk: int, seed: int) -> Rows:
        """Rows chunk by chunk; the first has the number `first` in the whole sample."""
        if self._model.net is None or rows == 0:
            return Rows(np.zeros((rows, len(self._request.temperature)), np.int64), {})
        starts = range(0, rows, chunk)
        sizes = [min(chunk, rows - start) for start in starts]
        streams = [derive(seed, "sample", (first + start) // chunk) for start in starts]
        if not self._rules.rules:
            filled = zip(self._filled(sizes, streams), streams, strict=True)
            return stack(
                [Rows(t, self.bounds(t, numpy_stream(stream, "choice"))) for t, stream in filled]
            )
        whole: Iterable[np.ndarray | None] = [None] * len(sizes)
        if self._sampler.is_compiled:  # without the rules first: few rows violate them
            whole = self._filled(sizes, streams)
        valid, drawn = zip(*map(self._valid_chunk, sizes, streams, whole), strict=True)
        if sum(drawn) > (rows if self._found is not None else 0):
            log.info(
                "rules: generated %s rows to get %s that satisfy them",
                f"{sum(drawn):,}",
                f"{rows:,}",
            )
        return stack(valid)

    def _filled(self, sizes: Sequence[int], streams: Sequence[int]) -> Iterable[np.ndarray]:
        """The codes of chunks of new rows, whatever the rules."""
        if self._conditioned:
            return map(self._fill, sizes, streams)
        return self._sampler.fill_new(
            sizes,
            streams,
            allowed=self._allowed,
            column_order=self._model.column_order,
            leave=self._leave,
            last=self._last,
        )

    def _fill(self, rows: int, seed: int, constraint: RowConstraint | None = None) -> np.ndarray:
        try:
            return self._sampler.fill(
                np.full((rows, len(self._allowed)), MASK),
                seed,
                allowed=self._allowed,
                column_order=self._model.column_order,
                conditioned=self._conditioned,
                leave=self._leave,
                last=self._last,
                constraint=constraint,
            )
        except ImprobableCondition as error:
            raise UserError(self._improbable(error)) from error

    def _valid_chunk(
        self, rows: int, seed: int, whole: np.ndarray | None = None
    ) -> tuple[Rows, int]:
        """Rows that satisfy every rule, and how many had to be drawn for them.

        `whole` is the chunk as it was drawn without the rules, (B, C).
        """
        valid: list[Rows] = []
        drawn = 0
        broken = ""

        def attempt(number: int, open_slots: np.ndarray) -> Iterable[Candidates]:
            nonlocal drawn, broken
            stream = derive(seed, "again", number) if number else seed
            count = len(open_slots)
            size = min(4 * count + 16, max(rows, 64)) if number else count
            candidates, broken = self._attempt(size, stream, None if number else whole)
            drawn += size
            yield candidates

        def use(slots: np.ndarray, candidates: Candidates, chosen: np.ndarray) -> None:
            valid.append(candidates.rows.take(chosen))

        rounds = (lambda slots, n=n: attempt(n, slots) for n in range(MOST_ATTEMPTS))
        still_open = redraw(np.arange(rows), rounds, use)
        if len(still_open):
            raise UserError(
                f"Only {rows - len(still_open)} of {rows} rows satisfied {broken}; gave up after "
                f"generating {drawn} rows. Relax the conditions, or remove the rule from the "
                "schema and fit again."
            )
        return stack(valid), drawn

    def _attempt(self, rows: int, seed: int, whole: np.ndarray | None) -> tuple[Candidates, str]:
        """Rows that are drawn under rules, and what to call a rule that too many violate."""
        rng = numpy_stream(seed, "rules")
        given: Any = {"allowed": self._allowed, "selections": self._selections}
        if self._found is not None:
            found = FoundRuleState(self._found, rows, rng, **given)
            whole = self._fill(rows, seed, found) if whole is None else whole
            tokens, exact, valid = found.finish(whole)
            within = {**self.bounds(tokens, rng), **exact}
            return Candidates(Rows(tokens, within), valid), "the rules found in the table"
        state = RuleState(self._rules, self._model.codec, rows, rng, **given)
        tokens = self._fill(rows, seed, state)
        valid = state.satisfied()
        exact = {name: (units, units) for name, units in state.units.items()}
        rule = state.most_violated()
        within = {**self.bounds(tokens, rng), **exact}
        return Candidates(Rows(tokens, within), valid), f"the rule {rule.name!r} ({rule.text})"

    def bounds(self, tokens: np.ndarray, rng: np.random.Generator) -> dict[str, Bounds]:
        """Where the numbers of conditioned columns must lie."""
        within = {}
        for index, coded in enumerate(self._model.codec.token_columns):
            if coded.name in self._selections:
                selection = self._selections[coded.name]
                bounds = coded.codec.bounds(selection, tokens[:, index], rng)
                if bounds is not None:
                    within[coded.name] = bounds
        return within

    def _improbable(self, error: ImprobableCondition) -> str:
        name = self._model.codec.token_columns[error.column].name
        others = [repr(other) for other in self._selections if other != name]
        given = f" given the conditions on {', '.join(others)}" if others else ""
        return (
            f"The condition on column {name!r} has a probability of only {error.probability:.1e} "
            f"in this model{given}. Relax {'one of them' if others else 'it'}."
        )
