"""The page: templates filled on the server, and small scripts that call the API."""

import datetime as dt
import functools
from typing import Any

import jinja2
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from tabmt.config import CodecConfig
from tabmt.serve import limits
from tabmt.serve.access import Refusal
from tabmt.serve.api import Id, Server
from tabmt.serve.service import Service

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
KINDS = {  # the kinds that a person may choose for a column
    "numeric": "numeric",
    "datetime": "datetime",
    "categorical": "categorical",
    "id": "id (new values)",
}
FILE_NAMES = {
    "synthetic": "Synthetic rows",
    "report": "Report",
    "model": "Model",
    "scores": "Scores (JSON)",
    "readme": "README",
    "front": "Pareto front (JSON)",
}
STATES = {
    "queued": "waiting",
    "running": "running",
    "finished": "finished",
    "failed": "failed",
    "cancelled": "cancelled",
    "interrupted": "interrupted",
}
JOBS = {
    "fit": "Fit a model",
    "synthesize": "Fit, generate and evaluate",
    "evaluate": "Evaluate rows",
    "pareto": "Balance privacy and quality",
}


@functools.cache
def environment() -> jinja2.Environment:
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("tabmt.serve", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"percent": "{:.1%}".format, "count": "{:,}".format, "when": _when,
                          "size": _size}  # fmt: skip
    templates.globals |= {"FILE_NAMES": FILE_NAMES, "STATES": STATES, "JOBS": JOBS}
    return templates


def refused_page(refusal: Refusal) -> str:
    """What a person sees whose request is refused, or whose address does not exist."""
    template = environment().get_template("refused.html")
    return template.render(refusal=refusal, csrf="")


def _show(request: Request, service: Service, template: str, **content: Any) -> HTMLResponse:
    session = service.access.session_of(request.headers)
    csrf = "" if session is None else service.access.csrf_token(session)
    return HTMLResponse(environment().get_template(template).render(csrf=csrf, **content))


@router.get("/")
def home(request: Request, service: Server) -> HTMLResponse:
    return _show(
        request, service, "home.html",
        models=service.models_list(),
        tables=service.workspace.tables(),
        jobs=[service.job_json(job) for job in service.jobs.jobs()],
        folder=str(service.workspace.path),
        most_upload=limits.MOST_UPLOAD,
    )  # fmt: skip


@router.get("/tables/{table}")
def table(table: Id, request: Request, service: Server) -> HTMLResponse:
    about = service.workspace.table(table)
    return _show(
        request, service, "table.html",
        table=about,
        others=[other for other in service.workspace.tables() if other.id != table],
        kinds=KINDS,
        protect=CodecConfig.protect,
    )  # fmt: skip


@router.get("/jobs/{job}")
def job(job: Id, request: Request, service: Server) -> HTMLResponse:
    return _show(request, service, "job.html", job=service.job(job, 0))


@router.get("/models/{model}")
def model(model: Id, request: Request, service: Server) -> HTMLResponse:
    return _show(request, service, "model.html", model=service.model(model))


def _when(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds).strftime("%d %b %Y, %H:%M")


def _size(count: int) -> str:
    for unit in ("bytes", "KB", "MB"):
        if count < 1000:
            return f"{count:,.0f} {unit}"
        count //= 1000
    return f"{count:,.0f} GB"
