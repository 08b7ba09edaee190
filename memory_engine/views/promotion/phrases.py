"""The phrases by which a snippet shows its kind, in several languages.

They are signs, not proofs: a model can be put in place of any of the scorers that read them.
"""

from memory_engine.views.promotion.wording import Phrases

GENERAL = (
    Phrases(
        kind="holds in general",
        weight=0.6,
        phrases="""
        always | never | usually | typically | generally | in general | as a rule | rule of thumb | by default
        normally
        whenever | every time | each time | any time | consistently | regularly | routinely | recurring | tend to
        tends to
        every day | every week | every month | every quarter | every year | every morning | every evening | every night
        every weekend | every monday | every tuesday | every wednesday | every thursday | every friday | every saturday
        every sunday | annually | seasonal* | without exception
        immer | niemals | stets | jedes mal | meistens | meist | in der regel | grundsätzlich | normalerweise
        gewöhnlich | regelmäßig | üblicherweise | jeden tag | jede woche | jeden monat | jedes jahr | jeden montag
        jeden sonntag | täglich | wöchentlich | monatlich | saisonal*
        toujours | jamais | d'habitude | en général | généralement | habituellement | chaque fois | chaque jour
        chaque semaine | chaque mois | chaque année | chaque dimanche | par défaut | régulièrement | saisonni*
        siempre | nunca | normalmente | por lo general | generalmente | habitualmente | cada vez | cada día
        cada semana
        cada mes | cada año | cada domingo | todos los días | por defecto | suele | suelen | estacional*
        sempre | geralmente | normalmente | toda vez | todos os dias | todo domingo | costuma | costumam | por padrão
        di solito | generalmente | ogni volta | ogni giorno | ogni settimana | ogni mese | ogni domenica
        altijd | nooit | meestal | doorgaans | elke keer | elke dag | elke week | elke maand | elke zondag | standaard
        всегда | никогда | обычно | как правило | каждый раз | каждый день | каждую неделю | каждый месяц | регулярно
        总是 | 總是 | 通常 | 一般来说 | 一般來說 | 每次 | 每当 | 每天 | 每周 | 每週 | 每月 | 每年 | 从不 | 永远
        いつも | 必ず | 常に | 通常 | 一般に | 毎日 | 毎週 | 毎月 | 毎年 | 毎回 | 決して | たびに
        항상 | 보통 | 매일 | 매주 | 매월 | 일반적으로
        """,
    ),
    Phrases(
        kind="says what ought to be",
        weight=0.55,
        phrases="""
        must | must not | should | shouldn't | ought to | has to be | have to be | make sure | ensure | avoid
        remember to
        be sure to | best practice | prefer | preferred | recommended | use only | only use | is required
        are required
        it is important
        muss | müssen | soll | sollte | sollten | darf nicht | vermeide | vermeiden | beachte | bevorzugt | empfohlen
        doit | doivent | il faut | devrait | devraient | éviter | évitez | préférer | recommandé
        debe | deben | debería | deberían | hay que | evitar | preferir | recomendado
        deve | devem | deveria | é preciso | preferir | devono | dovrebbe | bisogna | evitare | preferire
        moet | moeten | zou moeten | vermijd | aanbevolen
        должен | должна | должны | следует | нужно | нельзя | избегать | рекомендуется
        应该 | 應該 | 必须 | 必須 | 不要 | 避免 | 建议 | 建議 | 需要注意
        べき | しなければ | してはいけない | 避ける | 推奨 | 해야 | 피해야
        """,
    ),
    Phrases(
        kind="gives a reason",
        weight=0.45,
        phrases="""
        because | because of | due to | caused by | cause* | leads to | lead to | results in | depends on | depend on
        driven by | drives | correlates with | correlate with | explains | is explained by | therefore | the reason is
        the reason why | the reason that | the reason for this
        as a result | so that | which means | implies
        weil | wegen | führt zu | führen zu | hängt ab | verursacht | dadurch | deshalb | daher
        parce que | à cause | entraîne | dépend | provoque
        porque | debido a | causa | provoca | depende de | por eso | por causa | leva a
        perché | dovuto a | a causa | dipende da | porta a
        omdat | vanwege | leidt tot | hangt af | doordat
        потому что | из-за | приводит к | зависит от | вызван*
        因为 | 因為 | 由于 | 由於 | 导致 | 導致 | 取决于 | ため | によって | 原因 | 때문
        """,
    ),
    Phrases(
        kind="holds under a condition",
        weight=0.4,
        phrases="""
        if | when | unless | as long as | only when | only if | in case | for any | for all | provided that
        wenn | falls | sofern | sobald | si | lorsque | quand | cuando | siempre que | quando | wanneer | если
        когда | 如果 | 当 | 只要 | 場合 | とき | 경우
        """,
    ),
    Phrases(
        kind="says what something means",
        weight=0.5,
        phrases="""
        means | is defined as | are defined as | refers to | stands for | is measured in | are measured in
        is stored in
        are stored in | is counted as | are counted as | is known as | in cents | in utc | consists of | equals
        bedeutet | steht für | ist definiert als | gilt als | signifie | désigne | significa | se refiere a | betekent
        означает | 意味着 | 表示 | 是指 | 意味する | 指す | 의미
        """,
    ),
    Phrases(
        kind="speaks of all",
        weight=0.35,
        phrases="""
        all | every | each | everyone | everything | most | mostly | many | both | across | on mondays
        on tuesdays
        on wednesdays | on thursdays | on fridays | on saturdays | on sundays | on weekends | weekends | weekdays
        daily
        weekly | monthly | quarterly | yearly
        alle | jeder | jede | jedes | meisten | sonntags | montags | tous | toutes | chaque | la plupart | todos
        todas
        cada | la mayoría | tutti | tutte | ogni | alle | elke | iedere | все | каждый | каждая | 所有 | 每个 | 全部
        大多数
        すべて | 全て | 各 | 모든
        """,
    ),
)
"""What makes a snippet a principle: wording that reaches beyond the case at hand."""

ONE_OFF = Phrases(
    kind="is of a moment",
    phrases="""
    today|yesterday|tomorrow|tonight|this morning|this afternoon|this time|this week|last week|last month
    |last night
    |has been successfully|have been successfully|was successfully|were successfully
    |just now|right now|currently|at the moment|so far|for now|heute|gestern|morgen früh|gerade|diesmal|momentan
    |aujourd'hui|hier|demain|cette fois|en ce moment|hoy|ayer|mañana|esta vez|ahora mismo|hoje|ontem|amanhã
    |desta vez
    |oggi|ieri|domani|questa volta|vandaag|gisteren|deze keer|сегодня|вчера|завтра|сейчас|今天|昨天|明天|这次|刚才
    |目前
    |今日|昨日|明日|今回|오늘|어제
    """,
)
"""Wording that ties a snippet to one moment."""

TALK = Phrases(
    kind="is said to somebody",
    phrases="""
    let me know|feel free|don't hesitate|reach out whenever|reach out if|please confirm|please provide|please let
    |please tell|please specify|please share|take your time|happy to help|glad to help|happy to assist
    |need further assistance|need any further|need any more|need anything else|have any questions
    |have any more questions|i'll|i will|i can|i could|i recommend|i'd recommend|i'm unable|i am unable|i cannot|i can't
    |i apologize|i'm sorry|i understand|thank you for|thanks for
    |means a lot|mean a lot|means so much|mean so much|you never know|must have been|must have felt|must feel
    |sagen sie mir|sag mir|lass mich wissen|lassen sie mich wissen|bitte bestätigen|bitte geben sie
    |ich werde|ich kann|ich empfehle|gern geschehen|zögern sie nicht|n'hésitez pas|dites-moi|dis-moi
    |veuillez|je vais|je peux|no dude en|no dudes en|dígame|dime|por favor confirme|puedo ayudar
    |fique à vontade|posso ajudar|mi faccia sapere|fammi sapere|posso aiutar*|laat het me weten|ik kan|ik zal
    |дайте знать|обращайтесь|请告诉我|请确认|お知らせください
    """,
)
"""Offers, courtesies, guesses, what the speaker is about to do: an answer's frame, and no finding.

"If you need further help, let me know" holds in general and under a condition, and teaches nothing.
"""
UNEXPECTED = (
    Phrases(
        kind="unexpected",
        weight=0.6,
        phrases="""
        surpris* | unexpected* | contrary to | counterintuitive* | counter-intuitive* | against expectations | anomal*
        outlier* | strange* | oddly | weird* | turns out | turned out | it turns out | unlike | unusual* | striking*
        remarkabl* | shocking* | alarming* | suspicious* | inexplicabl* | nobody expected | not what we expected
        mystery
        never before | for the first time | unprecedented | paradox* | puzzl* | suddenly | abrupt*
        überrasch* | unerwartet* | entgegen | auffällig* | seltsam* | merkwürdig* | stellt sich heraus | ungewöhnlich*
        plötzlich | surprenant* | étonnan* | inattendu* | contrairement | bizarre* | inhabituel* | soudain*
        sorprenden* | inesperad* | contrario a | extrañ* | inusual* | resulta que | de repente | surpreendent*
        estranh* | incomum | sorprendent* | inaspettat* | insolit* | improvvis* | verrassend* | onverwacht* | vreemd*
        неожиданн* | удивительн* | странн* | необычн* | оказалось | внезапно | вопреки
        意外 | 没想到 | 沒想到 | 出乎意料 | 奇怪 | 异常 | 異常 | 竟然 | 驚 | 予想外 | 意外に | 突然 | 예상 밖 | 놀랍
        """,
    ),
    Phrases(
        kind="extreme",
        weight=0.45,
        phrases="""
        spike* | surge* | plunge* | plummet* | collapse* | crash* | soar* | skyrocket* | doubled | tripled
        quadrupled | halved
        tenfold | record high | record low | all-time | highest | lowest | largest | smallest | worst | huge
        massive* | extreme*
        dramatic* | drastic* | sharp* | enormous* | vast majority | order of magnitude | times higher | times more
        zero
        einbruch | eingebrochen | explodiert | verdoppelt | halbiert | rekord* | massiv* | drastisch* | extrem*
        effondr* | doublé | drastique* | énorme* | desplom* | récord | enorme*
        dobrou | despenc* | crollat* | raddoppiat* | verdubbeld | gehalveerd | рухнул* | удвоил* | рекорд* | резк*
        暴涨 | 暴跌 | 激增 | 翻倍 | 骤降 | 急増 | 急減 | 急落 | 倍増 | 過去最高 | 最高 | 最低 | 급증 | 급감
        """,
    ),
    Phrases(
        kind="contrast",
        weight=0.25,
        phrases="""
        but | however | although | though | despite | even though | yet | whereas | instead of | rather than | only
        except
        aber | jedoch | obwohl | trotz | hingegen | sondern | nur | mais | pourtant | malgré | cependant | sauf | pero
        aunque
        sin embargo | a pesar | salvo | mas | porém | apesar | però | ma | tuttavia | nonostante | maar | echter
        ondanks
        но | однако | хотя | несмотря | лишь | 但是 | 然而 | 虽然 | 尽管 | 却 | しかし | だが | にもかかわらず | 하지만
        """,
    ),
)
"""What makes a snippet a surprise: it says that something was not as one would think."""

LASTING = Phrases(
    kind="says how somebody likes it",
    weight=0.55,
    phrases="""
    user prefers | user likes | user dislikes | user hates | user would rather | user expects | user insists
    user always
    user never | user usually | user's preference | user does not like | user doesn't like | user does not want
    user doesn't want | i prefer | i like | i dislike | i hate | i'd rather | i would rather | i always | i never
    i usually | i don't like | i do not like | my preference | my preferred
    benutzer bevorzugt | nutzer bevorzugt | nutzerin bevorzugt | nutzer mag | nutzerin mag | ich bevorzuge | ich mag
    mir lieber | utilisateur préfère | utilisatrice préfère | utilisateur aime | utilisatrice aime | je préfère
    j'aime
    usuario prefiere | usuaria prefiere | al usuario le gusta | prefiero | me gusta | usuário prefere | usuário gosta
    prefiro | eu gosto | utente preferisce | preferisco | mi piace | gebruiker heeft liever | gebruiker houdt van
    ik heb liever | ik houd van | пользователь предпочитает | пользователь любит | я предпочитаю | мне нравится
    用户喜欢 | 用户偏好 | 用戶喜歡 | 使用者偏好 | 我喜欢 | 我偏好 | ユーザーは好 | ユーザーの好み | 私は好 | 私の好み
    사용자는 선호 | 저는 선호
    """,
)
"""A lasting taste of one person: of one user or by that user, never of users at large."""

ASKING = Phrases(
    kind="says what somebody wants",
    phrases="""
    user wants | user would like | user needs | user asked | user works | user is a | user is an | user speaks
    i want | i'd like | i would like | i need | i don't want | i do not want | i expect | for me | show me | give me
    send me | tell me | call me | write me | answer me | ask me | remind me | notify me
    benutzer möchte | nutzer möchte | nutzerin möchte | nutzer will | nutzerin will | ich möchte | ich will
    ich hätte gern | zeig mir | zeige mir | gib mir | schick mir
    utilisateur veut | utilisatrice veut | utilisateur souhaite | je veux | je voudrais | je souhaite | montre-moi
    montrez-moi | donne-moi | donnez-moi | usuario quiere | usuaria quiere | quiero | me gustaría | muéstrame
    muéstreme | dame | usuário quer | eu quero | mostre-me | utente vuole | voglio | vorrei | mostrami
    gebruiker wil | ik wil | toon me | laat me | пользователь хочет | я хочу | показывай мне
    your account | your order | your profile | your booking | your reservation | your membership | your subscription
    your card | your payment | your refund | your ticket | your flight | your trip | your address | your balance
    dein konto | ihr konto | deine bestellung | ihre bestellung | deine buchung | ihre buchung | votre compte
    votre commande | votre réservation | tu cuenta | su cuenta | tu pedido | su pedido | tu reserva | su reserva
    用户希望 | 用户想 | 用戶希望 | 我希望 | 我想要 | 给我看 | ユーザーは希望 | 見せて
    """,
)
"""A wish of one person, or what is theirs, told to them: it promotes nothing, but where it goes it says."""

AT_LARGE = Phrases(
    kind="speaks of users at large",
    phrases="a user | any user | every user | each user | the average user | no user | our user",
)
"""A user who stands for all of them."""
