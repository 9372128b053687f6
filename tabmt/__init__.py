"""TabMT: learn a table, generate rows like it."""

import importlib
from typing import TYPE_CHECKING, Any

from tabmt.conditions.condition import between, known, missing, one_of
from tabmt.errors import UserError

if TYPE_CHECKING:
    from tabmt.estimator import TabMT
    from tabmt.search.pareto import pareto
    from tabmt.search.tune import tune

__all__ = ["TabMT", "UserError", "between", "known", "missing", "one_of", "pareto", "tune"]
LATER = {"TabMT": "estimator", "pareto": "search.pareto", "tune": "search.tune"}


def __getattr__(name: str) -> Any:
    # On first use, so that the command line can answer without importing torch.
    if name in LATER:
        return getattr(importlib.import_module(f"tabmt.{LATER[name]}"), name)
    raise AttributeError(f"module 'tabmt' has no attribute {name!r}")
