"""The commonest function words of a few languages, and their negations.

A help, not a rule: see function_words.py for what happens without them. Words
that bound a time or a choice (before, until, only) are left out on purpose.
"""

from collections.abc import Mapping

FUNCTION_WORDS: Mapping[str, frozenset[str]] = {
    language: frozenset(listed.split())
    for language, listed in {
        "en": """
            a about again all am an and any are as at be because been being both but by can could d did do
            does doing during each few for from further had has have having he her here hers herself him
            himself his how i if in into is it its itself just let ll m me more most my myself now of off on
            once or other our ours ourselves out own re s same she should so some such t than that the their
            theirs them themselves then there these they this those through to too up ve very was we were
            what when where which while who whom why will with would you your yours yourself yourselves""",
        "de": """
            aber als also am an auch auf aus bei beim bin bist da dann das dass dem den denn der des dich
            die dies diese dieser dieses dir doch du durch ein eine einem einen einer eines er es euch für
            hat hatte haben habe hast ich ihm ihn ihr ihre im in ins ist ja jetzt kann mal man mein meine
            mich mir mit noch nun ob oder schon sehr sein seine sich sie sind so um und uns unser unsere vom
            von war waren was weil wenn wer wie wieder wir wird wo zu zum zur""",
        "fr": """
            a ai as au aux avec c ce ces cet cette d dans de des donc du elle elles en es est et eu il ils j
            je l la le les leur leurs lui m ma mais me mes moi mon même n nos notre nous on ont ou où par
            pour qu que qui s sa se ses si son sont sur t ta te tes toi ton tu un une vos votre vous y à ça
            été être""",
        "es": """
            a al algo como con cual cuando de del donde e el ella ellas ellos en entre era es esa ese eso
            esta este esto estos fue ha han hay la las le les lo los me mi mis muy más o para pero por
            porque que quien se ser si sin sobre son su sus también te ti tu tus un una uno unos y ya yo él
            está""",
        "pt": """
            a ao aos as com como da das de do dos e ela elas ele eles em entre era essa esse está eu foi há
            isso já lhe mais mas me meu minha nas nos o os ou para pela pelo por que se sem ser seu sua são
            também te tem um uma você à é""",
        "it": """
            a ad ai al alla alle anche che chi ci come con da dal dalla dei del della delle di e ed era gli
            ha hanno ho i il in io la le lei lo lui ma mi mia mio ne nei nel nella o per più quando quello
            questa questo se sei si sono su sua sul suo ti tra tu un una uno è""",
        "nl": """
            aan al als bij dan dat de deze die dit doen door dus een en er ge had heb hebben heeft het hij
            hoe ik in is je kan maar me meer met mij mijn naar nog nu of om ons ook op te u uit van veel was
            wat we wel wij wordt ze zich zij zijn zo""",
        "ru": """
            а бы был была было были в вам вас во вот все вы где для его ее если есть еще же за и из или им
            их к как когда кто ли меня мне мы на над нас но о об он она они от по при с со так там то ты у
            уже что чтобы это эта этот я""",
        "ar": """
            أن أنا أنت أو إلى إن الى التي الذي ان انا او ثم عن على عند في قد كان كانت كل كما لكن له لها ما
            مع من هذا هذه هو هي و وقد يا""",
    }.items()
}
NEGATIONS = frozenset(
    """
    no not nor never without nicht kein keine keinen nie ohne ne pas non jamais sans nunca ni não nem
    sem niet geen не ни нет без لا لم لن ليس غير
    """.split()
)
"""Never left out: a telegram that loses its negation says the opposite."""
