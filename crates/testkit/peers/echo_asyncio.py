"""Streams of asyncio, for the matrix of programs.

serve HOST PORT            gives back what it is sent, and ends when the other end does
ask HOST PORT COUNT BYTES  COUNT connections at once, each of which sends BYTES, ends its direction and reads to the end

With UVLOOP in the environment uvloop runs them, which is libuv.
"""
import asyncio
import hashlib
import os
import sys


async def echo(reader, writer):
    while block := await reader.read(65536):
        writer.write(block)
        await writer.drain()
    writer.write_eof()
    writer.close()


async def serve(host, port):
    server = await asyncio.start_server(echo, host, port, backlog=200)
    async with server:
        await server.serve_forever()


async def one(host, port, number, count):
    reader, writer = await asyncio.open_connection(host, port)
    sent = hashlib.sha256(str(number).encode()).digest() * (count // 32 + 1)

    async def send():
        writer.write(sent)
        await writer.drain()
        writer.write_eof()

    sending = asyncio.create_task(send())
    received = await reader.read(-1)
    await sending
    writer.close()
    await writer.wait_closed()
    return received == sent


async def ask(host, port, connections, count):
    same = await asyncio.gather(*(one(host, port, i, count) for i in range(connections)))
    print(sum(same), "of", len(same), "came back")


if "UVLOOP" in os.environ:
    import uvloop
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
role, host, *numbers = sys.argv[1:]
try:
    asyncio.run(serve(host, int(numbers[0])) if role == "serve" else ask(host, *map(int, numbers)))
except OSError as error:
    sys.exit(error.strerror)
