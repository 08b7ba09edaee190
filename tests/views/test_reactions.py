"""What a person's next message says about the flow before it."""

from collections.abc import Sequence

import pytest

from memory_engine.views.playbooks.reactions import ReactionKind, WordingJudge


@pytest.mark.parametrize(
    ("kind", "messages"),
    [
        (
            "correction",
            (
                "No, that's wrong", "Use net revenue instead", "Actually, I meant gross revenue", "try again", "Nope.",
                "Thanks, but that's not right", "you forgot the discounts", "still missing France", "👎",
                "Das ist falsch", "nein, das stimmt nicht", "ce n'est pas ça", "Incorrecto",
                "нет, не то", "不对", "違います",
                "There must be a mistake", "That can't be right", "Can you check again?", "Are you sure?",
                "I'd rather not wait for that", "None of those suit me", "This makes no sense", "No, I don't want that",
                "I understand, but I need it by week", "I really appreciate it, but it was to be in euros",
                "Verstehe, aber ich brauche Wochen", "No, thanks, that's wrong", "No, that's all wrong",
                "The total that is not right is in May",
            ),
        ),
        (
            "satisfaction",
            (
                "thanks!", "Perfect, that's it", "great, now show me churn", "danke dir", "merci", "谢谢", "👍",
                "Not bad, thanks", "No, that's all. Thanks!", "No, thank you", "Nope, all set", "That's all for now",
                "No. That's everything, thanks", "Nein, danke", "Non, merci", "No, gracias", "Нет, спасибо",
                "No, nothing else, thanks", "No, I'm good", "Thanks, I'll pass it on to the board", "太好了,谢谢!",
            ),
        ),
        (
            "request",
            (
                "Now show churn for Germany", "What about EMEA?", "no problem, now plot it", "Show me the error rate",
                "帮我看一下流失率", "Can you also show March?", "Et pour mai ?", "Und wie sieht es im Mai aus?",
                "Ahora muéstrame abril",
            ),
        ),
        (
            "doubt",
            (
                "Not great", "great, but the numbers are off", "Great, now it's broken", "nicht perfekt", "Na toll",
                "Oh great", "Well, that's just perfect...", "Nice try 🙄", "Merci, il manque mai", "Genial, y mayo?",
                "It would be great to see weeks", "Great weather today", "Thanks in advance", "Mi jefe es genial",
                "thanks anyway", "Thanks. Where is May?", "Excellent?", '"great"', "« Parfait »",
                "lol great", "Thanks, I'll do it myself",
                "Non-paying users by country?", "Actually, can you also show March?", "Why not plot by week?",
                "Now in a format that isn't a table, please", "If that's not in the data, show May",
                "I see it now. But first plot churn", "No idea, try Spain", "Show me why it is empty",
                "That's all right. I wonder what caused it",
            ),
        ),
        ("unclear", ("", "ok", "hm", "?", "\x00", " \n")),
    ],
)  # fmt: skip
async def test_S6_messages_are_read(kind: ReactionKind, messages: Sequence[str]) -> None:
    """Corrections, thanks, requests, doubts and what says too little, in several languages; each with a reason."""
    reactions = [await WordingJudge().judge(message, "Show revenue by month") for message in messages]
    assert [kind] * len(messages) == [reaction.kind for reaction in reactions]
    assert all(reaction.reason for reaction in reactions)
