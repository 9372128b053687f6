"""The model card: settings and a summary of the fit. Part of the model file."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tabmt.config import (
    CodecConfig,
    GenerationConfig,
    NetworkConfig,
    PrivacyConfig,
    TrainConfig,
    automatic,
    check,
    is_number,
)
from tabmt.errors import UserError
from tabmt.json_files import convert
from tabmt.method.train import Summary
from tabmt.private.statement import PrivacyStatement


@dataclass(frozen=True)
class Settings:
    """All settings of a fit, checked."""

    codec: CodecConfig
    network: NetworkConfig
    train: TrainConfig
    generation: GenerationConfig
    privacy: PrivacyConfig = field(default_factory=PrivacyConfig)

    @classmethod
    def of(cls, values: Mapping[str, Any], rows: int = 0, columns: int = 0) -> "Settings":
        """From plain values; None is replaced by what suits the table where a setting is `auto`."""
        steps = values.get("steps", TrainConfig.steps)
        steps = steps if is_number(steps) else 0  # a mistake, which `check` reports
        optimizer = values.get("optimizer", TrainConfig.optimizer)
        chosen = automatic(values["network"], rows, columns, steps, optimizer)
        values = {k: chosen[k] if v is None and k in chosen else v for k, v in values.items()}

        def part(config_class: type[Any]) -> Any:
            names = [item.name for item in dataclasses.fields(config_class)]
            config = config_class(**{name: values[name] for name in names if name in values})
            check(config)
            return config

        return cls(
            part(CodecConfig),
            part(NetworkConfig),
            part(TrainConfig),
            part(GenerationConfig),
            part(PrivacyConfig),
        )

    def to_json(self) -> dict[str, Any]:
        parts = dataclasses.asdict(self)
        if self.privacy.epsilon is None:
            del parts["privacy"]  # it says nothing
        return {k: v for part in parts.values() for k, v in part.items()}


@dataclass(frozen=True)
class ModelCard:
    """How a model was made, from how many rows, with what result."""

    rows: int
    seed: int
    settings: Settings
    summary: Summary | None  # None: no column had anything to learn
    versions: dict[str, str]
    temperatures: dict[str, float] = field(default_factory=dict)  # of samples, by default
    codes_detector_auc: float | None = None  # of rows that are redrawn from their codes
    privacy: PrivacyStatement | None = None  # of a fit with epsilon; rows are then noisy

    def to_json(self) -> dict[str, Any]:
        summary = None if self.summary is None else dataclasses.asdict(self.summary)
        content = {
            "rows": self.rows,
            "seed": self.seed,
            "settings": self.settings.to_json(),
            "summary": summary,
            "versions": self.versions,
            "temperatures": self.temperatures,
            "codes_detector_auc": self.codes_detector_auc,
        }
        if self.privacy is not None:
            content["privacy"] = dataclasses.asdict(self.privacy)
        return content

    @classmethod
    def from_json(cls, data: Any) -> "ModelCard":
        """The inverse of `to_json`. Raises ValueError if the data has another form."""
        stored = convert(data, StoredCard)
        try:
            settings = Settings.of(stored.settings)
        except (UserError, KeyError, TypeError) as error:
            raise ValueError(f"the settings are not valid: {error}") from error
        return cls(
            rows=stored.rows,
            seed=stored.seed,
            settings=settings,
            summary=stored.summary,
            versions=stored.versions,
            temperatures=stored.temperatures,
            codes_detector_auc=stored.codes_detector_auc,
            privacy=stored.privacy,
        )


@dataclass(frozen=True)
class StoredCard:
    """The form of a card in a file."""

    rows: int
    seed: int
    settings: dict[str, Any]
    summary: Summary | None
    versions: dict[str, str]
    temperatures: dict[str, float]
    codes_detector_auc: float | None
    privacy: PrivacyStatement | None = None
