"""Damaged and hostile files for the fault tests (faults.py), and the expected outcome of each.

A *damaged* file is a good one with some bytes changed. In our own formats, which have a checksum,
none may load. A *hostile* file is well-formed, with a valid checksum, but wrong content: it must be
refused with a one-sentence error, or work. Each mutation depends on a seed and its number only.
"""

import copy
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch

from tabmt import Front, TabMT
from tabmt.cli.options import read_config
from tabmt.codec.large_tables import (
    CODEC,
    CONTENT,
    TOKENS,
    encode_into,
    fit_table_codec,
    read_encoded,
)
from tabmt.config import CodecConfig
from tabmt.data.dataset import Dataset
from tabmt.data.infer import infer_schema
from tabmt.fingerprint import fingerprint
from tabmt.model.model_card import Settings
from tabmt.model.model_file import FileKind, read_file, write_file
from tabmt.rules.rule import Rule, load_rules
from tabmt.search.pareto_front import Point

SETTINGS: dict[str, Any] = {
    "width": 8, "depth": 1, "heads": 2, "batch_size": 32, "eval_every": 5, "warmup": 2,
    "steps": 12, "threads": 1,
}  # fmt: skip
REFUSED, WORKS, SAME, ACCEPTED = "refused", "works", "same content", "accepted corruption"
HOSTILE: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2, 255, 2**31, 2**63, 2**64, -(2**63), 10**30, 1e308, -1e308, 1e-320, 0.5,
    "", "x", "\x1b[2J", "nan", "9" * 400, "a" * 5000, "fixed:999999999", "timestamp[s, tz=Nowhere]",
    "decimal128(99, 99)", "dictionary<values=string, indices=int8, ordered=0>", "s:%Y", "int64",
    "double", "string", "learned", "masked", "constant", "numeric", "categorical", "id", "datetime",
    [], {}, [[]], [None], {"a": None}, [[[[[[]]]]]], ["x"] * 50, list(range(100)),
)  # fmt: skip
CONDITIONS = (
    "height in 150..170", "group = a", "city in {Oslo, Bergen}", "weight is missing",
    "weight is not missing", "since >= 2020-03-01", "visits < 4", "member = true", "`id` = 3",
)  # fmt: skip
RULES = (
    "height > weight", "if group == 'a' then height < 200", "together(group, city)",
    "exactly_one(member, visits)", "height + weight == visits", "group in ['a', 'b']",
    "matches(city, '(O|B)[a-z]+')", "weight is missing if and only if visits == 0",
    "not (height < 0 or weight < 0) and visits >= 0", "determines(group, city)",
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A kind of file or input: `mutate` writes number `index` of a seed, `use` does what a user
    would do with it and returns the outcome."""

    name: str
    run: Callable[[random.Random], str]


# --- how things are changed ----------------------------------------------------------------


def damage(content: bytes, rng: random.Random) -> bytes:
    """The same bytes with some changed, removed, repeated or put elsewhere."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        if not data:
            break
        at = rng.randrange(len(data))
        match rng.randrange(7):
            case 0 | 1:
                data[at] ^= 1 << rng.randrange(8)
            case 2:
                data[at] = rng.randrange(256)
            case 3:
                del data[at:]
            case 4:
                del data[at : at + rng.randrange(1, 50)]
            case 5:
                data[at:at] = rng.randbytes(rng.randrange(1, 30))
            case 6:
                start = rng.randrange(len(data))
                data[at : at + 40] = data[start : start + 40]
    return bytes(data)


def damage_text(text: str, rng: random.Random, words: tuple[str, ...]) -> str:
    """The same text with characters or words changed, repeated or inserted."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(text) + 1)
        match rng.randrange(5):
            case 0:
                text = text[:at] + rng.choice("()[]{}'\"`=<>!+-*/.,\\ \t\n\0é\u202e") + text[at:]
            case 1:
                text = text[:at] + text[at + rng.randrange(1, 6) :]
            case 2:
                text = text[:at] + rng.choice(words) + text[at:]
            case 3:
                text = text[:at] + rng.choice(("(", "-", "not ", "a+", " ", "9", "if ")) * 300
            case 4:
                text = (text[:at] * rng.choice((2, 50)))[:20_000] + text[at:]
    return text


def change_json(data: Any, rng: random.Random) -> Any:
    """The same data with some entries replaced, removed, added or exchanged."""
    data = copy.deepcopy(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = list(_places(data))
        if not places:
            break
        container, key = rng.choice(places)
        match rng.randrange(6):
            case 0 | 1 | 2:
                container[key] = copy.deepcopy(rng.choice(HOSTILE))
            case 3:
                del container[key]
            case 4:
                other, name = rng.choice(places)
                container[key] = copy.deepcopy(other[name]) if name in _keys(other) else None
            case 5 if isinstance(container, dict):
                container[rng.choice(("x", "", "\x1b", "a" * 300))] = rng.choice(HOSTILE)
            case _:
                if isinstance(container[key], int | float):
                    container[key] = container[key] * rng.choice((-1, 2, 10**6, 1e300))
    return data


def _places(data: Any) -> Any:
    if isinstance(data, dict | list):
        for key in _keys(data):
            yield data, key
            yield from _places(data[key])


def _keys(data: Any) -> Any:
    return list(data) if isinstance(data, dict) else range(len(data))


def change_tensors(tensors: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The same tensors with one renamed, removed, of another size or type, or with other values."""
    tensors = dict(tensors)
    name = rng.choice(sorted(tensors))
    tensor = tensors[name].clone()
    flat = tensor.flatten()
    match rng.randrange(9):
        case 0:
            tensors.pop(name)
            return tensors
        case 1:
            tensors["x/" + name] = tensors.pop(name)
            return tensors
        case 2:
            tensor = tensor[: rng.randrange(len(tensor) + 1)] if tensor.dim() else tensor[None]
        case 3:
            tensor = torch.cat([tensor, tensor]) if tensor.dim() else tensor[None]
        case 4:
            tensor = tensor.to(rng.choice((torch.float64, torch.float16, torch.int64, torch.int8)))
        case 5:
            tensor = tensor.flip(0) if tensor.dim() else tensor
        case 6 if tensor.is_floating_point():
            value = rng.choice((float("nan"), float("inf"), -float("inf"), 1e38, -1e38, 1e-45))
            flat[rng.randrange(flat.numel()) if flat.numel() else slice(0)] = value
            tensor = flat.reshape(tensor.shape)
        case 7 if tensor.is_floating_point():
            tensor = tensor * rng.choice((1e6, 1e30, -1.0, 0.0))
        case _ if flat.numel() and tensor.dtype != torch.bool:
            low, high = (0, 255) if tensor.dtype == torch.uint8 else (-5, 10**6)
            at = rng.randrange(flat.numel())
            flat[at] = rng.randint(low, high)
            tensor = flat.reshape(tensor.shape)
    tensors[name] = tensor
    return tensors


# --- the targets ---------------------------------------------------------------------------


class Workshop:
    """Good files of every kind in a folder, and what is done with changed ones."""

    def __init__(self, folder: Path, frame: Any) -> None:
        self.folder, self.frame = folder, frame
        self.table = folder / "table.parquet"
        frame.to_parquet(self.table)
        frame.to_csv(folder / "table.csv", index=False)
        pa.ipc.new_file(folder / "table.arrow", (t := pa.Table.from_pandas(frame)).schema).close()
        with pa.ipc.new_file(folder / "table.arrow", t.schema) as writer:
            writer.write_table(t)
        overrides = {"rules": {"tall": "height > 10", "both": "together(group, city)"}}
        self.model = TabMT(**SETTINGS).fit(self.table, schema=overrides)
        self.model.save(folder / "good.tabmt")
        self._make_checkpoint()
        self._make_front()
        dataset = Dataset.open(self.table)
        config = CodecConfig()
        encode_into(
            folder / "store",
            dataset,
            lambda: fit_table_codec(dataset, config, None, 0),
            {},
            "local",
        )
        (folder / "schema.json").write_text(json.dumps(infer_schema(self.table).to_json()))
        (folder / "rules.json").write_text(json.dumps({str(i): r for i, r in enumerate(RULES)}))
        (folder / "good.toml").write_text("steps = 100\nlearning_rate = 0.01\nnetwork = 'masked'\n")
        self.rows = self.model.sample(20, seed=1)
        self.good = {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}
        self.parts: dict[str, Any] = {
            kind: read_file(folder / name, kind)  # type: ignore[arg-type]
            for kind, name in (("model", "good.tabmt"), ("checkpoint", "run.checkpoint"))
        }

    def _make_checkpoint(self) -> None:
        def interrupt(progress: Any) -> None:
            if progress.step == 7:
                raise KeyboardInterrupt

        try:
            path = self.folder / "run.checkpoint"
            TabMT(**SETTINGS).fit(self.table, checkpoint=path, on_step=interrupt)
        except KeyboardInterrupt:
            pass

    @property
    def columns(self) -> list[str]:
        return [coded.name for coded in self.model.model_.codec.token_columns]

    def _make_front(self) -> None:
        points = [
            Point(dict.fromkeys(self.columns, t), 0.1 * t, 0.8, 0.1, 0.8, 0.1, 0.7, uniform)
            for t, uniform in ((1.2, None), (1.5, None), (1.2, 1.2))
        ]
        real = {"privacy": 0.1, "quality": 0.9, "valid_quality": 0.9}
        search = {"model": "fingerprint", "trials": 2}
        front = Front("dcr", "mle", "group", tuple(points[:2]), (points[2],), ((0.1, 0.8),), real,
                      search)  # fmt: skip
        front.save(self.folder / "front.json")

    def targets(self) -> list[Target]:
        damaged, hostile, changed = self.damaged, self.hostile, self.changed_json
        table = self.use_table
        return [
            Target("damaged model", lambda r: damaged("good.tabmt", self.use_model, r)),
            Target("damaged checkpoint", lambda r: damaged("run.checkpoint", self.use_run, r)),
            Target("hostile model", lambda r: hostile("model", self.use_model, r)),
            Target("hostile checkpoint", lambda r: hostile("checkpoint", self.use_run, r)),
            Target("front", lambda r: changed("front.json", self.use_front, r)),
            Target("schema", lambda r: changed("schema.json", self.use_schema, r)),
            Target("settings", self.settings),
            Target("damaged store", lambda r: self.store(r, hostile=False)),
            Target("hostile store", lambda r: self.store(r, hostile=True)),
            Target("CSV", lambda r: damaged("table.csv", table, r, own=False)),
            Target("Parquet", lambda r: damaged("table.parquet", table, r, own=False)),
            Target("Arrow", lambda r: damaged("table.arrow", table, r, own=False)),
            Target("conditions", self.conditions),
            Target("rules", self.rules),
        ]

    def _write(self, name: str, content: bytes) -> Path:
        path = self.folder / f"changed-{name}"
        path.write_bytes(content)
        return path

    def damaged(
        self, name: str, use: Callable[[Path], None], rng: random.Random, *, own: bool = True
    ) -> str:
        content = damage(self.good[name], rng)
        use(self._write(name, content))
        if content == self.good[name]:
            return SAME
        return ACCEPTED if own else WORKS

    def hostile(self, kind: FileKind, use: Callable[[Path], None], rng: random.Random) -> str:
        metadata, tensors = self.parts[kind]
        metadata = {k: v for k, v in metadata.items() if k not in ("format", "kind")}
        if rng.random() < 0.5:
            metadata = change_json(metadata, rng)
        else:
            tensors = change_tensors(tensors, rng)
        path = self.folder / f"changed.{kind}"
        path.unlink(missing_ok=True)
        write_file(path, kind, metadata, tensors)
        use(path)
        return WORKS

    def changed_json(self, name: str, use: Callable[[Path], None], rng: random.Random) -> str:
        content = self.good[name]
        if rng.random() < 0.4:
            content = damage(content, rng)
        else:
            content = json.dumps(change_json(json.loads(content), rng)).encode()
        if rng.random() < 0.02:
            content = rng.choice((b"[", b'{"a":')) * 50_000
        use(self._write(name, content))
        return WORKS

    def settings(self, rng: random.Random) -> str:
        text = damage_text(self.good["good.toml"].decode(), rng, ("steps", "1e999", "[[[", "a.b=1"))
        path = self._write("good.toml", text.encode("utf-8", "surrogatepass"))
        values = TabMT().get_params()
        Settings.of(values | read_config(str(path), values))
        return WORKS

    def store(self, rng: random.Random, *, hostile: bool) -> str:
        source, target = self.folder / "store", self.folder / "changed-store"
        target.mkdir(exist_ok=True)
        content = {name: (source / name).read_bytes() for name in (TOKENS, CODEC, CONTENT)}
        name = rng.choice((TOKENS, CODEC, CONTENT))
        before = content[name]
        about = json.loads(content[CONTENT])
        if hostile and name == CONTENT:
            about = change_json(about, rng)
        else:
            content[name] = damage(before, rng)
        if hostile and isinstance(about, dict):
            import hashlib

            sums = {n: hashlib.blake2b(content[n]).hexdigest() for n in (TOKENS, CODEC)}
            about = {k: v for k, v in about.items() if k != "checksum"} | {"checksums": sums}
            content[CONTENT] = json.dumps({**about, "checksum": fingerprint(about)}).encode()
        for file, data in content.items():
            (target / file).write_bytes(data)
        codec, tokens = read_encoded(target)
        tokens.counts(codec.sizes)
        codec.decode(tokens[np.arange(min(5, len(tokens)))].clip(min=0), seed=1)
        if hostile:
            return WORKS
        # What of an archive's bytes is not content may differ without harm: not here.
        return SAME if content[name] == before else ACCEPTED

    def conditions(self, rng: random.Random) -> str:
        sentence = rng.choice(CONDITIONS)
        words = ("height", "..", " in ", "{", "is missing", "1e999", "2020-13-45", "\ud800", "NaN")
        if rng.random() < 0.8:
            sentence = damage_text(sentence, rng, words)
        where: list[str] = [sentence, rng.choice(CONDITIONS)][: rng.choice((1, 2))]
        self.model.sample(2, where=where, seed=1)
        return WORKS

    def rules(self, rng: random.Random) -> str:
        words = (
            "matches(city,'(a*)*b')", "'a'*9999999999", " and ", "is missing", "group", "9**9",
            "((", "lambda: 1", "[1]*10**9", "`x`", "\\", "{0,1000}", "exactly_one(",
        )  # fmt: skip
        text = damage_text(rng.choice(RULES), rng, words)
        if rng.random() < 0.3:
            path = self._write("rules.json", json.dumps({"a": text}).encode())
            (rule,) = load_rules(str(path))
        elif rng.random() < 0.02:
            infer_schema(self.table, overrides={"rules": {"a": text}})
            return WORKS
        else:
            rule = Rule.parse("a", text)
        if not rule.is_combination:
            texts = np.array(["Oslo", "a" * 40 + "!", "Bergen"])
            values: Mapping[str, Any] = {
                name: texts if name in ("city", "group") else np.array([1.0, 2.0, 150.0])
                for name in ("height", "weight", "visits", "member", "city", "group")
            }
            missing = dict.fromkeys(values, np.zeros(3, bool))
            rule.violations(values, missing)
        return WORKS

    # --- what a user would do ---------------------------------------------------------------

    def use_model(self, path: Path) -> None:
        model = TabMT.load(path)
        model.sample(4, seed=1)
        model.sample(2, seed=1, temperature=0.0, decode="centre")
        model.schema_.to_json()

    def use_run(self, path: Path) -> None:
        TabMT(**SETTINGS).fit(self.table, checkpoint=path, resume=True)

    def use_front(self, path: Path) -> None:
        front = Front.load(path)
        front.choose(point=1)
        front.choose(quality_loss=10.0)
        front.gain()
        self.model.with_temperatures(front.points[0].temperatures).sample(2, seed=1)

    def use_schema(self, path: Path) -> None:
        json.dumps(infer_schema(self.table, overrides=json_content(path)).to_json())

    def use_table(self, path: Path) -> None:
        dataset = Dataset.open(path)
        infer_schema(dataset)
        for batch in dataset.batches(50):
            self.model.score(batch)


def json_content(path: Path) -> Any:
    from tabmt.data.overrides import read_overrides

    return read_overrides(path)
