import numpy as np
import pytest

from tabmt.errors import UserError
from tabmt.rules.rule import Rule, load_rules

COLUMNS = {
    "a": np.array([1.0, 2.0, np.nan, 0.1]),
    "b": np.array([2.0, 2.0, 1.0, 0.2]),
    "the sum": np.array([3.0, 5.0, 1.0, 0.3]),
    "city": np.array(["Oslo", "Rome", "Oslo", ""]),
}
MISSING = {name: np.zeros(4, bool) for name in COLUMNS}
MISSING["a"] = np.isnan(COLUMNS["a"])
MISSING["city"] = COLUMNS["city"] == ""


@pytest.mark.parametrize(
    ("text", "violated"),
    [
        ("b >= a", [False, False, False, False]),
        ("a < b", [False, True, False, False]),
        ("a + b == `the sum`", [False, True, False, False]),
        ("1 <= b <= 2", [False, False, False, True]),
        ("city in ['Oslo']", [False, True, False, False]),
        ("city not in ['Oslo']", [True, False, True, False]),
        ("if city == 'Oslo' then b > 1", [False, False, True, False]),
        ("a > 1 or not b == 2", [True, False, False, False]),
        ("-a * 2 / 2 - 1 < 0 and b > 0", [False, False, False, False]),
    ],
)
def test_rows_that_violate_a_rule_are_found_and_rows_with_missing_values_cannot(text, violated):
    assert Rule.parse("r", text).violations(COLUMNS, MISSING).tolist() == violated


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a >", "Rule 'r' is not valid: 'a >' (invalid syntax)."),
        ("c > 1", "The rule 'r' names a column 'c' that does not exist."),
        (
            "a.__class__ == 1",
            "Rule 'r' is not valid: 'a.__class__' is not allowed. "
            "Use + - * /, comparisons, in, and, or, not, matches(column, 'pattern'), numbers and "
            "quoted text.",
        ),
        ("a + city > 1", None),
        ("city > 5", None),
        ("not a", None),
        ("a is b", None),
        ("1 / 0 > a", None),
        ("a", "The rule 'r' must be a comparison, which is true or false: 'a'."),
        (
            "if a then b > 1",
            "The rule 'r' must be a comparison, which is true or false: 'if a then b > 1'.",
        ),
        (
            "__column5 > 1",
            "The rule 'r' contains '__column', which is a reserved name: '__column5 > 1'.",
        ),
        (
            "determines(`a`b, c)",
            "The rule 'r' has a letter or digit right after a column name in backticks; put an "
            "operator between them: 'determines(`a`b, c)'.",
        ),
        (
            "`a`9 > 1",
            "The rule 'r' has a letter or digit right after a column name in backticks; put an "
            "operator between them: '`a`9 > 1'.",
        ),
        (
            "open('x') == 1",
            "The rule 'r' names a column 'open' that does not exist.",
        ),
    ],
)
def test_a_rule_that_cannot_be_evaluated_gets_a_sentence(text, sentence):
    with pytest.raises(UserError) as error:
        Rule.parse("r", text).violations(COLUMNS, MISSING)
    if sentence is None:
        assert str(error.value).startswith(
            f"The rule 'r' cannot be applied to its columns: {text!r} ("
        )
    else:
        assert str(error.value) == sentence


@pytest.mark.parametrize(
    ("text", "violated"),
    [
        ("x == '53'", [False, True]),
        ("'53' == x", [False, True]),
        ("x in ('53', 80)", [False, False]),
        ("word == 53", [False, True]),
        ("word in (53, 80.5)", [False, False]),
        ("word != 53", [True, False]),
        ("x == 'no'", None),
        ("x == word", None),
    ],
)
def test_quoted_numbers_are_numbers_to_columns_of_numbers(text, violated):
    columns = {"x": np.array([53.0, 80.0]), "word": np.array(["53", "80.5"])}
    missing = dict.fromkeys(columns, np.array([False, False]))
    rule = Rule.parse("r", text)
    if violated is None:
        with pytest.raises(UserError, match="cannot be applied to its columns"):
            rule.violations(columns, missing)
    else:
        assert rule.violations(columns, missing).tolist() == violated


def test_text_matches_a_pattern_as_a_whole():
    columns = {"x": np.array([1.0]), "word": np.array(["a.b"])}
    missing = dict.fromkeys(columns, np.array([False]))
    assert not Rule.parse("r", r"matches(word, 'a\.b')").violations(columns, missing).any()
    assert Rule.parse("r", "matches(word, 'a')").violations(columns, missing).all()
    for text, sentence in (
        ("matches(x, 'a')", "cannot be applied to its columns"),
        ("matches(word, '(')", "is not valid: '\\(' is not a regular expression"),
        ("matches(word)", "is not valid: 'matches\\(word\\)' is not allowed"),
    ):
        with pytest.raises(UserError, match=sentence):
            Rule.parse("r", text).violations(columns, missing)


@pytest.mark.parametrize(
    ("text", "violated"),
    [
        ("b == 2 if and only if city == 'Oslo'", [False, True, True, False]),
        ("b = 2 if and only if city is missing", [True, True, False, True]),
        ("`the sum` == 1 if and only if a is missing", [False, False, False, False]),
        ("a == -1 if and only if city == 'Paris'", [False, False, False, False]),
    ],
)
def test_a_tie_is_violated_where_one_of_two_values_occurs_alone(text, violated):
    assert Rule.parse("r", text).violations(COLUMNS, MISSING).tolist() == violated


def test_exactly_one_flag_must_be_set_where_none_is_missing():
    flags = {"x": np.array([1.0, 1.0, 0.0, np.nan]), "y": np.array([0.0, 1.0, 0.0, 1.0])}
    missing = {name: np.isnan(flag) for name, flag in flags.items()}
    violated = Rule.parse("r", "exactly_one(x, y)").violations(flags, missing)
    assert violated.tolist() == [False, True, True, False]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("determines(a, b, city)", "The rule 'r' needs two columns: 'determines(a, b, city)'."),
        ("exactly_one(a)", "The rule 'r' needs at least two columns: 'exactly_one(a)'."),
        (
            "a > 1 if and only if b == 2",
            "The rule 'r' has the form `A if and only if B`, so each side must be `column == "
            "value` or `column is missing`: 'a > 1 if and only if b == 2'.",
        ),
        (
            "a == 'x' if and only if b == 2",
            "The rule 'r' compares column 'a' with 'x', but its values are numbers: \"a == 'x' if "
            'and only if b == 2".',
        ),
        (
            "exactly_one(a, city)",
            "Rule 'r': exactly_one() needs columns of 0 and 1, but 'city' holds text: "
            "'exactly_one(a, city)'.",
        ),
    ],
)
def test_a_rule_about_columns_that_cannot_be_applied_gets_a_sentence(text, sentence):
    with pytest.raises(UserError) as error:
        Rule.parse("r", text).violations(COLUMNS, MISSING)
    assert str(error.value) == sentence


def test_rules_come_from_a_json_file(tmp_path):
    path = tmp_path / "rules.json"
    path.write_text('{"order": "b >= a"}')
    assert [(rule.name, rule.columns) for rule in load_rules(str(path))] == [("order", ("b", "a"))]
    path.write_text('{"a": 1}')
    with pytest.raises(UserError) as error:
        load_rules(str(path))
    assert str(error.value) == (
        f'The rules file {str(path)!r} must have the form {{"name": "rule", ...}}.'
    )
