"""The application: the API, the page and the gate in front of both."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from tabmt.errors import UserError
from tabmt.serve import api, page
from tabmt.serve.access import Gate, Refusal, is_api
from tabmt.serve.jobs import Busy
from tabmt.serve.service import Service, TooSlow, public
from tabmt.serve.workspace import NotFound

STATIC = Path(__file__).parent / "static"
DESCRIPTION = (
    "Fit a model to a table, generate rows, see whether they may be shared. Send the token that "
    "`tabmt serve` has printed as `Authorization: Bearer TOKEN`."
)


def create_app(service: Service) -> FastAPI:
    """The application for one service, with the gate that checks every request."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.jobs.close()

    app = FastAPI(
        title="TabMT",
        description=DESCRIPTION,
        version="1",
        openapi_url="/api/openapi.json",
        docs_url=None,  # its scripts are on another host
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.state.service = service
    app.include_router(api.router)
    app.include_router(page.router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_exception_handler(UserError, _user_error)
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_middleware(Gate, access=service.access, refused_page=page.refused_page)
    return app


def _error(request: Request, status: int, sentence: str) -> Response:
    headers = {"retry-after": "5"} if status in (429, 503) else {}
    if is_api(request.scope):
        return JSONResponse({"error": sentence}, status, headers=headers)
    return HTMLResponse(page.refused_page(Refusal(status, sentence)), status, headers=headers)


async def _user_error(request: Request, error: Exception) -> Response:
    service: Service = request.app.state.service
    statuses: dict[type[Exception], int] = {NotFound: 404, Busy: 429, TooSlow: 503}
    folder = str(service.workspace.path)
    sentence = public(str(error), {f"{folder}/": "", folder: "the work folder"})
    return _error(request, statuses.get(type(error), 422), sentence)


async def _not_valid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return _error(request, 422, api.sentence_of(error.errors()))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    response = _error(request, error.status_code, f"{error.detail.removesuffix('.')}.")
    response.headers.update(error.headers or {})
    return response
