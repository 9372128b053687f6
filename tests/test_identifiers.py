import uuid

import pyarrow as pa
import pytest

from tabmt.codec.identifiers import Identifiers
from tabmt.errors import UserError


def make(values, rows, first=0, seed=0):
    values = pa.array(values)
    found = Identifiers.find("key", values)
    return found.make(first, rows, dtype=values.type, seed=seed, name="key").to_pylist()


def test_consecutive_numbers_go_on_from_the_first():
    assert make(list(range(100, 130)), 3) == [100, 101, 102]


def test_numbers_of_a_range_are_unique_and_none_is_a_real_one():
    made = make([17, 500, 1000], 984)
    assert sorted(made) == list(range(1001, 1985))
    assert made != sorted(made)


def test_numbers_stay_in_their_range_where_the_type_has_no_room_beyond_it():
    values = pa.array([1, 50, 120], pa.int8())
    made = Identifiers.find("key", values).make(0, 120, dtype=pa.int8(), seed=0, name="key")
    assert sorted(made.to_pylist()) == list(range(1, 121))


def test_more_rows_than_the_range_stay_unique():
    assert len(set(make([1, 50], 200))) == 200


def test_text_keeps_its_look_and_is_never_repeated():
    made = make([f"AB-{i:05d}" for i in range(0, 90000, 1037)], 1000)
    assert len(set(made)) == 1000
    assert all(word[:3] == "AB-" and word[3:].isdigit() and len(word) == 8 for word in made)


def test_text_stays_unique_when_its_look_is_used_up():
    made = make([f"{i:03d}" for i in range(0, 1000, 37)], 1200)
    assert len(set(made)) == 1200
    assert made[1000].endswith("-1")


def test_uuids_look_like_uuids():
    real = [str(uuid.UUID(int=i * 7919 * 10**30 % 2**128)) for i in range(1, 200)]
    made = make(real, 50)
    assert len(set(made)) == 50 and not set(made) & set(real)
    assert all(str(uuid.UUID(word)) == word for word in made)


def test_text_without_a_common_look_is_numbered():
    assert make(["Ann Lee", "Bo", "Cy Young"], 2) == ["key_1", "key_2"]


def test_parts_are_the_whole():
    real = [f"AB-{i:05d}" for i in range(0, 90000, 1000)]
    assert make(real, 10) == make(real, 4) + make(real, 6, first=4)


def test_too_many_rows_for_the_type_get_a_sentence():
    values = pa.array([1, 2, 3], pa.int8())
    with pytest.raises(UserError) as error:
        Identifiers.find("key", values).make(0, 200, dtype=pa.int8(), seed=0, name="key")
    assert str(error.value) == (
        "Column 'key' is an id of type int8, which cannot number 200 rows. "
        "Sample fewer, or read the column as a wider type."
    )


@pytest.mark.parametrize(
    ("values", "gap"),
    [(list(range(1, 60)), 100), ([1, 7, 50], 120), ([f"{i:03}" for i in range(1, 999, 25)], "500")],
)
def test_what_spells_a_gap_is_never_made(values, gap):
    values = pa.array(values)
    found = Identifiers.find("key", values, gap)
    made = found.make(0, 900, dtype=values.type, seed=0, name="key").to_pylist()
    assert gap not in made and len(set(made)) == 900
    assert not isinstance(gap, str) or {len(word) for word in made} == {3}  # the same look
    plain = Identifiers.find("key", values)
    assert gap in plain.make(0, 900, dtype=values.type, seed=0, name="key").to_pylist()
