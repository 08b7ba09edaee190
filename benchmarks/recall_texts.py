"""Talk, questions and documents with the words of real ones: a few common words everywhere, many rare ones.

Only the standard library: the process that searches a file for the first time imports this too.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import accumulate

from memory_engine import Event, LlmTextResponse, UserMessage

FUNCTION_WORDS = """
the to and i a of you it that in is we for was on my have do with so but this be are not at me they just what your
about like all if there would can how as when will up out from or think really had got one has been she he her his
know go then no yeah some them by an time good more see could new well who other make did want too over because
""".split()
FUNCTION_SHARE = 0.55
"""Of the words of a conversation."""
QUESTIONS = ("what", "when did", "who", "where is", "how many", "why was", "which", "do you remember")
SPEAKERS = ("Ann", "Bo")
_ONSETS = "b bl br c ch cl d dr f fl g gr h j k l m n p pl pr qu r s sh sl st t tr v w".split()
_VOWELS = "a e i o u ai ea ou".split()
_CODAS = ("", "", "n", "r", "l", "s", "t", "nd", "rk", "m")
VOCABULARY = 30_000


def _vocabulary(count: int) -> list[str]:
    """Words that can be spoken, none twice, the frequent ones first and shorter."""
    chance = random.Random(11)
    found: dict[str, None] = {}
    while len(found) < count:
        syllables = 2 if len(found) < count // 20 else chance.choice((2, 3, 3, 4))
        parts = (chance.choice(_ONSETS) + chance.choice(_VOWELS) + chance.choice(_CODAS) for _ in range(syllables))
        found["".join(parts)] = None
    return list(found)


class Talk:
    """The words of two people to each other: the same for the same seed.

    The words' frequencies fall as 1/rank (Zipf), those of function words too; a sentence has 8 to 60 words.
    """

    def __init__(self, seed: int = 1) -> None:
        self._chance = random.Random(seed)
        self._words = _vocabulary(VOCABULARY)
        self._weights = list(accumulate(1 / (rank + 8) for rank in range(VOCABULARY)))
        self._common = list(accumulate(1 / (rank + 4) for rank in range(len(FUNCTION_WORDS))))

    def sentence(self, words: int = 0) -> str:
        """A sentence of `words` words; 0: of 8 to 60, the short ones more often."""
        count = words or int(8 * (60 / 8) ** self._chance.random())
        text = " ".join(self._word() for _ in range(count))
        return f"{text[0].upper()}{text[1:]}{self._chance.choice('..!?')}"

    def text(self, chars: int) -> str:
        """Sentences of `chars` characters together."""
        sentences: list[str] = []
        size = 0
        while size < chars:
            sentences.append(self.sentence())
            size += len(sentences[-1]) + 1
        return " ".join(sentences)[:chars]

    def messages(self, count: int) -> Iterator[UserMessage]:
        """So many turns of two people."""
        for number in range(count):
            yield UserMessage(content=self.sentence(), name=SPEAKERS[number % 2])

    def events(self, chars: int, count: int) -> list[Event]:
        """Turns of a user and an assistant, each of a number of characters."""
        kinds = (UserMessage, LlmTextResponse)
        return [kinds[number % 2](content=self.text(chars)) for number in range(count)]

    def question(self, about: str) -> str:
        """A question of 4 to 12 words of which most are common, two of them from a text."""
        told = [word for word in about.casefold().strip(".!?").split() if word not in FUNCTION_WORDS]
        words = self._chance.choice(QUESTIONS).split()
        picked = self._chance.sample(told, min(len(told), 2)) + self._content(self._chance.randint(0, 2))
        least = max(0, 4 - len(words) - len(picked))
        rest = [self._function() for _ in range(self._chance.randint(least, 12 - len(words) - len(picked)))]
        mixed = picked + rest
        self._chance.shuffle(mixed)
        return " ".join([*words, *mixed]) + "?"

    def document(self, passages: int) -> str:
        """Paragraphs that are split into about a number of passages."""
        return "\n\n".join(self.text(self._chance.randint(500, 780)) for _ in range(passages))

    def _word(self) -> str:
        return self._function() if self._chance.random() < FUNCTION_SHARE else self._content(1)[0]

    def _function(self) -> str:
        return self._chance.choices(FUNCTION_WORDS, cum_weights=self._common)[0]

    def _content(self, count: int) -> list[str]:
        return self._chance.choices(self._words, cum_weights=self._weights, k=count)


def questions(texts: Sequence[str], count: int, seed: int = 2) -> list[str]:
    """So many questions, each about one of the texts."""
    talk = Talk(seed)
    step = max(1, len(texts) // count)
    return [talk.question(texts[number * step % len(texts)]) for number in range(count)]
