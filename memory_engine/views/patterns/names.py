"""Names of people, companies and products, by their capitals and by what stands beside them.

Words that a redactor knows for no names. Everything else with a capital is taken for one.

A word that is also a given name, a family name or a brand (target, mark, may, grace, shell, orange, express) is not
among them on purpose.
"""

import re
from collections.abc import Collection, Iterator
from itertools import pairwise

import msgspec

from memory_engine.core.lazy import regex
from memory_engine.core.text import STOP_WORDS
from memory_engine.views.patterns.shapes import Span

BUSINESS = frozenset(
    """
    a about above accept according accepts accounting accounts accuracy across active activity actual actually add
    added adding additional address addresses adjust after again against age agents aggregate agree all allow almost
    already also although always amount amounts an analyse analyses analysis analyze and annual another answer answers
    any anyone anything apply approve approved are around arrange as ask asked asking at attach attribute attributes
    audit automate automatic average averages avoid away back backlog bad balance balances banners based basic basket
    baskets card cards batch batches be because become been before begin being below best better between beyond big
    bigger billing bills block book bookings both bounce break breaks bring brings budget budgets bug bugs build bulk
    bundle bundles business but buy buyers buying by calculate call calls campaign campaigns can cancel cancellation
    cancellations cancelled cannot capacity cart carts cases cash catalogue categories category cause causes cents
    chain change changed changes channel channels charge charges chart charts cheap cheaper check checked checking
    checkout checks choose churn claim claims clean clear clicks clients close closed closing code cohort cohorts cold
    collect column columns combine come comes common compare compared complaint complaints complete completed
    compliance compute conditions confirm consider consistent consumers contact contacts contracts control conversion
    conversions convert cost costs could count counts coupon coupons cover create created credit credits currency
    current customer customers cut cycle cycles daily damage dashboard dashboards data database dataset date dates day
    days deadline deadlines deals debt decide decline declines decrease decreases default defaults defects delay
    delayed delays delete deliveries delivery demand deposits despite detail details detect did difference different
    digital direct discount discounts discussion display distribution divide do document documents does doing done
    double doubles down downtime draft drive drives drop drops due duplicate duplicates during dynamic each earlier
    early earnings easy either else email emails employees empty end ends engagement engineers ensure enter entries
    error errors estimate estimates even events ever every everyone everything exact example exchange exchanges
    exclude excluded excluding existing expect expected expenses expensive experience expired explain export exports
    extra fail failed fails failure failures false fast faster features fees few fewer field fields figures files fill
    filter filters finally finance find finding findings fine first fiscal fix fixed flag flows follow for forecast
    forecasts format formats found fraud free frequent from full funnel further future general get getting give given
    goes going good goods gross group groups grow growing growth guests half handle has have having he headcount help
    hence her here high higher highest his historical history hold holidays home hours household how however idle if
    ignore impact import imports improve in inbound include included includes including income increase increases
    indicate individual inform initial input inquiries inside insight insights inspect inspection install instead
    insurance interest internal into inventories inventory invoice invoices is issue issues it item items its jobs
    join joins just keep kept key keys know known labels lack large larger largest last late later latency launch
    launches lead leads leakage learn least leave leaves leaving less let level levels lift like limit limits line
    lines link list lists little load loading loans local locations log logs logistics long longer look lose loss
    losses lost low lower lowest loyalty machine machines mail main maintenance make makes making management managers
    manual many margin margins market marketing markets match maximum mean means measure measures medium meetings
    members merge message messages method metric metrics middle minimum missing mobile model models money monitor
    month monthly months more morning mornings most move much multiple must my near nearly need needs negative net
    never new newsletter newsletters next night nights no nobody none normal not note notes nothing notice notices
    notification notifications now null number numbers of off offer offers office often old older on onboarding once
    one ones online only open opening opens operations opposite option options or order ordering orders organic other
    others our out outages outbound outliers output outside over overall overdue overhead own owners packages
    packaging page pages paid parcels part partial partners parts passwords past patients pay paying payment payments
    payroll peak peaks pending people per percent percentage performance period periods permission phone pick picking
    pickup pipeline place plan plans please plot point points policies policy poor popular positive possible post
    premium preparation present prevent previous price prices pricing priorities priority process processes processing
    procurement product production productivity products profit profitability profits project projects promo promos
    promotion promotions proper provide purchase purchases purchasing put quality quantities quantity quarter
    quarterly quarters queries query question questions quick quickly quota quotas quote quotes rain range rank rare
    rarely rate rates ratings rather raw reach read readers real reason reasons receipts receive received recent
    recently recommend reconcile record records recurring reduce reduced refer referrals refund refunds regardless
    region regional regions register regular reject related release releases remember reminder reminders remove
    removed renewals rent repeat replace replacement replenishment replies reply report reporting reports request
    requests require required research reserve reset resolve response responses rest restaurants restock result
    results retail retailers retention retries return returning returns revenue revenues review reviews right risk
    risks round route routes row rows rule rules run runs safety salaries sale sales same sample samples save savings
    say schedule schedules score scores search season seasonal seasonality seats second see segment segments select
    sell sellers selling send sent separate sequence service services sessions set several share shared she sheet
    shift shifts ship shipment shipments shipping shops short shortage shortages should show shows sign signups
    similar simple since single site sites size sizes skip slow slower small smaller so some someone something
    sometimes soon sort source sources spend spending spikes split spreadsheet staff staffing stage stages start
    starts state statement statements states status stay steps still stock stockouts stocks stop storage store stores
    strategy stronger students subject subscribers subscription subscriptions subtract such sum summaries summarise
    summarize summary suppliers supply support survey surveys switch table tables take takes tariffs task tasks tax
    taxes team teams technicians tell temperature terms test tests text than that the their them then there therefore
    these they thing things this those though three threshold throughput through ticket tickets time times timezone
    timezones tips to today together tomorrow too tools top total totals touch track tracking trade traffic training
    transaction transactions transfer transfers transit transport travel treat trend trends trial trials trigger true
    trust try turnover twice two type types typical typically under unique unit units unless unlike until unusual up
    update updated updates upon upsells urgent us usage use used user users uses using usual usually utilisation
    utilization vacancies validate value values variance vendors verify version versions very via video views visit
    visitors visits volume volumes vouchers wages wait waiting warehouse warehouses warn warning warranties warranty
    was waste watch we weak weather web website websites week weekday weekdays weekend weekends weekly weeks well were
    what whatever when whenever where whereas whether which while who whole wholesale whose why wide window with
    within without word words work workers working worse would write wrong year yearly years yes yesterday yet yield
    you your zero e-commerce follow-up i'm i've i'd i'll it's that's there's we're we've don't doesn't can't won't
    isn't aren't
    """.split()
)
"""Everyday words and words of business that begin sentences, in lower case."""

FUNCTION = frozenset(
    """
    aber alle allen aller als am an auch auf aus bei beim bitte da das dass dem den der des die dies diese dieser
    durch ein eine einem einen einer es für gegen im immer in ist jede jeden jeder jedes kein keine kommt man mehr
    meist meistens mit nach nachdem nicht nie niemals noch nur oder ob ohne pro sehr seit sie sind so über um und
    unter viele vom von vor wann warum was weil wenn wer wie wir wird zu zum zur zwischen à après au aucun aucune
    aussi avant avec ce ces cet cette chaque comme dans depuis des donc du elle elles en entre est et il ils jamais je
    la le les leur leurs lorsque mais même ne nos notre nous on ou où par pas pendant peu plus pour pourquoi presque
    quand que quel quelle quelques qui sans sauf selon ses si son sont sous souvent sur toujours tous tout toute
    toutes très un une vers vos votre vous al algunos antes así aunque cada casi como con cuando cuanto de del desde
    después donde durante el ella ellos en entre es esta estas este estos hay la las lo los más menos mientras muchas
    muchos muy nada ningún nunca otra otro para pero poco por porque primero qué se según ser si siempre sin sobre
    solo sólo son su sus también tan tanto todas todo todos tras un una uno unos y ya ainda antes ao aos após até com
    como da das de depois do dos durante e é ela eles em entre essa esse esta este isso já mais mas menos muito muitos
    na nas não nem no nos nunca o os ou para pela pelo per pois por porque quando quase que se sem sempre ser seu sob
    sobre são também toda todas todo todos um uma al alla allo anche ancora ci che chi come con cosa così da dal dalla
    dei del della delle di dopo dove durante e ed è fra gli il in la le lo ma mai molti molto nel nella nessun non
    ogni per perché più poi poco prima qualche quando quanto quasi quello questa queste questi questo se sempre senza
    si solo sono sotto sul sulla tra tutte tutti tutto un una uno aan alle alleen als altijd bij dan dat de deze die
    dit door een elke en er geen het hoe iedere in is maar meer met na naar niet nog nooit of om onder ook op over per
    sinds te tegen tot uit van veel voor waarom wanneer want wat we wie wij zijn zonder без был были было быть в вас
    весь во все всегда вы где да для до его если есть еще ещё и из или их к каждая каждое каждую каждый как когда
    который кто ли между мы на над надо не никогда нет но о об обычно он она они от очень перед по под после почему
    при раз с самый со так также там то только у уже часто чем через что чтобы эта эти это этот
    """.split()
)
"""Small words of other languages that begin sentences, in lower case."""

COMMON = BUSINESS | FUNCTION
"""A sentence's first word is kept if it is one of these."""

OPENERS = STOP_WORDS | frozenset(
    """
    add answer apply ask avoid buyers call check clients compare contact count customers email every exclude follow
    give handle ignore include inform join keep many never no notify offer orders pay pick put refer refunds remind
    remove report returns revenue route sales see send ship show split suppliers tell treat use users visitors wait
    warn watch
    """.split()
)
"""First words of sentences that belong to no name: of "Ask Anna" the first stays, of "Best Foods" nothing does."""

CALENDAR = frozenset(
    """
    monday tuesday wednesday thursday friday saturday sunday mondays tuesdays wednesdays thursdays fridays saturdays
    sundays january february march april may june july august september october november december montag dienstag
    mittwoch donnerstag freitag samstag sonntag montags dienstags mittwochs donnerstags freitags samstags sonntags
    januar februar märz mai juni juli oktober dezember lundi mardi mercredi jeudi vendredi samedi dimanche lunes
    martes miércoles jueves viernes sábado domingo christmas easter weihnachten ostern
    """.split()
)
"""Names of days and months, in lower case: kept wherever they stand, unless they stand beside a name."""

ACRONYMS = frozenset(
    """
    I A API APIs B2B B2C CAC CEO CFO COGS CPA CPC CPU CRM CSV CTO CTR DAU EBIT EBITDA EDI ERP ETA ETL EU EUR FAQ FIFO
    FTE FX GA4 GB GBP GDP GDPR GMV HR HTML HTTP ID IDs IT JSON KB KPI KPIs LIFO LTV MAU MB MRR ARR NPS NULL OK PDF
    PDFs PM AM PO POS PR Q1 Q2 Q3 Q4 H1 H2 QA RFM RFQ ROAS ROI SaaS SEO SKU SKUs SLA SLAs SMS SQL TV UI UK URL URLs US
    USA USD UTC VAT VIP WIP XLSX XML YoY MoM YTD AI ML UUID MAC IP OR AND NOT DSGVO MwSt TVA IVA
    """.split()
)
"""Short forms of the trade, exactly as they are written: kept wherever they stand."""

GENERIC_PARTS = frozenset(
    """
    account accounts admin agent client clients com company corp customer customers default demo dev employee gmbh
    group guest inc llc ltd main member members net none null org organisation organization owner prod production root
    shop staff staging store team tenant tenants test user users www
    """.split()
)
"""Parts of ids that name nobody: of `user_anna`, only `anna` is looked for by itself."""

PARTICLES = frozenset(
    "de la le les du des del della di da do dos das van der den von zu bin ibn al el of the y e".split()
)
"""Small words inside names: Anna van der Berg, Bank of America."""


_WORD = regex(r"(?<![^\W_])[^\W\d_]++(?:['’.&\-\u2010\u2011][^\W\d_]++(?!\d))*+(?!\d)")
_POSSESSIVE = regex(r"['’]s?$")
_BEFORE_MAX = 24
_BEGINS = regex(
    r"(?:\A|[.!?…:;。！？|]['\"’”)\]»]*\s+|[\n\r]\s*)(?:(?:[-*•–—>]+|\d{1,2}[.)])\s+|['\"‘“(\[«„#*_]+\s?)*\Z"
)
"""What stands before the first word of a sentence, a line, a list's entry."""
_JOINT = regex(r"\s?[&+/\-\u2010-\u2015]?\s?|\.\s?|['’]s?\s")
_TITLED = regex(
    r"(?i)(?<!\w)(?:mr|mrs|mx|miss|dr|prof|ing|herr|herrn|frau|señora?|srta|sra|monsieur|madame|mme|mlle|signora?|sig"
    r"|dhr|mevr|mevrouw|meneer|pani|fru|господин|госпожа|г-н|г-жа)(?:\.\s?|\s)(?P<name>[^\W\d_][\w'’\-]*)"
    r"|(?<!\w)(?:Ms|ms\.)\s?(?P<ms>[^\W\d_][\w'’\-]*)"
    r"|(?<!\w)(?:my name is|ich hei(?:ß|ss)e|je m['’]appelle|me llamo|mi chiamo)\s"
    r"(?P<self>[^\W\d_][\w'’\-]*(?:\s[^\W\d_][\w'’\-]*)?)"
)
_COMPANY = regex(
    r"(?i)(?<![\w&'’\-])(?:(?!(?:a|an|and|at|by|de|der|die|et|for|from|in|la|le|of|our|the|to|und|with|y)\s)"
    r"[^\W\d_][\w&'’\-]*+\s){1,2}(?:gmbh|inc|incorporated|ltd|llc|llp|plc|corp|pty|sarl|s\.a\.r\.l|srl|s\.r\.l"
    r"|s\.p\.a|s\.a|b\.v|n\.v|k\.k|ооо|зао|оао)(?!\w)\.?"
)
_HAN = "\u3400-\u9fff\uf900-\ufaff"
_UNCASED = regex(
    rf"[{_HAN}]{{1,4}}(?:さん|様|さま|氏|くん|先生|小姐|女士|经理|經理|老师|部長|社長|課長|总裁|總裁)"
    r"|[\u30a1-\u30fa\u30fc・]{2,20}(?:さん|様|さま|氏|くん|社長|部長)|[\uac00-\ud7a3]{2,4}\s?(?:씨|님|부장|과장|사장)"
    rf"|(?:株式会社|有限会社)[{_HAN}\u30a1-\u30fa\u30fcA-Za-z・]{{1,12}}|[{_HAN}\u30a1-\u30fa\u30fc]{{2,12}}(?:株式会社|有限公司|公司|集团|集團)"
    r"|(?:السيد|السيدة|الدكتور)\s\w+(?:\s\w+)?"
)
_NO_CAPITALS = regex(
    rf"[\u0590-\u08ff\u0900-\u0dff\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff{_HAN}\uac00-\ud7a3]{{2}}"
)


class _Word(msgspec.Struct, frozen=True):
    """A word, and whether it is taken for a name. One that is kept becomes part of a name beside it."""

    text: str
    start: int
    end: int
    is_name: bool = False
    is_kept: bool = False


class Names(msgspec.Struct, frozen=True):
    """Finds names. `allow` are words that are none, in lower case, beside those that are known."""

    allow: Collection[str] = frozenset()

    def __call__(self, text: str) -> Iterator[Span]:
        """The spans of names: words with capitals but known ones, what follows a title, what a firm's form follows."""
        for match in _TITLED.finditer(text):
            yield next(match.span(group) for group in ("name", "ms", "self") if match[group])
        for pattern in (_COMPANY, _UNCASED):
            yield from (match.span() for match in pattern.finditer(text))
        yield from self._capitals(text)

    def _capitals(self, text: str) -> Iterator[Span]:
        words = [self._read(text, match) for match in _WORD.finditer(text)]
        names = [n for n, word in enumerate(words) if word.is_name]
        taken = set(names)
        for n in names:
            for step in (-1, 1):
                at = n + step
                while 0 <= at < len(words) and words[at].is_kept and _touch(text, words[at - step], words[at]):
                    taken.add(at)
                    at += step
        for n in sorted(taken):
            yield words[n].start, words[n].end
            between = n + 1
            while between < len(words) and between - n <= 2 and words[between].text in PARTICLES:
                between += 1
            if between < len(words) and between in taken and _all_touch(text, words[n : between + 1]):
                yield words[n].start, words[between].end

    def _read(self, text: str, match: re.Match[str]) -> _Word:
        said = match.group()
        core = _POSSESSIVE.sub("", said)
        start, end = match.start(), match.start() + len(core)
        if not any(sign.isupper() or sign.istitle() for sign in core):
            return _Word(said, start, end)
        plain = core.casefold()
        if core in ACRONYMS or plain in self.allow:
            return _Word(said, start, end)
        if plain in CALENDAR and core[1:].islower():
            return _Word(said, start, end, is_kept=True)
        if self._is_common(core) and _begins(text, start):
            return _Word(said, start, end, is_kept=plain in BUSINESS and plain not in OPENERS)
        return _Word(said, start, end, is_name=True)

    def _is_common(self, word: str) -> bool:
        if not (word[1:].islower() or len(word) == 1):
            return False
        plain = word.lower().replace("’", "'")
        return plain in COMMON or all(part in COMMON for part in re.split(r"[\-\u2010\u2011]", plain))


def _begins(text: str, start: int) -> bool:
    before = text[max(0, start - _BEFORE_MAX) : start]
    return _BEGINS.search(before if start <= _BEFORE_MAX else "x" + before) is not None


def _touch(text: str, one: _Word, other: _Word) -> bool:
    first, second = sorted((one, other), key=lambda word: word.start)
    return _JOINT.fullmatch(text, first.end, second.start) is not None


def _all_touch(text: str, words: list[_Word]) -> bool:
    return all(_touch(text, one, other) for one, other in pairwise(words))


def has_no_capitals(text: str) -> bool:
    """Whether part of a text is in a writing without capitals: names in it cannot be told."""
    return _NO_CAPITALS.search(text) is not None
