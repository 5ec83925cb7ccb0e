"""Word lists: English words no other language here shares, and common words of other languages.

They back up the identifier on short lines and stand in for it where it is not installed. Words are
lower case and compared without accents.
"""

import unicodedata
from typing import Final

_UNDECOMPOSED: Final = str.maketrans(
    {
        "\u0131": "i",
        "ł": "l",
        "đ": "d",
        "ð": "d",
        "ø": "o",
        "æ": "ae",
        "œ": "oe",
        "ß": "ss",
        "ə": "e",
    }
)


def fold(word: str) -> str:
    """The lower-case word without accents."""
    if word.isascii():
        return word
    decomposed = unicodedata.normalize("NFD", word.translate(_UNDECOMPOSED))
    return "".join(mark for mark in decomposed if not unicodedata.combining(mark))


# Left out on purpose: words spelled alike elsewhere (in, is, was, die, man, help, order, account).
_ENGLISH: Final = """
the and that this these those with what when where which who whom whose why how have having were
being does did doing done would should could cannot you your yours yourself she him our ours their
theirs they there from because about after before again only just already please thanks thank want
wants wanted needs needed know knows knew think thought get gets getting tell told says saw look
looks looking looked working works worked try tried trying every each other another never always
until while during through between without within down first next today tomorrow yesterday month
months year years day days money bought buy buying paid paying payment charged charges refund
refunds refunded ordered delivery delivered shipping shipped arrived arrive broken damaged missing
wrong received receive cancel cancelled canceled cancelling subscription address invoice invoices
customer customers anyone someone everyone everything nothing something anything nobody very much
many than now really good great better wait waiting waited called change changed changing crash
crashes crashed crashing used using feel went came goes going took take taken taking twice whole
hour hours yes both able unable apply asked ask asking believe check checked checking choose either
else enough ever expect expected explain find found keep keeps keeping kept least leave left less
little longer lost might near off often own quickly rather replace replaced replacement reply
request requested right show shows showed since signed started stopped stuck such talk though
together towards turn understand upset wish worse write wrote yet child opened closed close choices
allowed required selected available people price prices dollars pounds bill billing delayed late
doesn't don't didn't can't won't isn't wasn't weren't haven't hasn't couldn't wouldn't shouldn't
aren't i'm i've i'd i'll it's that's what's where's there's you're you've they're we're we've let's
doesnt dont didnt cant isnt wasnt ive
"""

# English words other languages have too: they support other evidence and are none by themselves.
_SHARED: Final = """
a i in is it of to my me we us be by on at an as or so no do go he his her was will for has had are
all one am over order out up but can some any more most new old here how not need still help sorry
hello hi who make made give come work send sent item items error full open account email app
website under home day time back get got like
"""

_OTHERS: Final[dict[str, str]] = {
    "af": "nie ek het hierdie asseblief dankie baie nog ons jou vir wat jy sy kan hulle",
    "az": "və bir üçün deyil salam təşəkkür mənim necə harada mən bu çox",
    "bn": "ami amar apnar kothay keno koro korte hoyni paini ki dhonnobad taka",
    "ca": "els amb però gràcies hola això meu meva vull aquest què quan com està",
    "cs": "je že není prosím děkuji můj moje jak kde ale nebo jsem dobrý mám jsou ještě mi jste",
    "cy": "yn ddim mae wedi diolch beth sut ble yr fy nid bore dw",
    "da": "og ikke jeg er på har hvor hvad mit tak vil kan hej nogen mig hvornår",
    "de": "und nicht ist das ein eine ich mein meine der mit von für auf wie haben habe wird wurde "
    "noch auch aber bitte danke hallo guten kann sie mir mich kein keine oder wenn warum ihre wo",
    "eo": "kaj estas mia mi dankon saluton kie kiam bonvolu vi",
    "es": "el que los las una por para con está hola gracias pero cómo dónde quiero muy buenos "
    "días cuándo mi del necesito aún todavía buenas",
    "et": "ja ei minu aga palun tere aitäh kuid mul kas oma kus miks veel",
    "eu": "da ez nire kaixo eskerrik asko dut dago nahi",
    "fi": "ja ei minun mutta olen että tämä mikä missä vielä hei kiitos ole onko voi haluan",
    "fr": "le la les des une est que ne pas je mon avec dans bonjour merci où quand vous nous "
    "c'est j'ai n'est qui sont cette mes votre",
    "ga": "tá níl agus mo raibh maith agat conas cá dia",
    "gl": "unha pero grazas ola meu onde quero moi",
    "hi": "hai nahi mera mujhe kya kab kaise aap ki ke nahin abhi tak mere kripya",
    "hr": "je nije molim hvala moj moje kako gdje ali ili nisam nema gde mi dobar kada još",
    "hu": "és nem az egy hogy van kérem köszönöm hol még ez szia vagyok nincs mikor miért",
    "id": "yang tidak saya ini itu dengan untuk ada belum sudah terima kasih tolong mohon "
    "bagaimana apa kapan mana halo",
    "is": "og ekki ég það minn mín takk halló hvar hvernig hvenær",
    "it": "il che di è un una sono mio mia grazie ciao buongiorno vorrei questo dove quando "
    "della nel ho buonasera perché ancora",
    "lt": "ir yra nėra mano prašau ačiū kaip kur labas nuo dar kada",
    "lv": "un ir nav mans lūdzu paldies kas labdien kur vēl kad mana",
    "mt": "mhux grazzi tiegħi għandi nixtieq fejn jekk jogħġbok",
    "nl": "het een niet ik mijn maar voor ook nog zijn dit geen naar wat waar wordt bij heb "
    "heeft graag bedankt goedendag jullie deze worden alstublieft wanneer",
    "no": "og ikke jeg det er på har hvor hva mitt takk vil kan hei noen meg når",
    "pl": "nie jest się że na proszę dziękuję mój moja mnie jak gdzie ale czy dla jestem dzień "
    "dobry cześć kiedy jeszcze",
    "pt": "não uma que para com meu minha obrigado obrigada olá mas está onde quero muito bom "
    "dia você eu ainda quando",
    "ro": "și nu este un cum unde mea meu vă mulțumesc pentru sunt bună când mi încă",
    "sk": "je sa nie prosím ďakujem môj moje ako kde ale alebo som dobrý mám sú ešte mi",
    "sl": "je ni prosim hvala moj moje kako kje ampak ali sem nisem še kdaj",
    "sq": "nuk është dhe një për të që faleminderit ku ime kur ju lutem",
    "sv": "och inte det jag är att som på har hej tack vill mitt från kan hur när var vad",
    "sw": "na yangu hapana asante tafadhali habari wangu kwa hii naomba bado sana",
    "tl": "ang ng mga ako ko salamat kumusta paano saan ito aking",
    "tr": "ve bir bu için değil ne var yok merhaba teşekkürler lütfen benim nasil nerede çok "
    "ama hâlâ neden",
    "vi": "không tôi của và có được cho xin chào vậy nhưng",
}

ENGLISH_WORDS: Final = frozenset(_ENGLISH.split())
"""Words that are evidence of English."""

SHARED_WORDS: Final = frozenset(_SHARED.split()) - ENGLISH_WORDS
"""English words that may as well be of another language."""


def _index() -> dict[str, tuple[str, ...]]:
    index: dict[str, tuple[str, ...]] = {}
    for language, text in _OTHERS.items():
        for word in {fold(word) for word in text.split()} - ENGLISH_WORDS - SHARED_WORDS:
            index[word] = (*index.get(word, ()), language)
    return index


LANGUAGES_OF_WORD: Final = _index()
"""Word without accents to the languages, other than English, that use it."""
