"""What a model says of itself: its settings, and how it was made. Travels in the model file."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tabmt.config import CodecConfig, NetworkConfig, TrainConfig, automatic, check
from tabmt.method.train import Summary


@dataclass(frozen=True)
class Settings:
    """All settings of a fit, checked."""

    codec: CodecConfig
    network: NetworkConfig
    train: TrainConfig

    @classmethod
    def of(cls, values: Mapping[str, Any], rows: int = 0, columns: int = 0) -> "Settings":
        """From plain values; a None where a setting is `auto` is chosen for the table."""
        chosen = automatic(values["network"], rows, columns)
        values = {k: chosen[k] if v is None and k in chosen else v for k, v in values.items()}

        def part(config_class: type[Any]) -> Any:
            names = [item.name for item in dataclasses.fields(config_class)]
            # A model file of an earlier version lacks what came later: the default holds.
            config = config_class(**{name: values[name] for name in names if name in values})
            check(config)
            return config

        return cls(part(CodecConfig), part(NetworkConfig), part(TrainConfig))

    def to_json(self) -> dict[str, Any]:
        return {k: v for part in dataclasses.asdict(self).values() for k, v in part.items()}


@dataclass(frozen=True)
class Card:
    """What a model says of itself: how it was made, from how many rows, with what result."""

    rows: int
    seed: int
    settings: Settings
    summary: Summary | None  # None: no column had anything to learn
    versions: dict[str, str]
    temperatures: dict[str, float] = field(default_factory=dict)  # of samples, unless told others

    def to_json(self) -> dict[str, Any]:
        summary = None if self.summary is None else dataclasses.asdict(self.summary)
        return {
            "rows": self.rows,
            "seed": self.seed,
            "settings": self.settings.to_json(),
            "summary": summary,
            "versions": self.versions,
            "temperatures": self.temperatures,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Card":
        summary = data["summary"]
        return cls(
            rows=data["rows"],
            seed=data["seed"],
            settings=Settings.of(data["settings"]),
            summary=None if summary is None else Summary(**summary),
            versions=dict(data["versions"]),
            temperatures=dict(data.get("temperatures", {})),
        )
