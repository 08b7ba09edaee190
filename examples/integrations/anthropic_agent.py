"""Claude's memory tool on a memory; needs the extra `anthropic`.

With ANTHROPIC_API_KEY set, Claude makes the calls; without, this script makes those that Claude would make.
"""

import os

import anthropic

from memory_engine.integrations.anthropic import MemoryTool

CALLS = (
    {"command": "view", "path": "/memories"},
    {"command": "create", "path": "/memories/ann.md", "file_text": "Ann likes tea.\n"},
    {"command": "str_replace", "path": "/memories/ann.md", "old_str": "tea", "new_str": "coffee"},
    {"command": "view", "path": "/memories/ann.md"},
)


def main() -> None:
    """Let Claude remember, or play Claude."""
    with MemoryTool("claude.db", agent_id="claude") as memory:
        if "ANTHROPIC_API_KEY" not in os.environ:
            for call in CALLS:
                print(f"{call['command']}: {memory.call(call)}")
            return
        runner = anthropic.Anthropic().beta.messages.tool_runner(
            model="claude-sonnet-5-5",
            max_tokens=1024,
            tools=[memory],
            messages=[{"role": "user", "content": "Remember that I like coffee, and tell me what you know of me."}],
        )
        print(runner.until_done().content)


if __name__ == "__main__":
    main()
