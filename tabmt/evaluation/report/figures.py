"""The paper's figures of several generators: correlation errors overlaid, and the manifold.

Each function returns a Vega-Lite specification, for a page or for a file of its own.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tabmt.errors import UserError, not_installed
from tabmt.evaluation.evaluate import EvaluatedTable, Evaluator
from tabmt.evaluation.metrics import fidelity
from tabmt.evaluation.report import charts
from tabmt.seeds import derive
from tabmt.writing import make_folder, write_text

log = logging.getLogger(__name__)

MOST_POINTS = 500  # of each table on the map: more hide each other, and fill the file
FEWEST_POINTS = 10  # on the map: PaCMAP needs neighbours and further points


def write_figures(
    evaluator: Evaluator, evaluated: Sequence[EvaluatedTable], folder: str | Path
) -> list[Path]:
    """Write correlation_errors.svg and, if the rows are embedded, manifold.svg."""
    target = Path(folder)
    draw = {"correlation_errors.svg": correlation_errors}
    if evaluator.embedding is not None:
        pacmap()
        draw["manifold.svg"] = manifold
    make_folder(target)
    written = []
    for name, figure in draw.items():
        try:
            specification = figure(evaluator, evaluated)
        except UserError as error:
            log.warning("%s was not written: %s", name, error)
            continue
        write_text(target / name, charts.svg(specification, ink=charts.BLACK))
        written.append(target / name)
    return written


def correlation_errors(evaluator: Evaluator, evaluated: Sequence[EvaluatedTable]) -> dict[str, Any]:
    """The histograms of all generators' correlation errors, and that of training rows."""
    errors = [fidelity.correlation_errors(evaluator.test, evaluator.train)]
    errors += [fidelity.correlation_errors(evaluator.test, table.encoded) for table in evaluated]
    names = legend_names("training rows", evaluated)
    return charts.overlaid_histograms(list(zip(names, errors, strict=True)), "correlation error")


def manifold(evaluator: Evaluator, evaluated: Sequence[EvaluatedTable]) -> dict[str, Any]:
    """The embeddings of real test rows and of all generators' rows on one map by PaCMAP."""
    vectors = [table.vectors for table in evaluated if table.vectors is not None]
    assert len(vectors) == len(evaluated)
    most = min(MOST_POINTS, max(len(rows) for rows in vectors))
    vectors = [evaluator.test_vectors(most), *(rows[:most] for rows in vectors)]
    ends = np.cumsum([len(rows) for rows in vectors])[:-1]
    points = np.split(flatten(np.concatenate(vectors), evaluator.seed), ends)
    names = legend_names("real test rows", evaluated)
    return charts.maps(list(zip(names, points, strict=True)))


def flatten(vectors: np.ndarray, seed: int) -> np.ndarray:
    """(rows, D) -> (rows, 2) by PaCMAP; the same seed gives the same map."""
    package = pacmap()
    if len(vectors) < FEWEST_POINTS:
        raise UserError(f"a map needs at least {FEWEST_POINTS} rows, but there are {len(vectors)}")
    if (vectors == vectors[0]).all():
        raise UserError("a map needs rows that differ, but all embeddings are the same")
    if vectors.shape[1] < 2:  # PaCMAP starts from two principal components
        vectors = np.pad(vectors, ((0, 0), (0, 1)))
    with _quiet_and_single_threaded():
        # PaCMAP adds the number of each pair to its seed, in 32 bits.
        reducer = package.PaCMAP(random_state=derive(seed, "map") % 2**30)
        points = reducer.fit_transform(np.ascontiguousarray(vectors, np.float32))
    return np.asarray(points, np.float64)


def pacmap() -> Any:
    try:
        import pacmap
    except ImportError as error:
        raise not_installed("The map of embeddings", "PaCMAP", "map") from error
    return pacmap


@contextmanager
def _quiet_and_single_threaded() -> Iterator[None]:
    """PaCMAP logs a warning for every seed, and on a busy machine its threads wait for each other:
    with several of them it was twenty times slower, for the same map."""
    import numba

    logger, threads = logging.getLogger("pacmap"), numba.get_num_threads()
    level = logger.level
    logger.setLevel(logging.ERROR)
    numba.set_num_threads(1)
    try:
        yield
    finally:
        numba.set_num_threads(threads)
        logger.setLevel(level)


def legend_names(real: str, evaluated: Sequence[EvaluatedTable]) -> list[str]:
    """A name for each table, real rows first; what occurs twice is numbered."""
    names = [real]
    for table in evaluated:
        name, number = table.evaluation.name, 1
        while name in names:
            number += 1
            name = f"{table.evaluation.name} ({number})"
        names.append(name)
    return names
