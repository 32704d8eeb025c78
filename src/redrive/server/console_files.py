"""The console: files that were built into the package, served as they are.

Guarantees: only files of the build are served, read once; no path leads outside it. What is in
`assets/` carries a digest in its name and may be kept for ever, the page itself is asked for again
each time. Every other path that is not the API's is the page, which knows what to show; whoever
asks for something of the API that there is not gets a problem, not a page.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request, Response

from redrive.server.problems import Problem, not_found

FOLDER: Final = Path(__file__).parent / "console"
_PAGE: Final = "index.html"
_FOR_EVER: Final = "public, max-age=31536000, immutable"
_ASK_AGAIN: Final = "no-cache"
_WORTH_IT: Final = 1024
_TYPES: Final = mimetypes.MimeTypes()
for _name, _type in (
    (".js", "text/javascript"),
    (".svg", "image/svg+xml"),
    (".woff2", "font/woff2"),
):
    _TYPES.add_type(_type, _name)


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    packed: bytes | None
    """Compressed, if that is worth it."""
    media_type: str
    tag: str
    kept: str


def console() -> APIRouter:
    """The routes of the console; the last ones, for they take every path that is left."""
    router = APIRouter(include_in_schema=False)
    router.add_api_route("/{path:path}", _serve, methods=["GET", "HEAD"])
    return router


async def _serve(request: Request, path: str) -> Response:
    if path == "api" or path.startswith("api/"):
        raise not_found(f"/{path}")
    files = _files()
    found = files.get(path)
    if found is None:
        # A file of a build that is gone must not be answered with a page in its place.
        if path.startswith("assets/"):
            raise not_found(f"/{path}")
        found = files.get(_PAGE)
    if found is None:
        raise Problem(
            404, "not-found", "the console is not built in this copy", remedy="run `make setup`"
        )
    return _answer(request, found)


def _answer(request: Request, file: _File) -> Response:
    headers = {"Cache-Control": file.kept, "ETag": file.tag, "Vary": "Accept-Encoding"}
    if file.tag in request.headers.get("If-None-Match", ""):
        return Response(status_code=304, headers=headers)
    body = file.body
    if file.packed is not None and "gzip" in request.headers.get("Accept-Encoding", ""):
        body, headers["Content-Encoding"] = file.packed, "gzip"
    return Response(body, headers=headers, media_type=file.media_type)


@cache
def _files() -> Mapping[str, _File]:
    return {
        path.relative_to(FOLDER).as_posix(): _read(path, path.relative_to(FOLDER).as_posix())
        for path in FOLDER.rglob("*")
        if path.is_file()
    }


def _read(path: Path, name: str) -> _File:
    body = path.read_bytes()
    packed = gzip.compress(body, 9, mtime=0) if len(body) > _WORTH_IT else body
    return _File(
        body=body,
        packed=packed if len(packed) < len(body) else None,
        media_type=_TYPES.guess_type(name)[0] or "application/octet-stream",
        tag=f'"{hashlib.sha256(body).hexdigest()[:32]}"',
        kept=_FOR_EVER if name.startswith("assets/") else _ASK_AGAIN,
    )
