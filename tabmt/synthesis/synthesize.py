"""One call from a table to synthetic rows and a verdict: split, fit, sample, evaluate.

Each stage reads the files of the previous one, as the commands in README.txt do, and writes its own
files completely or not at all. So an interrupted run continues with the stage that it had reached.
"""

import contextlib
import dataclasses
import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tabmt.config import check_count
from tabmt.data import files
from tabmt.data.dataset import Dataset, Files
from tabmt.data.overrides import read_overrides
from tabmt.data.schema import Schema, Source
from tabmt.errors import UserError
from tabmt.estimator import TabMT
from tabmt.evaluation.evaluate import Evaluator
from tabmt.evaluation.metrics import fidelity
from tabmt.evaluation.report import charts
from tabmt.evaluation.report.report import environment, verdict, write_report
from tabmt.evaluation.results import Evaluation
from tabmt.json_files import json_text, parse_json, read_bounded
from tabmt.method.train import Progress
from tabmt.model.model_card import Settings
from tabmt.outputs import check_outputs
from tabmt.progress import describe_stage, in_notebook, notebook_bar
from tabmt.seeds import numpy_stream
from tabmt.synthesis.readme import readme_text
from tabmt.synthesis.results_folder import (
    ENDING,
    TABLE_IN_MEMORY,
    ResultsFolder,
)
from tabmt.writing import claimed, make_folder, write_text

log = logging.getLogger(__name__)

STAGES = ("reading", "fitting", "sampling", "evaluating")
TEST_SHARE = 0.2
# With an id column and an attack on the likelihood, the verdict needs 125 test rows, otherwise 115.
ENOUGH_TEST_ROWS = 125
MOST_TEST_SHARE = 0.25  # a model of fewer training rows comes too close to them (docs/log.md)
FEWEST_ROWS = 40

OnProgress = Callable[[str, float, Mapping[str, Any]], None]


@dataclass(frozen=True)
class Synthesis:
    """The files that `synthesize` has written to a folder, and the verdict on the rows."""

    folder: Path
    model: Path
    synthetic: Path
    report: Path
    scores: Path
    readme: Path
    train: Path  # real rows, as all of the folder `real-rows`
    test: Path
    evaluation: Evaluation
    verdict: tuple[str, ...]  # sentences, privacy first


def synthesize(
    table: Any,
    folder: str | Path | None = None,
    *,
    rows: int | None = None,
    target: str | None = None,
    schema: Mapping[str, Any] | str | Path | None = None,
    max_risk: float | None = None,
    seed: int = 0,
    force: bool = False,
    progress: OnProgress | None = None,
    should_stop: Callable[[], bool] | None = None,
    **settings: Any,
) -> Synthesis:
    """Fit a model to a table, generate `rows` like it, and evaluate them, all in one folder.

    A fifth of the table, and at least 125 rows if that is no more than a quarter, is set aside as
    test rows. The folder (`people-synthetic` for `people.csv`) then contains `model.tabmt`,
    the synthetic rows in the format of the table (Parquet for a data frame), `report.html`,
    `evaluation.json`, `README.txt`, and in `real-rows` the training and test rows. There are as
    many synthetic rows as the table has, unless `rows` is given. Settings are those of `TabMT`.

    An interrupted call is resumed when it is repeated with the same arguments; other arguments need
    another folder, or `force`, which starts again. `progress` is called with the stage ("reading",
    "fitting", "sampling", "evaluating"), the share of it that is done, and details, such as `loss`
    and `valid_loss` while fitting. If it raises `Cancelled`, the call ends and can be resumed.
    When `should_stop` returns True, the fit ends and the other stages use the model so far. In a
    notebook, a call without `progress` shows a bar.

    With `epsilon`, the model and the synthetic rows have differential privacy, but the scores and
    the report, which compare with real rows, have not; unless `rows` is given, there are about as
    many as training rows.

    Example:
        >>> result = synthesize("people.csv", target="income", minutes=5)
        >>> result.evaluation.privacy.outcome  # "safe" by these tests, "unsafe" or "undecided"
    """
    if progress is None and in_notebook():
        with notebook_bar() as draw:
            return synthesize(
                table, folder, rows=rows, target=target, schema=schema, max_risk=max_risk,
                seed=seed, force=force, should_stop=should_stop, **settings,
                progress=_on_bar(draw),
            )  # fmt: skip
    on_progress: OnProgress = progress or (lambda stage, share, details: None)
    on_progress("reading", 0.0, {})
    model = TabMT(seed=seed, target=target, **settings)
    Settings.of(model.get_params())  # mistakes are reported before a table is read
    _check_installed()
    dataset = Dataset.open(table)
    results = _results_folder(table, folder, dataset)
    inputs = [path for path in (table, schema) if isinstance(path, str | Path)]
    check_outputs([], inputs, folders=[results.path])
    arguments = {
        "table": str(table) if isinstance(table, str | Path) else None,
        "schema_file": str(schema) if isinstance(schema, str | Path) else None,
        "suffix": results.suffix,
        "content": _content(dataset),
        "rows": _rows(rows, dataset, private=settings.get("epsilon") is not None),
        "target": target,
        "seed": seed,
        "max_risk": max_risk,
        "schema": read_overrides(schema),
        "settings": settings,
    }
    with _claimed(results, arguments, force=force) as goes_on:
        run = Run(results, arguments, model, on_progress, should_stop)
        return run.all_stages(dataset, goes_on=goes_on)


def _on_bar(draw: Callable[[float, str], None]) -> OnProgress:
    """Show the stages on a bar."""
    return lambda stage, share, details: draw(
        share, f"{_title(stage)}  {describe_stage(share, details)}"
    )


def _title(stage: str) -> str:
    return f"{STAGES.index(stage) + 1}/{len(STAGES)} {stage}"


@dataclass(frozen=True)
class Run:
    """The stages of one call."""

    results: ResultsFolder
    arguments: Mapping[str, Any]
    model: TabMT
    on_progress: OnProgress
    should_stop: Callable[[], bool] | None

    def all_stages(self, dataset: Dataset, *, goes_on: bool) -> Synthesis:
        """Run the stages that are not complete. All stages after a repeated one are repeated."""
        results = self.results
        done = goes_on and results.train.exists() and results.test.exists()
        if not done:
            self._split(dataset)
        if done and results.is_complete:
            log.info("%s is complete already", results.path)
            return self._synthesis(self._read_evaluation())
        evaluator = self._evaluator()  # before the fit: it refuses what cannot be evaluated
        done = done and results.model.exists()
        if not done:
            self._fit(goes_on=goes_on)
        done = done and results.synthetic.exists()
        if not done:
            self._sample()
        return self._synthesis(self._evaluate(evaluator))

    def _split(self, dataset: Dataset) -> None:
        self.on_progress("reading", 0.3, {"rows": dataset.num_rows})
        train, test = split(dataset.to_table(), self.arguments["seed"])
        self.on_progress("reading", 0.6, {"train_rows": len(train), "test_rows": len(test)})
        make_folder(self.results.train.parent)
        for path, rows in ((self.results.train, train), (self.results.test, test)):
            _write_table(path, rows, dataset.source)
        if self.arguments["schema"] is not None:
            text = json_text(self.arguments["schema"], indent=2)
            write_text(self.results.schema, text + "\n")

    def _evaluator(self) -> Evaluator:
        arguments = self.arguments
        evaluator = Evaluator.of(
            self.results.train,
            self.results.test,
            target=arguments["target"],
            schema=arguments["schema"],
            max_risk=arguments["max_risk"],
            seed=arguments["seed"],
        )
        self.on_progress("reading", 1.0, {})
        return evaluator

    def _fit(self, *, goes_on: bool) -> None:
        self.on_progress("fitting", 0.0, {})
        checkpoint = self.results.checkpoint

        def on_step(step: Progress) -> None:
            self.on_progress("fitting", step.share, dataclasses.asdict(step))

        self.model.fit(
            self.results.train,
            schema=self.arguments["schema"],
            checkpoint=checkpoint,
            resume=goes_on and checkpoint.exists(),
            on_step=on_step,
            should_stop=self.should_stop,
        )
        self.model.save(self.results.model, force=True)
        checkpoint.unlink(missing_ok=True)
        self.on_progress("fitting", 1.0, {})

    def _sample(self) -> None:
        """Sample from the model file, so that the rows are those of `tabmt sample`."""
        model, rows = TabMT.load(self.results.model), self.arguments["rows"]
        rows = model.card_.rows if rows is None else rows
        batches = model.sample_batches(rows, seed=self.arguments["seed"] + 1)

        def reported() -> Iterator[pa.Table]:
            done = 0
            for batch in batches:
                self.on_progress("sampling", done / rows, {"rows": done, "of": rows})
                done += batch.num_rows
                yield batch

        files.write_file(self.results.synthetic, model.schema_, reported())
        self.on_progress("sampling", 1.0, {"rows": rows, "of": rows})

    def _evaluate(self, evaluator: Evaluator) -> Evaluation:
        results = self.results

        def on_metric(share: float, title: str) -> None:
            self.on_progress("evaluating", 0.9 * share, {"metric": title})

        evaluated = evaluator.evaluate(results.synthetic, results.synthetic.name, on_metric)
        self.on_progress("evaluating", 0.9, {"metric": "report"})
        card = TabMT.load(results.model).card_
        promise = [] if card.privacy is None else card.privacy.lines()
        write_report(evaluator, [evaluated], results.report, promise=promise)
        evaluation = evaluated.evaluation
        write_text(results.scores, json_text([evaluation.to_json()], indent=2) + "\n")
        write_text(results.readme, readme_text(results, self.arguments, evaluation, card))
        self.on_progress("evaluating", 1.0, {})
        return evaluation

    def _read_evaluation(self) -> Evaluation:
        stored = parse_json(read_bounded(self.results.scores, "scores"))
        return Evaluation.from_json(stored[0])

    def _synthesis(self, evaluation: Evaluation) -> Synthesis:
        results = self.results
        return Synthesis(
            folder=results.path,
            model=results.model,
            synthetic=results.synthetic,
            report=results.report,
            scores=results.scores,
            readme=results.readme,
            train=results.train,
            test=results.test,
            evaluation=evaluation,
            verdict=tuple(verdict(evaluation)),
        )


def _rows(rows: int | None, dataset: Dataset, *, private: bool) -> int | None:
    """The number of rows to generate; with epsilon, None stands for the noisy number of training
    rows, as the real one would say something about the table."""
    if rows is not None:
        return check_count("rows", rows, 1)
    return None if private else dataset.num_rows


# --- test rows -----------------------------------------------------------------------------


def number_of_test_rows(rows: int) -> int:
    """How many rows of a table are set aside as test rows."""
    if rows < FEWEST_ROWS:
        raise UserError(
            f"The table has {rows} row{'s' * (rows != 1)}, too few to train on some and test on "
            f"others; it needs at least {FEWEST_ROWS}."
        )
    enough = min(ENOUGH_TEST_ROWS, round(MOST_TEST_SHARE * rows))
    return max(round(TEST_SHARE * rows), enough)


def split(table: pa.Table, seed: int) -> tuple[pa.Table, pa.Table]:
    """Training and test rows, at random, each in the order of the table."""
    count = number_of_test_rows(table.num_rows)
    if count < ENOUGH_TEST_ROWS:
        log.warning(
            "The table has %s rows, of which %d are set aside as test rows: too few for the "
            'verdict "safe by these tests", which needs a table of %d rows.',
            f"{table.num_rows:,}",
            count,
            round(ENOUGH_TEST_ROWS / MOST_TEST_SHARE),
        )
    order = numpy_stream(seed, "test rows of a table").permutation(table.num_rows)
    return table.take(np.sort(order[count:])), table.take(np.sort(order[:count]))


def _write_table(path: Path, table: pa.Table, source: Source) -> None:
    schema = dataclasses.replace(Schema.of_table(table.schema), source=source)
    files.write_file(path, schema, [table.replace_schema_metadata(schema.arrow.metadata)])


# --- the folder ----------------------------------------------------------------------------


def _results_folder(table: Any, folder: str | Path | None, dataset: Dataset) -> ResultsFolder:
    suffix = files.suffix_of(dataset.paths[0]) if isinstance(dataset, Files) else TABLE_IN_MEMORY
    if folder is not None:
        return ResultsFolder(Path(folder), suffix)
    if not isinstance(table, str | Path):
        raise UserError("Pass `folder`: its name can be derived only from the path of one table.")
    return ResultsFolder(Path(files.name_of_table(str(table)) + ENDING), suffix)


@contextlib.contextmanager
def _claimed(
    results: ResultsFolder, arguments: Mapping[str, Any], *, force: bool
) -> Iterator[bool]:
    """Lock the folder; yields whether this run continues an earlier one.

    If a new run is refused before its model is fitted, its files are removed.
    """
    is_new = not results.path.exists()
    make_folder(results.path)
    try:
        with claimed(results.path, "The output folder"):
            goes_on = results.prepare(arguments, force=force)
            try:
                yield goes_on
            except UserError:
                if not goes_on and not results.model.exists():
                    results.remove_results(arguments)
                raise
    except UserError:
        if is_new:
            with contextlib.suppress(OSError):  # it is not empty
                results.path.rmdir()
        raise


def _content(dataset: Dataset) -> str:
    """A digest of a table, by which a later run recognises it."""
    digest = hashlib.blake2b(digest_size=16)
    if isinstance(dataset, Files):
        for path in dataset.paths:
            with files.reading(path, files.file_kind(path)), path.open("rb") as file:
                while block := file.read(2**20):
                    digest.update(block)
    else:
        for batch in dataset.to_table().combine_chunks().to_batches():
            digest.update(batch.serialize())
    return digest.hexdigest()


def _check_installed() -> None:
    """Check that the packages of all stages are installed, before the work begins."""
    fidelity.catboost()
    charts.converter()
    environment()
