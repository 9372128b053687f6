"""The folder that `synthesize` writes: its files, and whether a run may continue in it.

`arguments.json` contains the arguments. A later run with the same arguments continues with the
first stage whose files are missing; a run with other arguments is refused.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabmt.data.files import SUFFIXES
from tabmt.errors import UserError
from tabmt.json_files import json_text, read_json
from tabmt.writing import LOCK, remove_abandoned, write_text

REAL_ROWS = "real-rows"  # a folder of its own: whoever shares the results must leave it out
ENDING = "-synthetic"
SAME = ("content", "rows", "target", "seed", "max_risk", "schema", "settings")  # of a later run
TABLE_IN_MEMORY = ".parquet"  # the format that keeps the types of a data frame


@dataclass(frozen=True)
class ResultsFolder:
    """The paths of all files that `synthesize` writes."""

    path: Path
    suffix: str  # of tables

    @property
    def arguments(self) -> Path:
        return self.path / "arguments.json"

    @property
    def schema(self) -> Path:
        return self.path / "schema.json"

    @property
    def train(self) -> Path:
        return self.path / REAL_ROWS / f"train{self.suffix}"

    @property
    def test(self) -> Path:
        return self.path / REAL_ROWS / f"test{self.suffix}"

    @property
    def model(self) -> Path:
        return self.path / "model.tabmt"

    @property
    def checkpoint(self) -> Path:
        return self.path / "model.tabmt.checkpoint"

    @property
    def synthetic(self) -> Path:
        return self.path / f"synthetic{self.suffix}"

    @property
    def scores(self) -> Path:
        return self.path / "evaluation.json"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def readme(self) -> Path:
        return self.path / "README.txt"

    @property
    def is_complete(self) -> bool:
        written = (self.model, self.synthetic, self.scores, self.report, self.readme)
        return all(path.exists() for path in written)

    def prepare(self, arguments: Mapping[str, Any], *, force: bool) -> bool:
        """See that a run may write here, and note what it was asked for; True if it goes on from
        an earlier one.

        `force` starts again, and replaces the files of other runs.
        """
        remove_abandoned(self.path)
        before = self._read_arguments()
        if before is not None and not force and _differing(before, arguments) is None:
            return True
        if not force:
            self._refuse(before, arguments)
        self.remove_results(before)
        write_text(self.arguments, json_text(dict(arguments), indent=2) + "\n")
        return False

    def _read_arguments(self) -> dict[str, Any] | None:
        return read_json(self.arguments, "arguments") if self.arguments.exists() else None

    def _refuse(self, before: dict[str, Any] | None, arguments: Mapping[str, Any]) -> None:
        folder = str(self.path)
        if before is None:
            if all(entry.name == LOCK for entry in self.path.iterdir()):
                return
            raise UserError(
                f"The folder {folder!r} contains other files; use an empty folder, or --force."
            )
        advice = "choose another folder, or start again with --force."
        name = _differing(before, arguments)
        assert name is not None
        if name == "content":
            raise UserError(f"The folder {folder!r} holds the results of another table; {advice}")
        if name in ("schema", "settings"):
            which = {"schema": "another schema", "settings": "other settings"}[name]
            raise UserError(f"The folder {folder!r} holds results with {which}; {advice}")
        raise UserError(
            f"The folder {folder!r} holds results with {name} {before.get(name)!r}, not "
            f"{arguments[name]!r}; {advice}"
        )

    def remove_results(self, arguments: Mapping[str, Any] | None) -> None:
        """Remove the files of an earlier run, if there was one, and nothing else."""
        if arguments is None:
            return
        suffix = arguments.get("suffix")
        earlier = ResultsFolder(self.path, suffix if suffix in SUFFIXES else self.suffix)
        for path in (
            earlier.readme, earlier.report, earlier.scores, earlier.synthetic, earlier.checkpoint,
            earlier.model, earlier.train, earlier.test, earlier.schema, earlier.arguments,
        ):  # fmt: skip
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            earlier.train.parent.rmdir()


def _differing(before: Mapping[str, Any], arguments: Mapping[str, Any]) -> str | None:
    """The first argument that differs from the earlier run; None if all are the same."""
    return next((name for name in SAME if before.get(name) != arguments[name]), None)
