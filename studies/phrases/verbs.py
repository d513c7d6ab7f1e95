"""The verbs: one row per lexeme and valency.

A row is `German; English; subjects; valency`. German is infinitive, third person singular, past
participle and, if the perfect takes sein, a `*`; a bar in the infinitive separates a separable
prefix. English is base, past, past participle and, if any, a particle. Subjects and objects are
letters of noun classes. Valencies: `none`; `acc`, `dat` with object classes; `both`, a person in
the dative and an accusative object; a preposition with its case, its English and classes; `to`, a
direction; `at`, a place; `put`, an object and a direction; `that` and `if`, a clause.
"""

from __future__ import annotations

from dataclasses import dataclass

from phrases.nouns import english_s


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb with its forms in both languages and its valency."""

    german: str
    """The infinitive without the prefix, also the present plural."""
    third: str
    participle: str
    prefix: str
    auxiliary: str
    """The infinitive of the auxiliary of the perfect, haben or sein."""
    english: str
    english_third: str
    english_past: str
    english_participle: str
    particle: str
    subjects: str
    valency: str
    objects: str
    preposition: tuple[str, str, str] | None
    """German preposition of a prepositional object, its case, and the English preposition."""

    @property
    def lemma(self) -> str:
        """The infinitive as in a dictionary; it names the lexeme."""
        return self.prefix + self.german


ROWS = """
schlafen schläft geschlafen; sleep slept slept; PA; none
lachen lacht gelacht; laugh laughed laughed; P; none
weinen weint geweint; cry cried cried; P; none
tanzen tanzt getanzt; dance danced danced; P; none
singen singt gesungen; sing sang sung; P; none
arbeiten arbeitet gearbeitet; work worked worked; P; none
spielen spielt gespielt; play played played; PA; none
lächeln lächelt gelächelt; smile smiled smiled; P; none
zittern zittert gezittert; tremble trembled trembled; PA; none
schwimmen schwimmt geschwommen *; swim swam swum; PA; none
auf|wachen wacht aufgewacht *; wake woke woken up; PA; none
auf|stehen steht aufgestanden *; get got got up; PA; none
an|kommen kommt angekommen *; arrive arrived arrived; P; none
zurück|kommen kommt zurückgekommen *; come came come back; PA; none
weg|laufen läuft weggelaufen *; run ran run away; PA; none
ein|schlafen schläft eingeschlafen *; fall fell fallen asleep; PA; none
verschwinden verschwindet verschwunden *; disappear disappeared disappeared; PATRCF; none
gehen geht gegangen *; go went gone; PA; to
laufen läuft gelaufen *; run ran run; PA; to
fahren fährt gefahren *; drive drove driven; P; to
reisen reist gereist *; travel travelled travelled; P; to
eilen eilt geeilt *; hurry hurried hurried; PA; to
fliegen fliegt geflogen *; fly flew flown; P; to
sehen sieht gesehen; see saw seen; PA; acc PATRCFLMV
suchen sucht gesucht; look looked looked for; PA; acc ATRCF
finden findet gefunden; find found found; PA; acc ATRCF
lieben liebt geliebt; love loved loved; P; acc RFL
besuchen besucht besucht; visit visited visited; P; acc PL
fragen fragt gefragt; ask asked asked; P; acc P
rufen ruft gerufen; call called called; P; acc PA
treffen trifft getroffen; meet met met; P; acc P
hören hört gehört; hear heard heard; PA; acc PA
beobachten beobachtet beobachtet; watch watched watched; PA; acc A
malen malt gemalt; paint painted painted; P; acc PALMVO
fotografieren fotografiert fotografiert; photograph photographed photographed; P; acc ALVG
vergessen vergisst vergessen; forget forgot forgotten; P; acc TRC
brauchen braucht gebraucht; need needed needed; P; acc TVM
fangen fängt gefangen; catch caught caught; PA; acc A
jagen jagt gejagt; chase chased chased; PA; acc A
füttern füttert gefüttert; feed fed fed; P; acc A
waschen wäscht gewaschen; wash washed washed; P; acc ACV
begleiten begleitet begleitet; accompany accompanied accompanied; PA; acc P
grüßen grüßt gegrüßt; greet greeted greeted; P; acc P
loben lobt gelobt; praise praised praised; P; acc P
tragen trägt getragen; carry carried carried; P; acc TRM
verstehen versteht verstanden; understand understood understood; P; acc PR
retten rettet gerettet; rescue rescued rescued; PA; acc PA
bewundern bewundert bewundert; admire admired admired; P; acc ALV
umarmen umarmt umarmt; hug hugged hugged; P; acc A
kaufen kauft gekauft; buy bought bought; P; acc TRCFMVL
lesen liest gelesen; read read read; P; acc R
schreiben schreibt geschrieben; write wrote written; P; acc R
essen isst gegessen; eat ate eaten; PA; acc F
probieren probiert probiert; taste tasted tasted; PA; acc F
öffnen öffnet geöffnet; open opened opened; P; acc O
schließen schließt geschlossen; close closed closed; P; acc O
reparieren repariert repariert; repair repaired repaired; P; acc OVMT
verlieren verliert verloren; lose lost lost; P; acc TRC
stehlen stiehlt gestohlen; steal stole stolen; PA; acc TRCF
verstecken versteckt versteckt; hide hid hidden; P; acc TRCF
putzen putzt geputzt; clean cleaned cleaned; P; acc OMT
nehmen nimmt genommen; take took taken; P; acc TRCF
halten hält gehalten; hold held held; P; acc TRC
bauen baut gebaut; build built built; P; acc LVM
zeichnen zeichnet gezeichnet; draw drew drawn; P; acc PALMV
holen holt geholt; fetch fetched fetched; P; acc TRCF
an|rufen ruft angerufen; phone phoned phoned; P; acc P
ein|laden lädt eingeladen; invite invited invited; P; acc P
ab|holen holt abgeholt; pick picked picked up; P; acc TR
weg|werfen wirft weggeworfen; throw threw thrown away; P; acc TRCF
an|ziehen zieht angezogen; put put put on; P; acc C
ein|packen packt eingepackt; pack packed packed; P; acc TRCF
aus|packen packt ausgepackt; unpack unpacked unpacked; P; acc TRC
mit|nehmen nimmt mitgenommen; take took taken along; P; acc TRC
auf|heben hebt aufgehoben; lift lifted lifted; P; acc ATRC
an|schauen schaut angeschaut; look looked looked at; PA; acc ATRLV
auf|hängen hängt aufgehängt; hang hung hung up; P; acc C
vor|bereiten bereitet vorbereitet; prepare prepared prepared; P; acc FT
helfen hilft geholfen; help helped helped; PA; dat PA
danken dankt gedankt; thank thanked thanked; P; dat P
folgen folgt gefolgt *; follow followed followed; PA; dat A
vertrauen vertraut vertraut; trust trusted trusted; PA; dat P
antworten antwortet geantwortet; answer answered answered; P; dat P
gehorchen gehorcht gehorcht; obey obeyed obeyed; A; dat P
zu|hören hört zugehört; listen listened listened to; PA; dat P
zu|winken winkt zugewinkt; wave waved waved to; P; dat P
gratulieren gratuliert gratuliert; congratulate congratulated congratulated; P; dat P
verzeihen verzeiht verziehen; forgive forgave forgiven; P; dat P
geben gibt gegeben; give gave given; P; both TRCF
zeigen zeigt gezeigt; show showed shown; P; both ATRCLVO
schicken schickt geschickt; send sent sent; P; both TRC
bringen bringt gebracht; bring brought brought; PA; both TRCF
verkaufen verkauft verkauft; sell sold sold; P; both ATRCFMV
leihen leiht geliehen; lend lent lent; P; both TRCV
reichen reicht gereicht; hand handed handed; P; both TRF
erklären erklärt erklärt; explain explained explained; P; both R
empfehlen empfiehlt empfohlen; recommend recommended recommended; P; both RCFL
beschreiben beschreibt beschrieben; describe described described; P; both PALTR
an|bieten bietet angeboten; offer offered offered; P; both TRF
zurück|geben gibt zurückgegeben; return returned returned; P; both TRC
warten wartet gewartet; wait waited waited; PA; auf acc for P
sprechen spricht gesprochen; speak spoke spoken; P; mit dat with P
denken denkt gedacht; think thought thought; P; an acc of PATRL
träumen träumt geträumt; dream dreamed dreamed; P; von dat of ALV
streiten streitet gestritten; argue argued argued; P; mit dat with P
tanzen tanzt getanzt; dance danced danced; P; mit dat with P
arbeiten arbeitet gearbeitet; work worked worked; P; für acc for P
singen singt gesungen; sing sang sung; P; für acc for PA
spielen spielt gespielt; play played played; PA; mit dat with A
liegen liegt gelegen; lie lay lain; PATRC; at
stehen steht gestanden; stand stood stood; PAM; at
sitzen sitzt gesessen; sit sat sat; PA; at
legen legt gelegt; lay laid laid; P; put TRC
stellen stellt gestellt; put put put; P; put M
sagen sagt gesagt; say said said; P; that
glauben glaubt geglaubt; believe believed believed; P; that
hoffen hofft gehofft; hope hoped hoped; P; that
wissen weiß gewusst; know knew known; P; that
behaupten behauptet behauptet; claim claimed claimed; P; that
fragen fragt gefragt; ask asked asked; P; if
"""


def _verb(row: str) -> Verb:
    german, english, subjects, valency = (part.split() for part in row.split(";"))
    prefix, _, stem = german[0].rpartition("|")
    base, past, participle, *particle = english
    preposition = None
    kind, objects = valency[0], valency[-1] if len(valency) > 1 else ""
    if len(valency) == 4:
        preposition = (valency[0], valency[1], valency[2])
        kind = "prep"
    return Verb(
        german=stem,
        third=german[1],
        participle=german[2],
        prefix=prefix,
        auxiliary="sein" if german[-1] == "*" else "haben",
        english=base,
        english_third=english_s(base),
        english_past=past,
        english_participle=participle,
        particle=" ".join(particle),
        subjects=subjects[0],
        valency=kind,
        objects=objects,
        preposition=preposition,
    )


VERBS = tuple(_verb(row) for row in ROWS.strip().splitlines())

COPULA = Verb(
    german="sein",
    third="ist",
    participle="gewesen",
    prefix="",
    auxiliary="sein",
    english="be",
    english_third="is",
    english_past="was",
    english_participle="been",
    particle="",
    subjects="PATRCFMVOLG",
    valency="quality",
    objects="",
    preposition=None,
)
