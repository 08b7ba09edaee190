"""An agent of the OpenAI Agents SDK on a memory; needs the extra `openai-agents`. The second run goes on."""

from agents import Agent, Runner, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message

from memory_engine.integrations.openai_agents import MemoryEngineSession


def main() -> None:
    """Two turns; what the model is given grows by what was said before."""
    set_tracing_disabled(True)
    model = ScriptedModel()  # the place of a model, which this example does without
    agent = Agent(name="assistant", model=model)
    session = MemoryEngineSession("chat", "openai_agents.db", user_id="ann")
    for text in ("My cat is called Tom.", "Do you know my cat?"):
        model.enqueue([assistant_message("I have read it.")])
        result = Runner.run_sync(agent, text, session=session)
        print(f"{text} -> {result.final_output} The model was given {len(model.calls[-1].input)} items.")
    session.close()


if __name__ == "__main__":
    main()
