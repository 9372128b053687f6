"""What `--help` shows."""

import dataclasses
import re
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from tabmt.cli import main
from tabmt.config import CodecConfig, NetworkConfig, TrainConfig

GROUPS = {"": main, "pareto": main.commands["pareto"], "netflow": main.commands["netflow"]}


def help_of(*names: str) -> str:
    result = CliRunner().invoke(main, [*names, "--help"], terminal_width=80)
    assert result.exit_code == 0, result.output
    return result.stdout


def sections(text: str) -> dict[str, str]:
    """The indented lines below each heading, in the order in which they are shown."""
    found = re.findall(r"^(\w+):\n((?:  .*\n|\n)+)", text, re.MULTILINE)
    return {heading: lines for heading, lines in found}


@pytest.mark.parametrize("name", GROUPS)
def test_the_summary_of_every_command_is_short_and_shown_whole(name):
    group = GROUPS[name]
    assert isinstance(group, click.Group)
    lines = sections(help_of(*name.split()))["Commands"].splitlines()
    shown = dict(line.split(maxsplit=1) for line in lines if line)
    assert list(shown) == sorted(group.commands)
    for command, summary in shown.items():
        first_paragraph = (group.commands[command].help or "").split("\n\n")[0]
        assert summary == " ".join(first_paragraph.split())
        assert summary.endswith(".") and "..." not in summary
        assert len(summary) < 60


def test_fit_lists_its_options_in_groups():
    groups = sections(help_of("fit"))
    assert list(groups) == [
        "Output",
        "Data",
        "Network",
        "Training",
        "Generation",
        "Hardware",
        "Other",
    ]
    listed = {name: re.findall(r"^  (?:-\w, )?(--[\w-]+)", groups[name], re.M) for name in groups}
    assert listed["Other"] == ["--help"]
    options = [option for group in listed.values() for option in group]
    assert len(options) == len(set(options))
    for config in (CodecConfig, NetworkConfig, TrainConfig):
        for item in dataclasses.fields(config):
            assert f"--{item.name.replace('_', '-')}" in listed[item.metadata["group"]]
    parameters = {name for p in main.commands["fit"].params for name in p.opts if name[:2] == "--"}
    assert set(options) == parameters


def all_commands(group: click.Group = main) -> Iterator[click.Command]:
    yield group
    for command in group.commands.values():
        if isinstance(command, click.Group):
            yield from all_commands(command)
        else:
            yield command


@pytest.mark.parametrize("command", list(all_commands()), ids=lambda command: command.name)
def test_the_help_of_every_option_is_a_phrase_without_a_full_stop(command):
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help and not option.help.endswith("."), option.name
            assert "[default: (" not in option.get_help_record(click.Context(command))[1]


def test_help_says_what_a_flag_and_an_automatic_setting_mean():
    words = " ".join(help_of("fit").split())
    assert "with --no-target-last, at a random position like the others" in words
    assert "peak learning rate [default: depends on the table]" in words
    assert (
        "COLUMN=T one column; later options override earlier ones; can be given several times"
        in " ".join(help_of("sample").split())
    )
