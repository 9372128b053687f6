"""TabMT: learn a table, generate rows like it."""

import importlib
from typing import TYPE_CHECKING, Any

from tabmt.errors import UserError
from tabmt.where import between, known, missing, one_of

if TYPE_CHECKING:
    from tabmt.search.pareto import pareto
    from tabmt.search.tune import tune
    from tabmt.synthesizer import TabMT

__all__ = ["TabMT", "UserError", "between", "known", "missing", "one_of", "pareto", "tune"]
LATER = {"TabMT": "synthesizer", "pareto": "search.pareto", "tune": "search.tune"}


def __getattr__(name: str) -> Any:
    # On first use, so that the command line can answer without importing torch.
    if name in LATER:
        return getattr(importlib.import_module(f"tabmt.{LATER[name]}"), name)
    raise AttributeError(f"module 'tabmt' has no attribute {name!r}")
