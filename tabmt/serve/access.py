"""Which requests the server answers, and the headers of every answer.

The page has a cookie, which it gets for the token in the printed address; programs send the token
as `Authorization: Bearer`. A request with the cookie must come from the page itself, and one that
changes anything must also have the page's CSRF token. See SECURITY.md.
"""

import hashlib
import hmac
import http.cookies
import json
import logging
import secrets
import threading
import time
import traceback
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from starlette.exceptions import HTTPException

from tabmt.serve.limits import HOST, MOST_BODY, MOST_SESSIONS, MOST_UPLOAD, SESSION_SECONDS

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

SAFE_METHODS = ("GET", "HEAD")
CSRF_HEADER = "x-tabmt-csrf"
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# The report has its styles inside and no script; the sandbox gives it no rights, not even those of
# this origin. Only our own page may show it in a frame.
REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; sandbox; "
    "frame-ancestors 'self'"
)
HEADERS = {
    "content-security-policy": PAGE_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}


class TooLarge(HTTPException):
    """The body of a request exceeds its limit."""

    def __init__(self, sentence: str) -> None:
        super().__init__(413, sentence)


@dataclass(frozen=True)
class Refusal:
    """Why a request is not answered."""

    status: int
    sentence: str


LOGGED_OUT = Refusal(
    401, "This needs the token in the address that `tabmt serve` has printed; open that address."
)


@dataclass
class Access:
    """The token of one server, and the sessions of its pages."""

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    _secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    _sessions: dict[str, float] = field(default_factory=dict)  # id -> when it ends
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def cookie(self) -> str:
        """Its name has the port: cookies are shared by all ports of a host."""
        return f"tabmt-{self.port}"

    @property
    def hosts(self) -> tuple[str, str]:
        return f"{HOST}:{self.port}", f"localhost:{self.port}"

    @property
    def address(self) -> str:
        return f"http://{self.hosts[0]}/"

    def is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())

    def start_session(self) -> str:
        session, ends = secrets.token_urlsafe(32), time.time() + SESSION_SECONDS
        with self._lock:
            while len(self._sessions) >= MOST_SESSIONS:
                del self._sessions[min(self._sessions, key=self._sessions.__getitem__)]
            self._sessions[session] = ends
        return session

    def session_of(self, headers: Mapping[str, str]) -> str | None:
        """The session of a request's cookie, if it is one that has not ended."""
        try:
            morsel = http.cookies.SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except http.cookies.CookieError:
            return None
        if morsel is None:
            return None
        with self._lock:
            for session, ends in self._sessions.items():
                if hmac.compare_digest(session.encode(), morsel.value.encode()):
                    return session if ends > time.time() else None
        return None

    def csrf_token(self, session: str) -> str:
        return hmac.new(self._secret, session.encode(), hashlib.sha256).hexdigest()

    def refusal(self, method: str, headers: Mapping[str, str]) -> Refusal | None:
        """Why a request is refused; None if it may be answered."""
        authorization = headers.get("authorization", "")
        if authorization:
            scheme, _, given = authorization.partition(" ")
            is_right = scheme.lower() == "bearer" and self.is_token(given.strip())
            return None if is_right else LOGGED_OUT
        session = self.session_of(headers)
        if session is None:
            return LOGGED_OUT
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return Refusal(403, "This request comes from another page.")
        given = headers.get(CSRF_HEADER, "")
        if method not in SAFE_METHODS and not hmac.compare_digest(
            given.encode(), self.csrf_token(session).encode()
        ):
            return Refusal(403, "This request lacks the page's own token; reload the page.")
        return None

    def outside_refusal(self, headers: Mapping[str, str]) -> Refusal | None:
        """What is refused even with a token: another host name, and requests of other pages."""
        if headers.get("host", "") not in self.hosts:
            return Refusal(400, "The host name of this request is not that of this server.")
        origin = headers.get("origin")
        if origin is not None and origin not in tuple(f"http://{host}" for host in self.hosts):
            return Refusal(403, "This request comes from another page.")
        return None


class Gate:
    """The outermost layer: access, limits of bodies, headers, and errors in one sentence."""

    def __init__(self, app: App, access: Access, refused_page: Callable[[Refusal], str]) -> None:
        self._app, self._access, self._refused_page = app, access, refused_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no websockets here
            await send({"type": "websocket.close", "code": 1008})
            return
        answer = Answer(send)
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await self._refuse(scope, answer, refusal)
        elif self._is_login(scope):
            await self._log_in(scope, answer)
        else:
            await self._answer(scope, limited(receive, scope, headers), answer)

    async def _answer(self, scope: Scope, receive: Receive, answer: "Answer") -> None:
        try:
            await self._app(scope, receive, answer.send)
        except Exception as error:
            # Not the message, which may quote a cell.
            frames = "".join(traceback.format_tb(error.__traceback__))
            log.error("%s in %s\n%s", type(error).__name__, scope["path"], frames)
            if not answer.has_started:  # otherwise the connection is cut, which the client sees
                sentence = "An internal error occurred; the messages of `tabmt serve` say where."
                await self._refuse(scope, answer, Refusal(500, sentence))

    def _refusal(self, scope: Scope, headers: Mapping[str, str]) -> Refusal | None:
        refusal = self._access.outside_refusal(headers)
        if refusal is not None:
            return refusal
        if (length := headers.get("content-length")) is not None and (
            not length.isdecimal() or int(length) > most_bytes(scope)
        ):
            return Refusal(413, too_large(scope))
        if scope["path"].startswith("/static/") and scope["method"] in SAFE_METHODS:
            return None
        given = _token_of(scope)
        if given is not None:
            return None if self._access.is_token(given) else LOGGED_OUT
        return self._access.refusal(scope["method"], headers)

    def _is_login(self, scope: Scope) -> bool:
        return _token_of(scope) is not None

    async def _log_in(self, scope: Scope, answer: "Answer") -> None:
        """Exchange the token in the address for a cookie, so that it does not stay there."""
        cookie = f"{self._access.cookie}={self._access.start_session()}"
        cookie += f"; Path=/; HttpOnly; SameSite=Strict; Max-Age={int(SESSION_SECONDS)}"
        headers = {"location": urllib.parse.quote(scope["path"]), "set-cookie": cookie}
        await answer.whole(303, b"", headers)

    async def _refuse(self, scope: Scope, answer: "Answer", refusal: Refusal) -> None:
        headers = {"content-type": "application/json"}
        body = json.dumps({"error": refusal.sentence}).encode()
        if refusal.status == 401:
            headers["www-authenticate"] = "Bearer"
        if not is_api(scope) and scope["method"] in SAFE_METHODS:
            headers["content-type"] = "text/html; charset=utf-8"
            body = self._refused_page(refusal).encode()
        await answer.whole(refusal.status, body, headers)


class Answer:
    """Sends an answer with the headers that every answer has."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_started = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_started = True
            given = {name.lower() for name, _ in message.get("headers", [])}
            more = [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in given]
            message = {**message, "headers": [*message.get("headers", []), *more]}
        await self._send(message)

    async def whole(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        every = {**headers, "content-length": str(len(body))}
        encoded = [(k.encode(), v.encode("latin-1")) for k, v in every.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": encoded})
        await self.send({"type": "http.response.body", "body": body})


def is_api(scope: Scope) -> bool:
    return str(scope["path"]).startswith("/api/")


def _token_of(scope: Scope) -> str | None:
    """The token in the address of a page; the API takes it in a header only."""
    if is_api(scope) or scope["method"] != "GET":
        return None
    query = urllib.parse.parse_qs(scope["query_string"].decode("latin-1"))
    return query["token"][0] if "token" in query else None


def most_bytes(scope: Scope) -> int:
    return MOST_UPLOAD if scope["path"] == "/api/tables" else MOST_BODY


def too_large(scope: Scope) -> str:
    return f"The body of this request may have at most {most_bytes(scope):,} bytes."


def limited(receive: Receive, scope: Scope, headers: Mapping[str, str]) -> Receive:
    """The same body, up to its limit: a request need not say how long it is."""
    received = 0

    async def receive_some() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > most_bytes(scope):
            raise TooLarge(too_large(scope))
        return message

    return receive_some
