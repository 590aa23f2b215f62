"""A service that answers with rows of a primary-key table, kept live in memory. The key is one column of integers.

    pip install fastapi uvicorn
    PAIMON_WAREHOUSE=/path/to/warehouse PAIMON_TABLE=db.orders uvicorn --app-dir examples fastapi_lookup:app

`GET /rows/1` is the row of a key, `/health/live` and `/health/ready` are for probes (`examples/kubernetes.yaml`). It
serves once it has the state of the table. Each worker process has a table of its own. SIGTERM ends it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse

from pypaimon.streaming import PaimonStreamError, open_table, stream_read_builder


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    options = {"warehouse": os.environ["PAIMON_WAREHOUSE"]}
    table = await asyncio.to_thread(open_table, os.environ["PAIMON_TABLE"], options)
    async with stream_read_builder(table).open_live() as live:
        app.state.live = live
        yield


app = FastAPI(lifespan=lifespan)


@app.exception_handler(PaimonStreamError)
async def unavailable(request: Request, error: Exception) -> JSONResponse:
    """The rows no longer follow the table. After a retriable error they will again, by themselves."""
    return JSONResponse({"detail": str(error)}, status_code=503)


@app.get("/rows/{key}")
async def row(key: int) -> dict[str, Any]:
    found = app.state.live.get(key)
    if found is None:
        raise HTTPException(404)
    return found


@app.get("/health/live")
async def is_alive() -> dict[str, str]:
    """503 where only a restart helps. It does not help during an outage of the store, and would lose the rows."""
    try:
        app.state.live.snapshot_id  # noqa: B018 (raises what has ended the stream)
    except PaimonStreamError as error:
        if not error.retriable:
            raise
    return {"status": "ok"}


@app.get("/health/ready")
async def is_ready() -> dict[str, Any]:
    """503 while the rows do not follow the table."""
    return {"snapshot": app.state.live.snapshot_id, "as_of": app.state.live.as_of}


if __name__ == "__main__":
    sys.exit("uvicorn runs it, python examples/fastapi_lookup.py does not: see its first lines")
