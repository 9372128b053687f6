"""The paper's method, exactly: against its pseudocode, and every departure can be turned off."""

import ast
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner

import tabmt
from tabmt import PAPER, TabMT
from tabmt.cli.main import main
from tabmt.config import (
    PAPER_METHOD,
    PAPER_PARETO,
    PAPER_TUNE,
    PRESETS,
    CodecConfig,
    GenerationConfig,
    NetworkConfig,
    TrainConfig,
)
from tabmt.data.dataset import Dataset
from tabmt.method.batches import Batches
from tabmt.method.masked import MaskedNetwork, draw_mask
from tabmt.method.networks import FrozenNetwork
from tabmt.method.sample import fill
from tabmt.method.train import train
from tabmt.search.pareto import pareto
from tabmt.search.trial_storage import StudyLocation
from tabmt.search.tune import SPACES, tune
from tabmt.seeds import derive
from tabmt.tokens import MASK
from tests import paper_reference as reference
from tests.tables import mixed_frame

ROOT = Path(__file__).parents[1]
SMALL = {"width": 32, "depth": 2, "heads": 4, "batch_size": 64, "max_bins": 12, "threads": 1,
         "dropout": 0.0}  # fmt: skip


def table(gaps: bool, rows: int = 300) -> pd.DataFrame:
    frame = mixed_frame(rows).drop(columns="id")
    return frame if gaps else frame.dropna()


def fitted(frame: pd.DataFrame, **settings) -> TabMT:
    model = TabMT(**PAPER | SMALL | {"steps": 30} | settings).fit(frame)
    assert isinstance(model.model_.net, MaskedNetwork)
    return model


def pseudocode(model: TabMT) -> reference.MaskedTransformer:
    """The network of the appendix with the weights of a fitted model."""
    net, codec = model.model_.net, model.model_.codec
    settings = model.card_.settings.network
    table, ordered = net.embedding, 0
    embeddings: list = []
    for index, coded in enumerate(codec.token_columns):
        rows = table.unordered.detach()[table.codes_of(index)]
        if coded.codec.numeric is None:
            embedding = reference.Embedding(coded.size, settings.width)
        else:
            centres = torch.from_numpy(coded.codec.numeric.codes.centres)
            embedding = reference.OrderedEmbedding(centres, settings.width)
            embedding.l.data = table.low.detach()[ordered].clone()
            embedding.h.data = table.high.detach()[ordered].clone()
            ordered += 1
        embedding.E.data = rows.clone()
        embeddings.append(embedding)
    assert 0 < ordered < len(embeddings)
    plain = reference.MaskedTransformer(embeddings, settings.width, settings.heads, settings.depth)
    biases = torch.split(net.output.bias.detach(), list(net.sizes))
    for index, output in enumerate(plain.outputs):
        output.bias.data = biases[index].clone()
        output.temp.data = net.output.temperature_logit.detach()[index : index + 1].clone()
    for layer, block in zip(plain.encoder.layers, net.blocks, strict=True):
        for ours, theirs in (
            (block.queries_keys_values.weight, layer.self_attn.in_proj_weight),
            (block.queries_keys_values.bias, layer.self_attn.in_proj_bias),
            *zip(
                block.attention_out.parameters(), layer.self_attn.out_proj.parameters(), strict=True
            ),
            *zip(block.mlp_in.parameters(), layer.linear1.parameters(), strict=True),
            *zip(block.mlp_out.parameters(), layer.linear2.parameters(), strict=True),
            *zip(block.attention_norm.parameters(), layer.norm1.parameters(), strict=True),
            *zip(block.mlp_norm.parameters(), layer.norm2.parameters(), strict=True),
        ):
            theirs.data = ours.detach().clone()
    plain.positions.data = net.positions.detach().clone()
    plain.mask_token.data = net.mask_token.detach().clone()
    plain.norm.load_state_dict(net.norm.state_dict())
    return plain


def tokens_of(model: TabMT, frame: pd.DataFrame) -> torch.Tensor:
    codec = model.model_.codec
    tokens = codec.encode(codec.parse(Dataset.open(frame).to_table()))
    return torch.from_numpy(np.asarray(tokens[np.arange(len(frame))], dtype=np.int64))


@pytest.fixture(scope="module", params=[False, True], ids=["complete", "with missing values"])
def case(request):
    frame = table(request.param)
    model = fitted(frame)
    tokens = tokens_of(model, frame)
    assert bool((tokens == MASK).any()) == request.param
    return model, tokens


# --- against the pseudocode ----------------------------------------------------------------


def test_logits_are_those_of_the_pseudocode(case):
    model, tokens = case
    mask = draw_mask(tuple(tokens.shape), torch.Generator().manual_seed(1)) | (tokens == MASK)
    wanted = pseudocode(model)(tokens, mask)
    state = FrozenNetwork(model.model_.net).start(tokens.masked_fill(mask, MASK))
    every = torch.arange(len(tokens))
    for column, logits in enumerate(wanted):
        torch.testing.assert_close(state.logits(every, column), logits, rtol=1e-4, atol=1e-4)


def test_loss_and_gradients_are_those_of_the_pseudocode(case):
    model, tokens = case
    net, plain = model.model_.net, pseudocode(model)
    mask = draw_mask(tuple(tokens.shape), torch.Generator().manual_seed(2))
    wanted = reference.training_step(plain, tokens, mask)
    wanted.backward()
    net.zero_grad()
    total, count = net.loss_sum_and_count(tokens, mask)
    (total / count).backward()
    torch.testing.assert_close(total / count, wanted, rtol=1e-5, atol=1e-6)
    embeddings = torch.cat([embedding.E.grad for embedding in plain.embeddings])
    ordered = [e for e in plain.embeddings if isinstance(e, reference.OrderedEmbedding)]
    layers = plain.encoder.layers
    for ours, theirs in (
        (net.embedding.unordered.grad, embeddings),
        (net.embedding.low.grad, torch.stack([e.l.grad for e in ordered])),
        (net.embedding.high.grad, torch.stack([e.h.grad for e in ordered])),
        (net.output.bias.grad, torch.cat([o.bias.grad for o in plain.outputs])),
        (net.output.temperature_logit.grad, torch.cat([o.temp.grad for o in plain.outputs])),
        (net.positions.grad, plain.positions.grad),
        (net.mask_token.grad, plain.mask_token.grad),
        (net.norm.weight.grad, plain.norm.weight.grad),
        *(
            (block.queries_keys_values.weight.grad, layer.self_attn.in_proj_weight.grad)
            for block, layer in zip(net.blocks, layers, strict=True)
        ),
        *(
            (block.mlp_out.weight.grad, layer.linear2.weight.grad)
            for block, layer in zip(net.blocks, layers, strict=True)
        ),
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-6)


def test_masks_are_those_of_the_pseudocode(case):
    _, tokens = case
    ours = draw_mask(tuple(tokens.shape), torch.Generator().manual_seed(3))
    assert torch.equal(ours, reference.draw_mask(tokens, torch.Generator().manual_seed(3)))


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_generated_codes_are_those_of_the_pseudocode(case, temperature):
    model, tokens = case
    net, columns = model.model_.net, tokens.shape[1]
    temps = torch.full((columns,), temperature, dtype=torch.float64)
    wanted = reference.gen_batch(
        pseudocode(model), 512, columns, temps, torch.Generator().manual_seed(4)
    ).detach()
    drawn = fill(
        FrozenNetwork(net),
        torch.full((512, columns), MASK),
        temperature=temps,
        generator=torch.Generator().manual_seed(4),
    )
    # A code may differ where a random number lies on the border of two, within rounding.
    assert (drawn == wanted).float().mean() > 0.995
    assert (drawn == wanted).all(1).float().mean() > 0.98


def test_training_is_that_of_the_pseudocode():
    """AdamW on all parameters, cosine annealing to zero, all rows, no clipping, no averaging."""
    frame, steps, rate, decay = table(gaps=True), 6, 1e-2, 2.0  # a decay that shows in few steps
    model = fitted(frame, steps=0)
    plain, tokens = pseudocode(model), tokens_of(model, frame)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=rate, weight_decay=decay)
    annealing = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    batches = Batches(tokens, 64, seed=5)
    for step in range(steps):
        batch = batches.at(step)
        mask = reference.draw_mask(batch, torch.Generator().manual_seed(derive(5, "mask", step)))
        optimizer.zero_grad()
        reference.training_step(plain, batch, mask).backward()
        optimizer.step()
        annealing.step()
    settings = {**PAPER, **SMALL, "steps": steps, "learning_rate": rate,
                "weight_decay": decay}  # fmt: skip
    names = TrainConfig.__dataclass_fields__
    config = TrainConfig(**{name: settings[name] for name in names if name in settings})
    net = model.model_.net
    train(net, tokens, tokens[:0], config, seed=5)
    ordered = [e for e in plain.embeddings if isinstance(e, reference.OrderedEmbedding)]
    layer = plain.encoder.layers[0]
    for ours, theirs in (
        (net.positions, plain.positions),
        (net.embedding.unordered, torch.cat([e.E for e in plain.embeddings])),
        (net.embedding.low, torch.stack([e.l for e in ordered])),
        (net.output.bias, torch.cat([o.bias for o in plain.outputs])),
        (net.output.temperature_logit, torch.cat([o.temp for o in plain.outputs])),
        (net.blocks[0].mlp_in.weight, layer.linear1.weight),
        (net.blocks[0].attention_norm.weight, layer.norm1.weight),
    ):
        # Adam divides by gradients that may be as small as rounding errors: compare in the mean.
        assert (ours - theirs).abs().mean() < 2e-4


def test_a_new_network_starts_as_the_pseudocode_says():
    net = fitted(table(gaps=True), steps=0).model_.net
    ordered = net.embedding.ordered_rows
    assert not net.output.bias.any() and (net.output.temperature_logit == 1).all()
    assert not net.embedding.unordered[ordered].any()
    others = torch.ones(len(net.embedding.unordered), dtype=torch.bool)
    others[ordered] = False
    for weights, deviation in (
        (net.embedding.unordered[others], 0.05),
        (net.embedding.low, 0.05),
        (net.embedding.high, 0.05),
        (net.mask_token, 0.05),
        (net.positions, 0.01),
    ):
        assert weights.std().item() == pytest.approx(deviation, rel=0.35)


# --- columns and generation ----------------------------------------------------------------


def test_every_number_is_ordered_and_clusters_are_plain():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "id": np.arange(1000, 1400),
        "few": rng.integers(0, 4, 400),
        "zeros": np.where(rng.random(400) < 0.8, 0.0, rng.gamma(2, 100, 400)),
        "word": rng.choice(["a", "b"], 400),
    })  # fmt: skip
    model = fitted(frame, steps=1, max_bins=20)
    assert [column.kind for column in model.schema_.columns] == ["numeric"] * 3 + ["categorical"]
    sizes = dict(zip(model.model_.codec.token_index, model.model_.net.sizes, strict=True))
    assert sizes == {"id": 20, "few": 4, "zeros": 20, "word": 2}


def test_values_are_the_centres_of_clusters_and_none_is_missing():
    frame = table(gaps=True, rows=600)
    model = fitted(frame, max_bins=10)
    rows = model.sample(2000, seed=1)
    centres = model.model_.codec["height"].codec.numeric.codes.centres / 10  # one decimal
    assert len(centres) == 10
    assert np.isin(rows["height"].round(9), centres.round(9)).all()
    assert not rows.isna().any().any() and frame.isna().any().any()
    for where in ({"height": tabmt.between(160, None)}, {"height": tabmt.between(155, 175)}):
        chosen = model.sample(300, seed=2, where=where)["height"]
        assert np.isin(chosen.round(9), centres.round(9)).all()
        assert chosen.min() >= 155
    with pytest.raises(tabmt.UserError, match="which the model cannot generate; the nearest"):
        model.sample(5, where={"height": 160.2})
    inside = model.sample(200, seed=1, decode="inside")
    assert not np.isin(inside["height"].round(9), centres.round(9)).all()


def test_rules_hold_for_centres_too():
    frame = table(gaps=False, rows=600).assign(low=lambda rows: (rows["height"] - 20).round(1))
    rules = {"rules": {"order": "low <= height"}}
    model = TabMT(**PAPER | SMALL | {"steps": 30}).fit(frame, schema=rules)
    rows = model.sample(500, seed=1)
    assert (rows["low"] <= rows["height"]).all()
    for name in ("low", "height"):
        centres = model.model_.codec[name].codec.numeric.codes.centres / 10
        assert np.isin(rows[name].round(9), centres.round(9)).all()


def test_the_decoder_is_part_of_the_model(tmp_path):
    model = fitted(table(gaps=False))
    model.save(tmp_path / "m.tabmt")
    loaded = TabMT.load(tmp_path / "m.tabmt")
    assert loaded.card_.settings.generation.decode == "centre"
    pd.testing.assert_frame_equal(loaded.sample(50, seed=1), model.sample(50, seed=1))


def test_a_continued_model_keeps_how_it_generates(caplog):
    frame = table(gaps=False)
    first = fitted(frame)
    more = TabMT(steps=2, threads=1, batch_size=64, width=64, decode="inside", max_bins=7).fit(
        frame, continue_from=first
    )
    assert "max_bins stays 12, as in the model to continue from; 7 is not used." in caplog.messages
    assert more.card_.settings.generation == first.card_.settings.generation


def test_one_order_for_512_rows(monkeypatch):
    from tabmt.method import sample

    chunks = []
    original = sample.draw_order

    def record(columns, generator, column_order, *, leave, last):
        assert not leave and not last
        chunks.append(column_order)
        return original(columns, generator, column_order)

    monkeypatch.setattr(sample, "draw_order", record)
    model = fitted(table(gaps=False), target="city")
    model.sample(2048, seed=1)
    assert len(chunks) == 4 and set(chunks) == {sample.RANDOM_ORDER}


def test_rows_per_order_must_fit_into_batches():
    with pytest.raises(tabmt.UserError, match=r"rows_per_order is 500, but must be a power of two"):
        fitted(table(gaps=False), rows_per_order=500)


# --- departures ----------------------------------------------------------------------------


def departures() -> list[dict[str, object]]:
    """The settings that each row of the table in docs/method.md names, with the paper's values."""
    page = (ROOT / "docs" / "method.md").read_text()
    section = page[page.index("## Departures from the paper") :]
    rows = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in rows[0]] == ["the paper", "here", "the paper's setting", "why"]
    found = []
    for row in rows[2:]:
        settings = {}
        for text in re.findall(r"`([^`]*)`", row[2]):
            call = ast.parse(text if "(" in text else f"TabMT({text})").body[0].value
            for keyword in call.keywords:
                settings[call.func.id, keyword.arg] = ast.literal_eval(keyword.value)
        found.append(settings)
    return found


CONFIGS = (CodecConfig, NetworkConfig, TrainConfig, GenerationConfig)
SOURCES = [path.read_text() for path in (ROOT / "tabmt").rglob("*.py")]


@pytest.mark.parametrize("settings", departures(), ids=lambda s: ", ".join(n for _, n in s))
def test_each_departure_is_a_setting_that_the_papers_preset_turns_off(settings):
    assert settings
    for (owner, name), value in settings.items():
        if owner == "TabMT":
            fields = {n: f for c in CONFIGS for n, f in c.__dataclass_fields__.items()}
            assert fields[name].metadata["help"]
            assert TabMT().get_params()[name] != value
            assert PAPER[name] == value
            tag = name
        else:
            function, preset = {"tune": (tune, PAPER_TUNE), "pareto": (pareto, PAPER_PARETO)}[owner]
            assert function.__kwdefaults__[name] != value
            assert preset[name] == value
            tag = owner
        assert any(re.search(rf"PAPER-DIFF [^:]*\b{tag}\b[^:]*:", text) for text in SOURCES), tag


def test_no_departure_is_left_out_of_the_table():
    listed = {name for settings in departures() for _, name in settings}
    tagged = set()
    for text in SOURCES:
        for names in re.findall(r"PAPER-DIFF ([^:]*):", text):
            tagged |= {
                name.strip() for name in names.replace("\n", " ").replace("#", "").split(",")
            }
    assert tagged - {"tune", "pareto"} <= listed
    assert set(PAPER_METHOD) <= listed
    assert set(PAPER_TUNE) | (set(PAPER_PARETO) - {"sampler"}) <= listed
    assert not any(re.search(r"PAPER-DIFF:", text) for text in SOURCES)


def test_large_models_are_the_paper_with_another_size():
    for name, width, depth, heads in (("S", 64, 12, 4), ("M", 384, 12, 8), ("L", 576, 24, 12)):
        preset = PRESETS[name]
        assert preset | PAPER_METHOD | {"warmup": 10_000} == preset
        assert (preset["width"], preset["depth"], preset["heads"]) == (width, depth, heads)
        assert (preset["steps"], preset["batch_size"], preset["warmup"]) == (350_000, 2048, 10_000)
        assert (preset["learning_rate"], preset["weight_decay"]) == (0.002, 0.01)


def test_sizes_of_the_preset_lie_in_the_papers_search_space():
    for name, values in SPACES["paper"].items():
        if isinstance(values, list):
            assert PAPER[name] in values
        else:
            assert values[0] <= PAPER[name] <= values[1]


def test_the_preset_on_the_command_line(tmp_path):
    frame = table(gaps=True)
    frame.to_csv(tmp_path / "people.csv", index=False)
    model = str(tmp_path / "m.tabmt")
    small = ["--steps", "3", "--width", "16", "--depth", "2", "--heads", "2", "--threads", "1"]
    done = CliRunner().invoke(
        main, ["fit", str(tmp_path / "people.csv"), "-o", model, "--config", "paper", *small]
    )
    assert done.exit_code == 0, done.output
    settings = TabMT.load(model).card_.settings.to_json()
    given = {"steps": 3, "width": 16, "depth": 2, "heads": 2}
    assert {name: settings[name] for name in PAPER} == {**PAPER, **given}


# --- searches ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def penguin_files(tmp_path_factory) -> Path:
    """Training, validation and test rows, and a small model of the paper."""
    folder = tmp_path_factory.mktemp("penguins")
    rows = pd.read_csv(tabmt.penguins()).sample(frac=1, random_state=0)
    rows[:200].to_csv(folder / "train.csv", index=False)
    rows[200:270].to_csv(folder / "valid.csv", index=False)
    rows[270:].to_csv(folder / "test.csv", index=False)
    TabMT(**PAPER | SMALL | {"steps": 20}).fit(folder / "train.csv").save(folder / "m.tabmt")
    (folder / "catboost.json").write_text('{"iterations": 400, "early_stopping_rounds": 5}')
    return folder


def run(*arguments: object) -> str:
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_temperatures_are_searched_as_in_the_paper(penguin_files, tmp_path):
    folder = penguin_files
    storage, front = tmp_path / "f.trials", tmp_path / "f.json"
    run("pareto", "search", folder / "m.tabmt", "--train", folder / "train.csv",
        "--valid", folder / "valid.csv", "--test", folder / "test.csv", "--target", "species",
        "--catboost", folder / "catboost.json", "--config", "paper", "--trials", 4,
        "--workers", 1, "-o", front)  # fmt: skip
    found = tabmt.Front.load(front)
    assert found.uniform == ()
    about = found.search
    assert {name: about[name] for name in PAPER_PARETO if name in about} == {
        name: value for name, value in PAPER_PARETO.items() if name != "multiplier"
    }
    assert about["rows"] == about["final_rows"] == 8 * 200
    assert about["catboost"]["iterations"] == 400  # as it is, not at most 300
    study = StudyLocation(str(storage), "search", ("maximize", "maximize")).open()
    trials = study.trials
    assert len(trials) == 4
    for trial in trials:
        for distribution in trial.distributions.values():
            assert (distribution.low, distribution.high, distribution.log) == (0.5, 5.0, False)
        assert "NSGAIISampler:generation" in trial.system_attrs
    pictures = tmp_path / "front.svg"
    run("pareto", "show", front, "-o", pictures)
    assert pictures.stat().st_size > 1000
    run("pareto", "apply", front, folder / "m.tabmt", "--point", 1, "-o", tmp_path / "p.tabmt")


def test_settings_are_searched_as_in_the_paper(penguin_files, tmp_path, monkeypatch):
    small = {**SPACES["paper"], "width": (16, 32, 16), "depth": (2, 2, 2), "steps": (5, 15, 5),
             "heads": [1, 2], "batch_size": (32, 64, 32)}  # fmt: skip
    monkeypatch.setitem(SPACES, "paper", small)
    output = tmp_path / "best.tabmt"
    run("tune", penguin_files / "train.csv", "--valid", penguin_files / "valid.csv",
        "--target", "species", "--config", "paper", "--space", "paper", "--trials", 3,
        "--catboost", penguin_files / "catboost.json", "--workers", 1, "-o", output)  # fmt: skip
    study = StudyLocation(str(output.with_suffix(".trials")), "tune", ("maximize",)).open()
    trials = study.trials
    assert len(trials) == 3 and all(trial.state.name == "COMPLETE" for trial in trials)
    assert set(trials[0].params) == set(small)
    model = TabMT.load(output)
    settings = model.card_.settings.to_json()
    assert {name: settings[name] for name in PAPER_METHOD} == PAPER_METHOD
    best = max(trials, key=lambda trial: trial.value)
    assert settings["width"] == best.params["width"]
    about = study.user_attrs["about"]
    assert (about["multiplier"], about["prune"], about["space"]) == (8, False, "paper")


def test_the_papers_space_is_that_of_its_appendix():
    assert SPACES["paper"] == {
        "width": (16, 512, 16),
        "heads": [1, 2, 4, 8, 16],
        "depth": (2, 12, 2),
        "drop_path": (0.0, 0.25, 0.05),
        "dropout": (0.0, 0.5, 0.05),
        "learning_rate": (5e-5, 5e-3, "log"),
        "weight_decay": (0.001, 0.03, "log"),
        "steps": (10_000, 40_000, 5_000),
        "batch_size": (256, 2048, 256),
        "max_bins": (10, 200, 10),
    }
