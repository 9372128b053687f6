import uuid

import pyarrow as pa
import pytest

from tabmt.codec.identifiers import Identifiers
from tabmt.errors import UserError


def generate(values, rows, first=0, seed=0):
    values = pa.array(values)
    found = Identifiers.find("key", values)
    return found.generate(first, rows, dtype=values.type, seed=seed, name="key").to_pylist()


def test_consecutive_numbers_begin_with_the_first():
    assert generate(list(range(100, 130)), 3) == [100, 101, 102]


def test_numbers_of_a_range_are_unique_and_none_is_a_real_one():
    new = generate([17, 500, 1000], 984)
    assert sorted(new) == list(range(1001, 1985))
    assert new != sorted(new)


def test_numbers_stay_in_their_range_where_the_type_has_no_room_beyond_it():
    values = pa.array([1, 50, 120], pa.int8())
    new = Identifiers.find("key", values).generate(0, 120, dtype=pa.int8(), seed=0, name="key")
    assert sorted(new.to_pylist()) == list(range(1, 121))


def test_more_rows_than_the_range_stay_unique():
    assert len(set(generate([1, 50], 200))) == 200


def test_text_keeps_its_pattern_and_is_never_repeated():
    new = generate([f"AB-{i:05d}" for i in range(0, 90000, 1037)], 1000)
    assert len(set(new)) == 1000
    assert all(word[:3] == "AB-" and word[3:].isdigit() and len(word) == 8 for word in new)


def test_text_stays_unique_when_its_pattern_is_exhausted():
    new = generate([f"{i:03d}" for i in range(0, 1000, 37)], 1200)
    assert len(set(new)) == 1200
    assert new[1000].endswith("-1")


def test_new_uuids_are_uuids():
    real = [str(uuid.UUID(int=i * 7919 * 10**30 % 2**128)) for i in range(1, 200)]
    new = generate(real, 50)
    assert len(set(new)) == 50 and not set(new) & set(real)
    assert all(str(uuid.UUID(word)) == word for word in new)


def test_text_without_a_common_pattern_is_numbered():
    assert generate(["Ann Lee", "Bo", "Cy Young"], 2) == ["key_1", "key_2"]


def test_identifiers_of_batches_are_those_of_the_whole():
    real = [f"AB-{i:05d}" for i in range(0, 90000, 1000)]
    assert generate(real, 10) == generate(real, 4) + generate(real, 6, first=4)


def test_too_many_rows_for_the_type_get_a_sentence():
    values = pa.array([1, 2, 3], pa.int8())
    with pytest.raises(UserError) as error:
        Identifiers.find("key", values).generate(0, 200, dtype=pa.int8(), seed=0, name="key")
    assert str(error.value) == (
        "Column 'key': int8 cannot hold 200 distinct ids. Generate fewer rows, or give the column "
        "a wider type and fit again."
    )


@pytest.mark.parametrize(
    ("values", "missing"),
    [(list(range(1, 60)), 100), ([1, 7, 50], 120), ([f"{i:03}" for i in range(1, 999, 25)], "500")],
)
def test_the_missing_text_is_never_generated(values, missing):
    values = pa.array(values)
    found = Identifiers.find("key", values, missing)
    new = found.generate(0, 900, dtype=values.type, seed=0, name="key").to_pylist()
    assert missing not in new and len(set(new)) == 900
    assert not isinstance(missing, str) or {len(word) for word in new} == {3}  # the same pattern
    plain = Identifiers.find("key", values)
    assert missing in plain.generate(0, 900, dtype=values.type, seed=0, name="key").to_pylist()
