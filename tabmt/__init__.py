"""TabMT: learn a table, generate rows like it."""

from typing import TYPE_CHECKING, Any

from tabmt.errors import UserError
from tabmt.where import between, known, missing, one_of

if TYPE_CHECKING:
    from tabmt.synthesizer import TabMT

__all__ = ["TabMT", "UserError", "between", "known", "missing", "one_of"]


def __getattr__(name: str) -> Any:
    # On first use, so that the command line can answer without importing torch.
    if name == "TabMT":
        from tabmt.synthesizer import TabMT

        return TabMT
    raise AttributeError(f"module 'tabmt' has no attribute {name!r}")
