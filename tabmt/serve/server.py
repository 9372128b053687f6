"""Run the server: one address of this machine, one work folder, one token."""

import contextlib
import logging
import socket
import threading
import webbrowser
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from tabmt.errors import UserError
from tabmt.serve.access import Access
from tabmt.serve.app import create_app
from tabmt.serve.limits import HOST, MOST_CONNECTIONS, PORT
from tabmt.serve.service import Service
from tabmt.writing import claimed, make_folder

log = logging.getLogger(__name__)

PORTS_TO_TRY = 20
KEEP_SECONDS = 75  # that an idle connection stays open: longer than clients keep theirs
CLOSE_SECONDS = 5  # that open requests have when the server ends


@contextlib.contextmanager
def opened(models: Sequence[str], folder: Path, port: int | None) -> Iterator["Opened"]:
    """Bind a port, claim the work folder and make a token."""
    make_folder(folder)
    with claimed(folder, "The work folder"), _bound(port) as bound:
        access = Access(bound.getsockname()[1])
        service = Service.of(folder, models, access)
        app = create_app(service)
        config = uvicorn.Config(
            app,
            access_log=False,  # addresses may contain conditions, and so values of cells
            log_level="warning",
            server_header=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=CLOSE_SECONDS,
            timeout_keep_alive=KEEP_SECONDS,
            ws="none",
        )
        yield Opened(uvicorn.Server(config), bound, access, service)


@dataclass(frozen=True)
class Opened:
    """A server that is ready to run, with its socket, which is bound already."""

    server: uvicorn.Server
    socket: socket.socket
    access: Access
    service: Service

    @property
    def page(self) -> str:
        """The address to open: the page of a model, if it is the only one that was named."""
        given = [entry.id for entry in self.service.models.entries() if entry.is_given]
        start = f"models/{given[0]}" if len(given) == 1 else ""
        return f"{self.access.address}{start}?token={self.access.token}"

    def run(self) -> None:
        self.server.run(sockets=[self.socket])


def run(models: Sequence[str], folder: Path, port: int | None, *, browser: bool) -> None:
    """Serve until Ctrl-C."""
    with opened(models, folder, port) as ready:
        log.info("The page is at %s", ready.page)
        log.info("It shows real rows, so keep the address to yourself; stop it with Ctrl-C.")
        if browser:
            threading.Thread(target=webbrowser.open, args=(ready.page,), daemon=True).start()
        logging.getLogger("tabmt").setLevel(logging.WARNING)
        ready.run()


@contextlib.contextmanager
def _bound(port: int | None) -> Iterator[socket.socket]:
    """A socket on the loopback address: on the given port, or on a free one."""
    ports = range(PORT, PORT + PORTS_TO_TRY) if port is None else (port,)
    for number in ports:
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((HOST, number))
            bound.listen()  # an early request waits, and is not refused
        except OSError as error:
            bound.close()
            if port is not None:
                raise UserError(
                    f"Port {port} cannot be used: {error.strerror}; choose another with --port."
                ) from error
            continue
        with bound:
            yield bound
        return
    raise UserError(f"The ports {ports[0]} to {ports[-1]} are all in use; choose one with --port.")
