"""The HTTP API. Everything that the page does goes through it; /api/openapi.json describes it."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse, StreamingResponse
from pydantic import BaseModel, ValidationError
from starlette.types import Receive, Scope, Send

from tabmt.errors import UserError
from tabmt.serve import limits
from tabmt.serve.access import REPORT_POLICY
from tabmt.serve.formats import MEDIA_TYPES, Format
from tabmt.serve.requests import (
    CompleteRequest,
    DistributionRequest,
    ImputeRequest,
    JobRequest,
    KindsRequest,
    SampleRequest,
    ScoreRequest,
)
from tabmt.serve.rows import RowsRequest, What
from tabmt.serve.sampling import Pieces
from tabmt.serve.service import Service, download_name, suffix_of
from tabmt.serve.workspace import ID, NotFound, Results

FileName = Literal["model", "synthetic", "report", "scores", "readme", "front"]
SUFFIXES: dict[Format, str] = {
    "csv": ".csv", "ndjson": ".ndjson", "parquet": ".parquet", "arrow": ".arrow",
}  # fmt: skip


class ErrorBody(BaseModel):
    """What is wrong, in one sentence."""

    error: str


async def get_service(request: Request) -> Service:  # not in a thread, which would cost more
    service: Service = request.app.state.service
    return service


Server = Annotated[Service, Depends(get_service)]
Id = Annotated[str, PathParameter(pattern=ID, examples=["0123456789abcdef"])]
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": what}
    for status, what in {
        400: "another host name",
        401: "no token, or a wrong one",
        403: "a request of another page",
        404: "an unknown id",
        413: "a body that is too large",
        422: "an invalid request, or one above a limit",
        429: "too many requests or jobs are waiting",
        503: "the request took too long",
    }.items()
}
ROWS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "the rows, sent while they are generated",
        "content": {kind.partition(";")[0]: {} for kind in MEDIA_TYPES.values()},
    }
}
router = APIRouter(prefix="/api", responses=ERRORS)


class RowsResponse(StreamingResponse):
    """Streams rows, and ends the process that makes them when the client goes."""

    def __init__(self, pieces: Pieces, **options: Any) -> None:
        super().__init__(pieces, **options)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._pieces.end()


async def rows_response(
    service: Service, model: str, what: What, request: RowsRequest, *, download: bool = False
) -> Response:
    made = await service.rows(model, what, request)
    headers = {}
    if download:
        name = download_name(service.models.entry(model).name, "rows", SUFFIXES[request.format])
        headers["content-disposition"] = f'attachment; filename="{name}"'
    media_type = MEDIA_TYPES[request.format]
    if isinstance(made, Pieces):
        return RowsResponse(made, media_type=media_type, headers=headers)
    return Response(made, media_type=media_type, headers=headers)


# --- the server ----------------------------------------------------------------------------


@router.get("/limits", summary="The limits of this server")
async def get_limits() -> dict[str, float]:
    names = (name for name in dir(limits) if name.startswith(("MOST_", "ROWS_", "SMALL_")))
    return {name.lower(): getattr(limits, name) for name in names}


# --- models --------------------------------------------------------------------------------


@router.get("/models", summary="All models")
def list_models(service: Server) -> list[dict[str, Any]]:
    return service.models_list()


@router.get("/models/{model}", summary="A model's card, schema, verdict and Pareto front")
def get_model(model: Id, service: Server) -> dict[str, Any]:
    return service.model(model)


@router.get("/models/{model}/columns", summary="The distribution of each column")
def get_columns(model: Id, service: Server) -> dict[str, Any]:
    return service.columns(model)


@router.post("/models/{model}/distributions", summary="Distributions under conditions")
async def post_distributions(
    model: Id, request: DistributionRequest, service: Server
) -> dict[str, Any]:
    return await service.distributions(model, request)


@router.post("/models/{model}/sample", summary="New rows", response_class=Response, responses=ROWS)
async def post_sample(model: Id, request: SampleRequest, service: Server) -> Response:
    return await rows_response(service, model, "sample", request)


@router.get(
    "/models/{model}/sample", summary="New rows as a download", response_class=Response,
    responses=ROWS,
)  # fmt: skip
async def download_sample(
    model: Id,
    service: Server,
    request: Annotated[
        str,
        Query(
            max_length=limits.MOST_BODY,
            description="the body of POST, as JSON",
            examples=['{"rows": 10, "format": "csv"}'],
        ),
    ],
) -> Response:
    try:
        parsed = SampleRequest.model_validate_json(request)
    except ValidationError as error:
        raise UserError(sentence_of(error.errors())) from None
    return await rows_response(service, model, "sample", parsed, download=True)


@router.post(
    "/models/{model}/complete", summary="Rows of which some cells are known",
    response_class=Response, responses=ROWS,
)  # fmt: skip
async def post_complete(model: Id, request: CompleteRequest, service: Server) -> Response:
    return await rows_response(service, model, "complete", request)


@router.post("/models/{model}/complete/commands", summary="The commands that complete these rows")
def post_complete_commands(model: Id, request: CompleteRequest, service: Server) -> dict[str, str]:
    return service.complete_equivalents(model, request)


@router.post(
    "/models/{model}/impute", summary="Rows whose missing values are filled",
    response_class=Response, responses=ROWS,
)  # fmt: skip
async def post_impute(model: Id, request: ImputeRequest, service: Server) -> Response:
    return await rows_response(service, model, "impute", request)


@router.post(
    "/models/{model}/score", summary="How usual each row is", response_class=Response,
    responses=ROWS,
)  # fmt: skip
async def post_score(model: Id, request: ScoreRequest, service: Server) -> Response:
    return await rows_response(service, model, "score", request)


@router.get(
    "/models/{model}/files/{name}", summary="A file of a model's results", response_class=Response
)
def get_model_file(model: Id, name: FileName, service: Server) -> Response:
    entry = service.models.entry(model)
    if name == "model":
        return file_response(entry.results, name, entry.name, {"model": entry.path})
    return file_response(entry.results, name, entry.name)


# --- tables --------------------------------------------------------------------------------


@router.get("/tables", summary="All uploaded tables")
def list_tables(service: Server) -> list[dict[str, Any]]:
    return [_short(vars(table)) for table in service.workspace.tables()]


@router.post(
    "/tables",
    summary="Upload a table: the bytes of a CSV, Parquet or Arrow file",
    status_code=201,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
            },
        }
    },
)
async def post_table(
    request: Request,
    service: Server,
    name: Annotated[str, Query(description="of the file", examples=["people.csv"])],
) -> dict[str, Any]:
    return vars(await service.add_table(name, request.stream()))


@router.get("/tables/{table}", summary="A table: the kind of each column, and the reason")
def get_table(table: Id, service: Server) -> dict[str, Any]:
    return vars(service.workspace.table(table))


@router.put("/tables/{table}/kinds", summary="Change the kinds of columns")
def put_kinds(table: Id, request: KindsRequest, service: Server) -> dict[str, Any]:
    return vars(service.set_kinds(table, dict(request.kinds)))


@router.delete("/tables/{table}", summary="Delete a table", status_code=204)
def delete_table(table: Id, service: Server) -> None:
    service.remove_table(table)


# --- jobs ----------------------------------------------------------------------------------


@router.get("/jobs", summary="All jobs")
def list_jobs(service: Server) -> list[dict[str, Any]]:
    return [service.job_json(job) for job in service.jobs.jobs()]


@router.post("/jobs", summary="Start a job: fit, synthesize, evaluate, pareto", status_code=202)
def post_job(request: JobRequest, service: Server) -> dict[str, Any]:
    return service.job_json(service.jobs.submit(request))


@router.get("/jobs/{job}", summary="The progress of a job, and its verdict")
def get_job(
    job: Id, service: Server, after: Annotated[int, Query(ge=0, le=10**9)] = 0
) -> dict[str, Any]:
    return service.job(job, after)


@router.post("/jobs/{job}/stop", summary="End the training, and keep the model so far")
def stop_job(job: Id, service: Server) -> dict[str, Any]:
    return service.job_json(service.jobs.stop(job))


@router.post("/jobs/{job}/cancel", summary="End a job; it can be resumed")
def cancel_job(job: Id, service: Server) -> dict[str, Any]:
    return service.job_json(service.jobs.cancel(job))


@router.post("/jobs/{job}/resume", summary="Resume an interrupted job")
def resume_job(job: Id, service: Server) -> dict[str, Any]:
    return service.job_json(service.jobs.resume(job))


@router.delete("/jobs/{job}", summary="Delete a job with its results", status_code=204)
def delete_job(job: Id, service: Server) -> None:
    service.jobs.remove(job)


@router.get("/jobs/{job}/files/{name}", summary="A result of a job", response_class=Response)
def get_job_file(job: Id, name: FileName, service: Server) -> Response:
    return file_response(service.jobs.results(job), name, service.jobs.job(job).name)


# --- answers -------------------------------------------------------------------------------


def file_response(
    results: Results, name: FileName, owner: str, known: dict[str, Any] | None = None
) -> Response:
    """A file of results: the report is shown, the others are saved."""
    path = (known or {}).get(name) or results.file(name)
    if path is None:
        raise NotFound(f"There is no {name} here.")
    if name == "report":
        headers = {"content-security-policy": REPORT_POLICY, "x-frame-options": "SAMEORIGIN"}
        return FileResponse(path, media_type="text/html; charset=utf-8", headers=headers)
    shown = download_name(owner, name, suffix_of(path))
    return FileResponse(path, media_type="application/octet-stream", filename=shown)


def sentence_of(errors: Any) -> str:
    """The first of pydantic's complaints as a sentence, without the value that was given."""
    first = errors[0]
    parts = [str(part) for part in first["loc"] if part not in ("body", "query", "path")]
    where = ".".join(part for part in parts if "[" not in part)  # pydantic's words for a type
    message = str(first["msg"]).removeprefix("Value error, ")
    more = f" ({len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"The request is not valid: {f'{where}: ' if where else ''}{message}{more}."


def _short(table: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key != "schema"}
