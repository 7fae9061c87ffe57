"""A TCP proxy that holds answers back.

    late_proxy.py ADDRESS PORT TARGET SECONDS

Each connection to ADDRESS:PORT goes to 127.0.0.1:TARGET. What comes from there is passed on after SECONDS, a
handshake's answers too; requests at once. TLS goes through it as it is.
"""

import asyncio
import sys

PIECE_BYTES = 1 << 16


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float) -> None:
    """Passes each piece on, and the end, so many seconds after it came."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def read() -> None:
        piece = b"first"
        while piece:
            try:
                piece = await reader.read(PIECE_BYTES)
            except OSError:
                piece = b""
            pieces.put_nowait((loop.time() + seconds, piece))

    reading = asyncio.create_task(read())
    try:
        while True:
            due, piece = await pieces.get()
            await asyncio.sleep(due - loop.time())
            if not piece:
                return
            writer.write(piece)
            await writer.drain()
    except OSError:
        return
    finally:
        reading.cancel()
        writer.close()


async def serve(address: str, port: int, target: int, seconds: float) -> None:
    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answers, requests = await asyncio.open_connection("127.0.0.1", target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pass_on(reader, requests, 0), pass_on(answers, writer, seconds))

    server = await asyncio.start_server(connect, address, port)
    print("listens", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    address, port, target, seconds = sys.argv[1:]
    asyncio.run(serve(address, int(port), int(target), float(seconds)))
