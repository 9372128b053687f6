"""TabMT: fit a model to a table and generate rows like it."""

import importlib
from typing import TYPE_CHECKING, Any

from tabmt.conditions.condition import between, known, missing, one_of
from tabmt.config import PAPER
from tabmt.errors import Cancelled, UserError

if TYPE_CHECKING:
    from tabmt.demo import penguins
    from tabmt.estimator import TabMT
    from tabmt.evaluation.evaluate import evaluate
    from tabmt.search.pareto import pareto
    from tabmt.search.pareto_front import Front
    from tabmt.search.tune import tune
    from tabmt.synthesis.synthesize import synthesize

__all__ = [
    "PAPER",
    "Cancelled",
    "Front",
    "TabMT",
    "UserError",
    "between",
    "evaluate",
    "known",
    "missing",
    "one_of",
    "pareto",
    "penguins",
    "synthesize",
    "tune",
]
ON_FIRST_USE = {  # so that the command line can answer without importing torch
    "Front": "search.pareto_front",
    "TabMT": "estimator",
    "evaluate": "evaluation.evaluate",
    "pareto": "search.pareto",
    "penguins": "demo",
    "synthesize": "synthesis.synthesize",
    "tune": "search.tune",
}


def __getattr__(name: str) -> Any:
    if name in ON_FIRST_USE:
        return getattr(importlib.import_module(f"tabmt.{ON_FIRST_USE[name]}"), name)
    raise AttributeError(f"module 'tabmt' has no attribute {name!r}")
