"""Which columns come first and which last, when rows are generated and orders are learned."""

from collections.abc import Sequence
from dataclasses import dataclass

MANY_CODES = 1000


@dataclass(frozen=True)
class ColumnOrder:
    """Columns that come first or last in every order; the others come at random between them.

    Columns that rules compute from others are not drawn, so what is drawn never sees them: in
    training they come after all others. If only whether their value is missing is drawn, they come
    late, before the last column.
    """

    first: tuple[int, ...] = ()
    last: int | None = None
    late: tuple[int, ...] = ()
    computed: tuple[int, ...] = ()

    @classmethod
    def of(cls, sizes: Sequence[int], *, target: int | None, large_first: bool) -> "ColumnOrder":
        """The order of columns with these numbers of codes.

        PAPER-DIFF target_last: the target comes last, so that it is drawn given all others.
        PAPER-DIFF large_columns_first: what goes with a rare code is learned better than which of
        thousands of codes goes with the rest of a row (docs/log.md).
        """
        many = (i for i, size in enumerate(sizes) if size > MANY_CODES and i != target)
        return cls(tuple(many) if large_first else (), target)


RANDOM_ORDER = ColumnOrder()
