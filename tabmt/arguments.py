"""Small notations of the command line that click does not read by itself."""

from typing import Any

from tabmt.errors import UserError


def parse_temperatures(given: tuple[str, ...], names: list[str]) -> dict[str, float]:
    """`1.1` for all columns, `age=1.5` for one; later ones win."""
    heat: dict[str, float] = {}
    for text in given:
        name, equals, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            raise UserError(
                f"The temperature {text!r} is not a number, nor of the form COLUMN=NUMBER."
            ) from None
        heat |= {name: value} if equals else dict.fromkeys(names, value)
    return heat


def parse_keep(given: str) -> list[str] | int:
    return int(given) if given.isdigit() else [name.strip() for name in given.split(",")]


def parse_balance(given: str) -> str | dict[str, dict[Any, float]]:
    """`Exited`, or `Exited:0=0.7,1=0.3`."""
    name, colon, rest = given.partition(":")
    if not colon:
        return name
    shares: dict[Any, float] = {}
    for part in rest.split(","):
        value, _, number = part.rpartition("=")
        try:
            shares[value.strip()] = float(number)
        except ValueError:
            raise UserError(
                f"The share {part!r} of --balance is not of the form VALUE=NUMBER."
            ) from None
    return {name: shares}
