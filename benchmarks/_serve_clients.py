"""Clients of a service, many at once: some follow results that do not come, others ask again and again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

PATHS = (
    "/api/v1/overview",
    "/api/v1/queries",
    "/api/v1/queries/pairs/results?limit=100",
    "/metrics",
    "/api/v1/batches",
)


@dataclass
class Load:
    """What clients got: answers by status, and how many connections were open at once."""

    answers: dict[int, int] = field(default_factory=dict)
    open: int = 0


async def put_under_load(
    port: int, idle: int, busy: int, every: float, seconds: float, ready: asyncio.Event
) -> Load:
    """Keep so many idle and busy clients for some seconds; ``ready`` is set when all are there."""
    load = Load()
    waiting = [asyncio.create_task(_follow(port, load)) for _ in range(idle)]
    while load.open < idle:
        await asyncio.sleep(0.05)
        for task in waiting:
            if task.done():
                task.result()
    asking = [asyncio.create_task(_ask(port, number, every, load)) for number in range(busy)]
    ready.set()
    await asyncio.sleep(seconds)
    for task in (*waiting, *asking):
        task.cancel()
    await asyncio.gather(*waiting, *asking, return_exceptions=True)
    return load


async def _follow(port: int, load: Load) -> None:
    """Follow the results of a query that has none."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET /api/v1/queries/silent/results/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await writer.drain()
        line = await reader.readline()
        if b" 200 " not in line:
            raise RuntimeError(f"a live reader was refused: {line!r}")
        load.open += 1
        while await reader.readline():
            pass
    finally:
        writer.close()


async def _ask(port: int, number: int, every: float, load: Load) -> None:
    """Ask for something every so many seconds, over one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await asyncio.sleep(every * (number % 50) / 50)
    try:
        while True:
            path = PATHS[number % len(PATHS)]
            number += 1
            writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head.split(b" ", 2)[1])
            load.answers[status] = load.answers.get(status, 0) + 1
            length = next(
                int(line.split(b":")[1])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length")
            )
            await reader.readexactly(length)
            await asyncio.sleep(every)
    finally:
        writer.close()
