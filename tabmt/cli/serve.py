"""The command that opens the page: serve."""

from pathlib import Path

import click

from tabmt.cli.options import file_option
from tabmt.errors import not_installed


@click.command()
@click.argument("models", metavar="[MODEL]...", nargs=-1)
@file_option(
    "--folder",
    metavar="FOLDER",
    default="tabmt-page",
    show_default=True,
    help="work folder for uploaded tables and for results, which survive a restart",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    help="port of this machine  [default: 8640, or the next that is free]",
)
@click.option(
    "--browser/--no-browser",
    default=True,
    show_default=True,
    help="open the page in a browser; with --no-browser, only print its address",
)
def serve(models: tuple[str, ...], folder: str, port: int | None, browser: bool) -> None:
    """Open a local web page to fit models and generate rows.

    The page, and the HTTP API behind it, can be reached from this machine only, with the token in
    the printed address. A MODEL is a model file, or a folder that `tabmt synthesize` has written.
    No data leaves this machine. A job that is running when the command ends can be resumed later.

    \b
    Examples:
      tabmt serve
      tabmt serve people.tabmt --folder work --no-browser
    """
    try:
        from tabmt.serve.server import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("fastapi", "uvicorn", "pydantic", "jinja2"):
            raise
        raise not_installed("The page", error.name or "FastAPI", "serve") from error
    run(models, Path(folder), port, browser=browser)
