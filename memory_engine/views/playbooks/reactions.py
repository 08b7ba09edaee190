"""What a person's next message says about the flow before it: it was right, it was wrong, or on to something else.

By wording, in several languages, with the reason. A judge of one's own may take its place.
"""

from typing import Literal, Protocol

import msgspec

from memory_engine.core.lazy import regex
from memory_engine.views.promotion.wording import (
    IS_UNSPACED,
    WORD,
    Phrases,
    evidence,
    folded,
    same_text,
    says_the_same,
)

ReactionKind = Literal["correction", "satisfaction", "request", "unclear"]

CORRECTION_MIN = 0.5
"""From this strength on the signs of a correction decide, whatever else the message says."""
REQUEST_WORDS_MIN = 2
OPENERS = " ,.!-–—\"'«“¡¿"
REQUEST_SIGNS_MIN = 4
"""In scripts without spaces."""


class Reaction(msgspec.Struct, frozen=True):
    """What a message says about what came before it, and why.

    It is a `correction` (or a complaint), it shows `satisfaction`, it goes on to another `request`, or it is
    `unclear`.
    """

    kind: ReactionKind
    reason: str


class ReactionJudge(Protocol):
    """Reads a person's message for what it says about a flow that just completed."""

    async def judge(self, message: str, user_query: str) -> Reaction:
        """What `message` says about the flow that answered `user_query`."""
        ...


CORRECTIONS = (
    Phrases(
        kind="says that it is wrong",
        weight=0.7,
        phrases="""
        wrong | incorrect | not right | isn't right | not correct | that's not | that is not | thats not | this is not
        this isn't | that isn't | not what i | not quite what | isn't what i | doesn't look right | does not look right
        doesn't work | does not work | didn't work | did not work | not working | doesn't help | not helpful | useless
        you forgot | you missed | you misunderstood | you ignored | you didn't | you did not | you got it wrong
        still wrong | still not | still missing | nonsense | terrible | i meant | i said | i asked for | i asked you
        should have been | should have used | supposed to be | undo | revert | roll back | disappointed | 👎
        must be a mistake | must be an error | can't be right | cannot be right | makes no sense | doesn't make sense
        does not make sense | are you sure | none of these | none of those | none of them | neither of these
        neither of those | neither of them
        falsch | stimmt nicht | nicht richtig | nicht korrekt | nicht das was | nicht was ich | so nicht | ich meinte
        kann nicht stimmen | bist du sicher | sind sie sicher | keine davon | keiner davon | keines davon
        du hast vergessen | sie haben vergessen | funktioniert nicht | geht nicht | hilft nicht
        pas ça | pas ca | ce n'est pas | c'est faux | incorrect | faux | pas correct | pas bon | je parlais
        tu as oublié | vous avez oublié | ne marche pas | ne fonctionne pas
        incorrecto | incorrecta | está mal | eso no | no es lo que | no es correcto | equivocado | quise decir
        olvidaste | no funciona | errado | errada | não é isso | não está certo | incorreto | esqueceu
        não funciona | sbagliato | sbagliata | non è quello | non è corretto | non va bene | intendevo
        non funziona | verkeerd | niet goed | klopt niet | dat is niet | ik bedoelde | werkt niet
        неправильно | неверно | не то | не так | я имел в виду | я просил | не работает
        错了 | 不对 | 不對 | 不是这 | 不是這 | 不正确 | 弄错 | 我要的是 | 我说的是 | 我的意思 | 没有用 | 有问题
        違う | 違い | ちがう | 間違 | そうじゃな | ではなく | じゃなくて | 正しくない | 틀렸 | 아니라 | 그게 아니
        """,
    ),
    Phrases(
        kind="asks for it another way",
        weight=0.5,
        phrases="""
        instead | redo | try again | do it again | once more | start over | fix that | fix this | fix it | correct that
        correct this | correct it | rather than | not that | change it to | change that to | check again
        check it again | check that again | look again | rather not | prefer not | nochmal | noch einmal
        stattdessen | korrigier* | plutôt | à la place | recommence* | encore une fois | corrige* | en vez de
        en su lugar
        otra vez | de nuevo | corrig* | em vez | de novo | refaça | invece | di nuovo | rifai | in plaats daarvan
        opnieuw
        вместо | ещё раз | еще раз | заново | исправь* | исправьте | переделай | 重新 | 再试 | 再來 | 改成 | やり直
        もう一度
        代わりに | 다시
        """,
    ),
    Phrases(
        kind="turns back",
        weight=0.35,
        phrases="""
        actually | again | but | wait | hmm | not | aber | doch | eigentlich | moment | mais | en fait | pero
        en realidad
        mas | na verdade | però | in realtà | maar | eigenlijk | но | вообще-то | 但是 | 等等 | でも | けど
        """,
    ),
)
OPENING_NO = Phrases(
    kind="opens with a no",
    phrases="""
    no|nope|nah|non|nein|nee|não|nao|нет|wrong|stop|不|不是|不对|いいえ|いや|違|아니
    """,
)
HARMLESS_NO = Phrases(
    kind="denies nothing",
    phrases="""
    no problem|no worries|no rush|no need|no thanks|no thank you|no questions|no more questions|no further questions
    |no doubt|not bad|no changes|kein problem|keine ursache|pas de problème|pas mal|sin problema
    |no hay problema|nessun problema|sem problema|geen probleem|нет проблем|不错|不客气|不用了|没问题|沒問題
    |not only|why not|if not|whether or not|or not|no idea
    |if that's not|if that is not|if that isn't|if this isn't|if this is not|if it's not|if it is not|if it isn't
    """,
)
NOTHING_MORE = Phrases(
    kind="wants nothing more",
    phrases="""
    that's all | that is all | that'll be all | that will be all | that's everything | that is everything | that's it
    thanks | thank you | all good | all set | all done | i'm good | i am good | i'm fine | i'm all set | we're good
    nothing else | nothing more | danke | vielen dank | das war alles | das ist alles | das war's | alles gut
    merci | c'est tout | c'est bon | ça ira | gracias | eso es todo | nada más | está bien | obrigado | obrigada
    é tudo | só isso | é só isso | grazie | è tutto | basta così | bedankt | dank je | dank u | dat is alles
    dat was alles | спасибо | это все | это всё | всё хорошо | 谢谢 | 謝謝 | 没有了 | 大丈夫 | ありがとう | 감사
    """,
)
"""What follows a no that answers "anything else?"."""
RELATIVE = regex(
    r"(?<!\w)(?:an?|any|anything|the|one|some|something) (?:[\w-]+ ){0,3}?"
    r"that (?:isn't|is not)(?! (?:right|correct|what))"
)
"""Names a thing by what it is not ("a format that isn't a table") and denies nothing."""
CONCESSION = regex(
    r"(?<!\w)(?:i (?:\w+ )?(?:understand|appreciate|see|get)|verstehe|je comprends|entiendo|entendo|capisco|begrijp"
    r"|понимаю)(?!\w)[^.!?]{0,200}?(?<!\w)(?:but|aber|mais|pero|mas|ma|però|maar|но)(?!\w)"
)
"""Grants the answer and asks for another all the same ("I understand, but …")."""
SATISFACTION = Phrases(
    kind="says that it is good",
    weight=1.0,
    phrases="""
    thanks | thank you | thx | great | perfect | awesome | excellent | amazing | brilliant | wonderful | nice | exactly
    that's it | that's right | that is right | that's correct | that's all i | that's all for
    that's everything | all set | well done | good job | nice work | love it | looks good
    works great | works now | very helpful | that helped | spot on | just what i needed | 👍 | ❤ | 🎉 | 🙏 | 💯
    danke* | super | perfekt | genau | prima | sehr gut | wunderbar | klasse | stimmt
    merci | parfait | génial | super | très bien | excellent | exactement
    gracias | perfecto | excelente | genial | muy bien | exacto | obrigad* | perfeito | ótimo | muito bom
    grazie | perfetto | ottimo | esatto | benissimo | bedankt | dank je | perfect | prima | geweldig
    спасибо | отлично | прекрасно | супер | точно | верно | 谢谢 | 謝謝 | 太好了 | 完美 | 很好 | 不错 | 正是
    ありがとう | 完璧 | 素晴らしい | 助かり | 감사 | 완벽 | 좋아요
    """,
)


class WordingJudge:
    """Judges by signs. A correction outweighs thanks ("thanks, but that's wrong"); what says too little is unclear."""

    async def judge(self, message: str, user_query: str) -> Reaction:
        """What the message says about what came before it."""
        text = folded(message)
        plain = RELATIVE.sub(" ", HARMLESS_NO.pattern.sub(" ", text))
        signs = evidence(plain, CORRECTIONS)
        opening = _opening_no(plain.lstrip(OPENERS))
        if opening:
            return Reaction("correction", f"it opens with '{opening}'")
        if signs.strength >= CORRECTION_MIN:
            return Reaction("correction", str(signs))
        concession = CONCESSION.search(plain)
        if concession:
            return Reaction("correction", f"it grants the answer and asks for another: '{concession.group()[:40]}'")
        if same_text(message) and says_the_same(message, user_query):
            return Reaction("correction", "it asks the same again")
        content = SATISFACTION.found_in(text)
        if content:
            return Reaction("satisfaction", f"it says '{content[0]}'")
        if _says_enough(text):
            return Reaction("request", "it goes on to another request, without a correction")
        return Reaction("unclear", "it says too little")


def _opening_no(text: str) -> str:
    """The denial that a text begins with, if it denies what came before."""
    opening = OPENING_NO.pattern.match(text)
    if opening is None:
        return ""
    rest = text[opening.end() :]
    if rest.startswith("-"):  # "non-paying" denies nothing
        return ""
    return "" if NOTHING_MORE.pattern.match(rest.lstrip(OPENERS)) else opening.group()


def _says_enough(text: str) -> bool:
    words = WORD.findall(text)
    return len(words) >= REQUEST_WORDS_MIN or any(
        IS_UNSPACED.match(word) and len(word) >= REQUEST_SIGNS_MIN for word in words
    )
