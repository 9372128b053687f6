import numpy as np
import pyarrow as pa
import pytest

from tabmt.codec.identifiers import Identifiers
from tabmt.data.personal import find_form, iban_check_digits, luhn_digit

RNG = np.random.default_rng(0)


def digits(count):
    return "".join(map(str, RNG.integers(0, 10, count)))


def letters(least, most):
    return "".join(RNG.choice(list("abcdefghijklmnopqrstuvwxyz"), RNG.integers(least, most)))


def card():
    number = "4" + digits(14)
    return number + luhn_digit(number)


def iban(country, length):
    account = digits(length)
    return country + iban_check_digits(country, account) + account


FORMS = {
    "email": lambda: f"{letters(4, 9)}.{letters(4, 9)}@{RNG.choice(['web.de', 'mail.no'])}",
    "phone": lambda: f"+47 {digits(3)} {digits(2)} {digits(3)}",
    "card": card,
    "iban": lambda: iban("NO", 11) if RNG.random() < 0.5 else iban("DE", 18),
    "national": lambda: f"{digits(3)}-{digits(2)}-{digits(4)}",
    "name": lambda: f"{letters(4, 8).title()} {letters(4, 8).title()}",
}


@pytest.mark.parametrize("form", FORMS)
def test_new_personal_data_has_the_form_of_the_real_and_is_never_real(form):
    name = "full_name" if form == "name" else "column"
    real = pa.array([FORMS[form]() for _ in range(500)])
    found = find_form(name, real)
    assert found.key == form
    identifiers = Identifiers.find(name, real, None, form)
    new = identifiers.generate(0, 5000, dtype=real.type, seed=1, name=name)
    assert find_form(name, new).key == form
    words = new.to_pylist()
    assert len(set(words)) == 5000 and not set(words) & set(real.to_pylist())
    again = identifiers.generate(4000, 1000, dtype=real.type, seed=1, name=name)
    assert again.to_pylist() == words[4000:]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("city", ["Oslo", "Bergen", "Tromso", "Bodo", "Alta"]),
        ("code", ["AB-123", "CD-456", "EF-789", "GH-012", "IJ-345"]),
        ("day", ["2020-01-31", "2020-02-28", "2020-03-31", "2020-04-30", "2020-05-31"]),
        ("amount", ["1234567890123", "1234567890124", "1234567890125", "1234567890126", "1"]),
        ("version", ["1.2.3", "1.2.4", "1.3.0", "2.0.0", "2.0.1"]),
    ],
)
def test_other_text_is_not_personal(name, words):
    assert find_form(name, pa.array(words)) is None


def test_check_digits_are_those_of_published_examples():
    assert luhn_digit("7992739871") == "3"
    assert iban_check_digits("GB", "WEST12345698765432") == "82"


def test_the_ends_of_numbers_are_stored_rounded():
    found = Identifiers.find("key", pa.array([4_711_234_567, 4_799_999_123, 4_750_000_111]))
    assert (found.start, found.count) == (4_800_000_001, 100_000_001)
