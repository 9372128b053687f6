"""A fitted model as a small piece of HTML, for notebooks: how it was fitted, and its columns."""

import html

from tabmt.model.fitted_model import FittedModel

MOST_COLUMNS = 30


def model_html(model: FittedModel) -> str:
    """Everything that comes from a table is escaped; nothing refers to anything outside."""
    card, columns = model.card, model.codec.schema.columns
    training = "none, as all columns are constant or ids"
    if card.summary is not None:
        loss = card.summary.valid_loss
        valid = "" if loss is None else f", validation loss {loss:.4f}"
        training = f"{card.summary.steps:,} steps in {card.summary.seconds:.0f} s{valid}"
    network = card.settings.network
    facts = [
        f"fitted on {card.rows:,} rows with {len(columns)} columns, seed {card.seed}",
        f"network {network.network}, width {network.width}, depth {network.depth}",
        f"training: {training}",
        f"target: {card.settings.train.target or 'none'}",
    ]
    if card.privacy is not None:
        facts += card.privacy.lines()
    rows = "".join(
        _row("td", column.name, column.kind, column.dtype, column.reason)
        for column in columns[:MOST_COLUMNS]
    )
    more = len(columns) - MOST_COLUMNS
    note = f"<p>{more:,} more columns are not shown.</p>" if more > 0 else ""
    lines = "<br>".join(html.escape(fact) for fact in facts)
    head = _row("th", "column", "kind", "type", "reason")
    return f"<div><p><b>TabMT</b> {lines}</p><table>{head}{rows}</table>{note}</div>"


def _row(tag: str, *cells: str) -> str:
    inside = "".join(
        f'<{tag} style="text-align:left">{html.escape(cell)}</{tag}>' for cell in cells
    )
    return f"<tr>{inside}</tr>"
