"""A service on an event loop: one JSON line asks, one JSON line answers, many at a time."""

import asyncio
import json

import drut

QUESTIONS = {"urgent": {"type": "noul", "instructions": "Does the customer need help today?"}}
SECONDS = 2.0  # for an answer


async def answer(agent: drut.AsyncAgent, line: bytes) -> dict[str, object]:
    """One answer, or one error that says whether trying again later makes sense."""
    try:
        with drut.deadline(SECONDS):
            result = await agent.predict(json.loads(line), QUESTIONS)
        return {"answers": result["answers"]}
    except (drut.errors.OverloadedError, drut.errors.DeadlineExceededError) as error:
        return {"error": str(error), "retry": True}
    except ValueError as error:
        return {"error": str(error), "retry": False}


async def main() -> None:
    """Serve on a free port, be a few clients of it, and stop."""
    async with drut.AsyncAgent(drut.load("starter"), max_calls=32) as agent:

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            async for line in reader:
                writer.write(json.dumps(await answer(agent, line)).encode() + b"\n")
                await writer.drain()
            writer.close()

        async def ask(state: str) -> str:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(json.dumps(state).encode() + b"\n")
            writer.write_eof()
            reply = await reader.readline()
            writer.close()
            return reply.decode()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            replies = await asyncio.gather(*(ask(f"Nothing works! Ticket {n}") for n in range(20)))
        print(replies[0].strip())
        print(f"{len(replies)} answers in {agent.statistics()['passes']} passes")


if __name__ == "__main__":
    asyncio.run(main())
