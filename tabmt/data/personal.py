"""Recognise personal data by its form: addresses, numbers and names that identify a person.

Only forms that nearly all values of a column have are recognised, and only a name of the form is
returned, never a value. Checksums are used where a form has one, so that not every long number is a
card. What is recognised is generated anew (codec/identifiers.py).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

LEAST_SHARE = 0.9  # of the values must have a form
MOST_TRIED = 5_000  # distinct values at most
FEWEST = 5  # distinct values: fewer are more likely words of another kind

EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[A-Za-z]{2,}")
IBAN = re.compile(r"[A-Z]{2}\d{2}[A-Z0-9]{10,30}")
CARD = re.compile(r"\d{13,19}")
PHONE = re.compile(r"(\+|00)\d{1,3}[ \-./]?(\(?\d{1,5}\)?[ \-./]?){1,5}\d{2,}|"
                   r"\(?0?\d{2,5}\)?[ \-./]\d{2,4}([ \-./]?\d{2,4}){1,4}")  # fmt: skip
DATE = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}")
SOCIAL_SECURITY = re.compile(r"\d{3}-\d{2}-\d{4}|[A-Z]{2} ?\d{2} ?\d{2} ?\d{2} ?[A-Z]")
NAME = re.compile(r"[^\W\d_]['\u2019\-]?[^\W\d_]+([ ,.'\u2019\-]+[^\W\d_]+\.?){0,4}")
NAME_COLUMN = re.compile(r"(?i)(^|[\W_])(sur|first|last|given|family|full|middle|user)?_?name(s)?$"
                         r"|(?i:surname|firstname|lastname|fullname|vorname|nachname)")  # fmt: skip

KEY_NAME = re.compile(
    r"(?i:(^|[\W_])(id|key|uuid|guid|index|idx|row_?number|row_?id|unnamed: \d+)$)"
    r"|[a-z](Id|ID|Key|Number)$"
    r"|^$|^__index_level_\d+__$"  # how pandas writes an index into a file
)
PERSON_COLUMN = re.compile(
    r"(?i)(^|[\W_])(account|client|customer|employee|member|patient|person|student|subject|user)"
    r"([\W_]?(code|nr|no|num|number))?$"
)


@dataclass(frozen=True)
class Form:
    """A form of personal data, and how it is called in messages."""

    key: str
    description: str  # in the plural


def _has_luhn(digits: str) -> bool:
    return luhn_digit(digits[:-1]) == digits[-1]


def luhn_digit(digits: str) -> str:
    """The last digit of a card number, given the others."""
    total = 0
    for index, digit in enumerate(reversed(digits)):
        value = int(digit) * (2 - index % 2)
        total += value - 9 * (value > 9)
    return str(-total % 10)


def iban_check_digits(country: str, account: str) -> str:
    """The two check digits of an IBAN."""
    return f"{98 - _letters_as_number(account + country + '00') % 97:02}"


def _letters_as_number(text: str) -> int:
    return int("".join(str(int(letter, 36)) for letter in text))


def _is_card(word: str) -> bool:
    digits = re.sub(r"[ \-]", "", word)
    return bool(CARD.fullmatch(digits)) and _has_luhn(digits)


def _is_iban(word: str) -> bool:
    compact = word.replace(" ", "")
    if not IBAN.fullmatch(compact):
        return False
    return _letters_as_number(compact[4:] + compact[:4]) % 97 == 1


def _is_phone(word: str) -> bool:
    if not PHONE.fullmatch(word) or DATE.fullmatch(word):
        return False
    return 7 <= sum(letter.isdigit() for letter in word) <= 15


FORMS: tuple[tuple[Form, Callable[[str], bool]], ...] = (
    (Form("email", "e-mail addresses"), lambda word: bool(EMAIL.fullmatch(word))),
    (Form("iban", "bank account numbers (IBAN)"), _is_iban),
    (Form("card", "card numbers"), _is_card),
    (Form("national", "national numbers"), lambda word: bool(SOCIAL_SECURITY.fullmatch(word))),
    (Form("phone", "telephone numbers"), _is_phone),
)
NAMES = Form("name", "names of persons")


def find_form(name: str, distinct: pa.Array) -> Form | None:
    """The form of personal data that nearly all distinct values of a text column have.

    Names have no form of their own: they are words, in a column that is named after them.
    """
    if len(distinct) < FEWEST:
        return None
    rows = np.linspace(0, len(distinct) - 1, min(MOST_TRIED, len(distinct))).astype(np.int64)
    words = distinct.take(pa.array(np.unique(rows))).to_pylist()
    for form, matches in FORMS:
        if sum(map(matches, words)) >= LEAST_SHARE * len(words):
            return form
    if NAME_COLUMN.search(name):
        named = sum(bool(NAME.fullmatch(word)) for word in words)
        return NAMES if named >= LEAST_SHARE * len(words) else None
    return None


def is_named_like_key(name: str) -> bool:
    """Whether a column is named like one that identifies its rows."""
    return KEY_NAME.search(name) is not None


def may_identify_persons(name: str) -> bool:
    """Whether a column is named like a key, or after persons, of whom each may have many rows."""
    return is_named_like_key(name) or PERSON_COLUMN.search(name) is not None
