import pytest

from tabmt import between, known, missing, one_of
from tabmt.conditions.condition import FORMS, parse_conditions, parse_sentence
from tabmt.errors import UserError

READ = [
    ("sex = Female", "sex", one_of("Female")),
    ("sex == Female", "sex", one_of("Female")),
    ("sex=Female", "sex", one_of("Female")),
    ("  sex  =  Female  ", "sex", one_of("Female")),
    ("note =", "note", one_of("")),
    ("age >= 30", "age", between(low="30")),
    ("age > 30", "age", between(low="30", closed="neither")),
    ("age <= 30", "age", between(high="30")),
    ("age < 30", "age", between(high="30", closed="neither")),
    ("age<30", "age", between(high="30", closed="neither")),
    ("age > -30.5", "age", between(low="-30.5", closed="neither")),
    ("age in 30..40", "age", between("30", "40")),
    ("age in 30 .. 40", "age", between("30", "40")),
    ("height in 1.55..1.80", "height", between("1.55", "1.80")),
    ("change in -5..-1", "change", between("-5", "-1")),
    ("since in 2020-01-31..2020-02-01", "since", between("2020-01-31", "2020-02-01")),
    ("since < 2020-01-31 12:30", "since", between(high="2020-01-31 12:30", closed="neither")),
    ("city in {Oslo, Bergen}", "city", one_of("Oslo", "Bergen")),
    ("city in{Oslo,Bergen}", "city", one_of("Oslo", "Bergen")),
    ("city in {Oslo}", "city", one_of("Oslo")),
    ("city in (Oslo, Bergen)", "city", one_of("Oslo", "Bergen")),
    ("city in ['Oslo', Bergen]", "city", one_of("Oslo", "Bergen")),
    ("city in { New York , Rio }", "city", one_of("New York", "Rio")),
    ("income is missing", "income", missing()),
    ("income is not missing", "income", known()),
    ("income IS NOT Missing", "income", known()),
    ("hours per week = 40", "hours per week", one_of("40")),
    ("hours per week >= 40", "hours per week", between(low="40")),
    ("hours per week in 40..50", "hours per week", between("40", "50")),
    ("hours per week in {40, 50}", "hours per week", one_of("40", "50")),
    ("hours per week is missing", "hours per week", missing()),
    ("hours per week is not missing", "hours per week", known()),
    ("😀 = 🙂", "😀", one_of("🙂")),
]


@pytest.mark.parametrize(("sentence", "column", "condition"), READ)
def test_every_form_is_parsed(sentence, column, condition):
    assert parse_sentence(sentence) == (column, condition)


QUOTED = [
    ('city = " Oslo "', "city", one_of(" Oslo ")),
    ("city = 'Oslo'", "city", one_of("Oslo")),
    ("city = 'Oslo", "city", one_of("'Oslo")),
    ("city = \"Oslo'", "city", one_of("\"Oslo'")),
    ('city in {"Oslo, Norway", \'a "b"\', c}', "city", one_of("Oslo, Norway", 'a "b"', "c")),
    ('city in {"{a}", "}"}', "city", one_of("{a}", "}")),
    ('note = ""', "note", one_of("")),
    ('note = "is missing"', "note", one_of("is missing")),
    ('note = "a = b"', "note", one_of("a = b")),
    ("note = 'a >= b'", "note", one_of("a >= b")),
    ('note = "x in {a}"', "note", one_of("x in {a}")),
    ('"my city" = Oslo', "my city", one_of("Oslo")),
    ("`my city` in {Oslo}", "my city", one_of("Oslo")),
    ("' padded ' is missing", " padded ", missing()),
    ('"age in years" >= 30', "age in years", between(low="30")),
]


@pytest.mark.parametrize(("sentence", "column", "condition"), QUOTED)
def test_quotes_are_removed_and_what_is_in_them_is_kept(sentence, column, condition):
    assert parse_sentence(sentence) == (column, condition)


PROTECTED = [
    ('"a=b" = c', "a=b", one_of("c")),
    ("`a <= b` > 3", "a <= b", between(low="3", closed="neither")),
    ('"age in years" in 30..40', "age in years", between("30", "40")),
    ('note = "born in 19..20"', "note", one_of("born in 19..20")),
    ('"x = y" in {c, d}', "x = y", one_of("c", "d")),
    ('"x is missing" = 3', "x is missing", one_of("3")),
]


@pytest.mark.parametrize(("sentence", "column", "condition"), PROTECTED)
def test_signs_and_words_inside_quotes_are_not_part_of_the_form(sentence, column, condition):
    assert parse_sentence(sentence) == (column, condition)


def test_a_comma_at_the_end_of_a_set_adds_no_value():
    assert parse_sentence("city in {Oslo, Bergen, }") == ("city", one_of("Oslo", "Bergen"))


@pytest.mark.parametrize(
    "sentence",
    [
        "",
        "   ",
        "age",
        "age 30",
        "= 30",
        "> 3",
        "age in 30",
        "age in ..40",
        "age in 30..",
        "is missing",
    ],
)
def test_a_sentence_of_another_form_lists_the_forms(sentence):
    with pytest.raises(UserError) as error:
        parse_sentence(sentence)
    assert str(error.value) == f"The condition {sentence!r} is not valid. Allowed forms: {FORMS}."
    assert "COLUMN in LOW..HIGH" in FORMS


def test_a_sign_that_is_not_a_comparison_is_refused():
    with pytest.raises(UserError) as error:
        parse_sentence("age != 30")
    assert str(error.value) == f"The condition 'age != 30' is not valid. Allowed forms: {FORMS}."


def test_a_mapping_takes_conditions_and_plain_values():
    where = {"a": 3, "b": between(1, 2), "c": missing(), 4: "x"}
    assert parse_conditions(where) == {
        "a": one_of(3),
        "b": between(1, 2),
        "c": missing(),
        "4": one_of("x"),
    }


@pytest.mark.parametrize("wanted", [["Oslo", "Bergen"], (1, 2), {"a"}])
def test_several_plain_values_get_a_sentence(wanted):
    with pytest.raises(UserError) as error:
        parse_conditions({"city": wanted})
    assert str(error.value) == (
        f"The condition on column 'city' is {wanted!r}; use one_of(...) for one of several values, "
        "or between(low, high) for a range."
    )


def test_what_is_not_a_condition_gets_a_sentence():
    with pytest.raises(UserError) as error:
        parse_conditions(3)
    assert str(error.value) == (
        f"`where` must be a dict of conditions or text such as 'age >= 18', got 3. Allowed forms: "
        f"{FORMS}."
    )


def test_no_condition_is_none_an_empty_mapping_or_an_empty_list():
    assert parse_conditions(None) == parse_conditions({}) == parse_conditions([]) == {}


def test_one_sentence_needs_no_list():
    assert parse_conditions("age > 3") == parse_conditions(["age > 3"])


COMBINED = [
    (["age >= 30", "age < 40"], between("30", "40", closed="left")),
    (["age < 40", "age >= 30"], between("30", "40", closed="left")),
    (["age > 30", "age <= 40"], between("30", "40", closed="right")),
    (["age <= 40", "age > 30"], between("30", "40", closed="right")),
    (["age > 30", "age < 40"], between("30", "40", closed="neither")),
    (["age >= 30", "age <= 40"], between("30", "40")),
    (["age > 30", "age is not missing", "age < 40"], between("30", "40", closed="neither")),
    (["age is not missing", "age = 3"], one_of("3")),
    (["age = 3", "age is not missing"], one_of("3")),
    (["age is not missing", "age is not missing"], known()),
]


@pytest.mark.parametrize(("sentences", "condition"), COMBINED)
def test_bounds_of_one_column_and_not_missing_are_combined(sentences, condition):
    assert parse_conditions(["sex = Female", *sentences]) == {
        "sex": one_of("Female"),
        "age": condition,
    }


@pytest.mark.parametrize(
    "sentences",
    [
        ["age = 3", "age = 4"],
        ["age > 3", "age > 4"],
        ["age < 3", "age <= 4"],
        ["age in 1..3", "age < 2"],
        ["age > 1", "age in 1..3"],
        ["age = 3", "age < 9"],
        ["age < 9", "age in {3, 4}"],
        ["age is missing", "age > 3"],
        ["age > 3", "age is missing"],
        ["age > 3", "age < 9", "age < 8"],
        ["age is missing", "age is not missing"],
        ["age is not missing", "age is missing"],
    ],
)
def test_conditions_that_cannot_be_combined_get_a_sentence(sentences):
    with pytest.raises(UserError) as error:
        parse_conditions(sentences)
    assert str(error.value) == (
        "Column 'age' has two conditions. Give one; only a lower and an upper bound can be "
        "combined."
    )


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: between(), "between() needs a low or a high bound."),
        (lambda: one_of(), "one_of() needs a value."),
        (
            lambda: between(1, 2, closed="open"),
            "closed is 'open', but must be one of: both, left, right, neither.",
        ),
    ],
)
def test_a_condition_without_values_gets_a_sentence(build, sentence):
    with pytest.raises(UserError) as error:
        build()
    assert str(error.value) == sentence
