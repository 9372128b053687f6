"""TabMT: learn a table, generate rows like it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tabmt.errors import UserError
    from tabmt.synthesizer import TabMT

__all__ = ["TabMT", "UserError"]


def __getattr__(name: str) -> Any:
    # On first use, so that the command line can answer without importing torch.
    if name == "TabMT":
        from tabmt.synthesizer import TabMT

        return TabMT
    if name == "UserError":
        from tabmt.errors import UserError

        return UserError
    raise AttributeError(f"module 'tabmt' has no attribute {name!r}")
