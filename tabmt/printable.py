"""Make text from files safe to print: no character can move the cursor, hide other text or change
its direction."""

import re

# Control characters (C0, DEL, C1), marks that change the direction of text, line and paragraph
# separators, and halves of surrogate pairs, which cannot be encoded.
UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def printable(text: str, keep: str = "") -> str:
    """The same text with escapes such as \\x1b for what is not printable, except `keep`."""
    return UNPRINTABLE.sub(lambda m: m[0] if m[0] in keep else _escaped(m[0]), text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
