"""A client that starts the memory as an MCP server; needs the extra `mcp`."""

import asyncio
import os
import sys

from mcp import Client, StdioServerParameters

SERVER = StdioServerParameters(
    command=sys.executable,
    args=["-m", "memory_engine", "--db", "mcp.db", "mcp", "--agent", "coder"],
    env=dict(os.environ),
)


async def main() -> None:
    """Learn something, and ask what is known of a question."""
    async with Client(SERVER) as client:
        print("tools:", ", ".join(tool.name for tool in (await client.list_tools()).tools))
        await client.call_tool("memory_learn", {"key": "jdk", "value": "Java 21"})
        answer = await client.call_tool("memory_context", {"query": "Which Java does the build need?"})
        print(answer.structured_content["text"])


if __name__ == "__main__":
    asyncio.run(main())
