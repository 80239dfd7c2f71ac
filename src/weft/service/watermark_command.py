"""`weft watermark`: the watermarks of a checkpoint or of a running service, and how to mend one.

Guarantees: without a time nothing is changed. A checkpoint that a session uses is only shown: the session itself, or
the service it runs in, is the one to set a watermark.
"""

from __future__ import annotations

from typing import Annotated

import typer

from weft.errors import ConfigError
from weft.logical.moments import moment_of, shown_time

__all__ = ["watermark"]


def watermark(
    place: Annotated[
        str,
        typer.Argument(
            help="A checkpoint (a directory or a URI), or the http:// address of a running service."
        ),
    ],
    stream: Annotated[str | None, typer.Argument(help="The stream whose watermark is to be set.")] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="TIME", help="The time it is to be, as in 2026-01-31T12:00:00."),
    ] = None,
) -> None:
    """Show the watermarks of all streams and what moved them, or set that of one which a wrong time has moved."""
    if (stream is None) != (to is None):
        raise ConfigError(
            "a stream and a time go together", hint='as in weft watermark ck views --to "2026-01-31"'
        )
    remote = place.startswith(("http://", "https://"))
    if stream is None or to is None:
        _show_remote(place) if remote else _show(place)
        return
    moment = moment_of(to, "--to")
    if remote:
        from weft.service.client.http_client import Client  # other commands need not load it

        Client(place).set_watermark(stream, to)
    else:
        from weft.runtime.loop.watermark_resets import reset_stopped
        from weft.session.validation import checkpoint_path
        from weft.storage.places import storage_at

        reset_stopped(storage_at(str(checkpoint_path(place))), stream, moment)
    when = "the next batch" if remote else "the first batch of the next session"
    typer.echo(f"stream {stream}: its watermark is {shown_time(moment)} from {when} on")


def _show(place: str) -> None:
    from weft.runtime.observe.inspect import inspect
    from weft.session.validation import checkpoint_path

    for one in inspect(checkpoint_path(place)).streams:
        mark = "not known" if one.watermark is None else shown_time(one.watermark)
        typer.echo(f"{one.name}: {mark}{_moved(one.moved)}")


def _moved(moved: tuple[int, int, str] | None) -> str:
    if moved is None:
        return ""
    time, batch, where = moved
    return f", moved by a record of {shown_time(time)} in batch {batch}{f' ({where})' if where else ''}"


def _show_remote(place: str) -> None:
    from weft.service.client.http_client import Client

    for one in Client(place).streams():
        mark = "not known" if one.watermark is None else one.watermark.isoformat(" ")
        typer.echo(f"{one.name}: {mark}")
