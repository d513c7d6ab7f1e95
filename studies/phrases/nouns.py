"""The nouns: one row per lexeme, grouped by the class that decides which verbs go with it.

A row is `German gender plural English [English plural] [+weak form] [=genitive]`. A weak noun has
one form in every case of the singular except the nominative. A genitive is given only if it is not
the noun with -s, an English plural only if it is irregular. An underscore means a space.
"""

from __future__ import annotations

from dataclasses import dataclass

_VOWELS = "aeiou"


@dataclass(frozen=True, eq=False)
class Noun:
    """A noun with all its forms; `gender` is "m", "f" or "n", `kind` a letter of `TABLES`."""

    german: str
    gender: str
    plural: str
    oblique: str
    """The accusative and dative singular."""
    genitive: str
    dative_plural: str
    english: str
    english_plural: str
    kind: str


PERSONS = """
Mann m Männer man men =Mannes
Frau f Frauen woman women
Kind n Kinder child children =Kindes
Junge m Jungen boy +Jungen
Mädchen n Mädchen girl
Lehrer m Lehrer teacher
Arzt m Ärzte doctor =Arztes
Köchin f Köchinnen cook
Bäcker m Bäcker baker
Bauer m Bauern farmer +Bauern
König m Könige king
Königin f Königinnen queen
Prinz m Prinzen prince +Prinzen
Freund m Freunde friend =Freundes
Nachbar m Nachbarn neighbour +Nachbarn
Bruder m Brüder brother
Schwester f Schwestern sister
Mutter f Mütter mother
Vater m Väter father
Großmutter f Großmütter grandmother
Onkel m Onkel uncle
Tante f Tanten aunt
Sohn m Söhne son =Sohnes
Tochter f Töchter daughter
Student m Studenten student +Studenten
Polizist m Polizisten policeman policemen +Polizisten
Malerin f Malerinnen painter
Sängerin f Sängerinnen singer
Gärtner m Gärtner gardener
Richterin f Richterinnen judge
Dichter m Dichter poet
Matrose m Matrosen sailor +Matrosen
Gast m Gäste guest =Gastes
Zauberer m Zauberer wizard
Hexe f Hexen witch
Pirat m Piraten pirate +Piraten
Ritter m Ritter knight
Schneider m Schneider tailor
Tänzerin f Tänzerinnen dancer
Krankenschwester f Krankenschwestern nurse
Reporterin f Reporterinnen reporter
Kapitän m Kapitäne captain
Cousine f Cousinen cousin
"""

ANIMALS = """
Hund m Hunde dog =Hundes
Katze f Katzen cat
Pferd n Pferde horse =Pferdes
Kuh f Kühe cow
Schaf n Schafe sheep sheep =Schafes
Vogel m Vögel bird
Hase m Hasen hare +Hasen
Maus f Mäuse mouse mice
Bär m Bären bear +Bären
Löwe m Löwen lion +Löwen
Elefant m Elefanten elephant +Elefanten
Rabe m Raben raven +Raben
Esel m Esel donkey
Ente f Enten duck
Ziege f Ziegen goat
Fuchs m Füchse fox =Fuchses
Wolf m Wölfe wolf wolves =Wolfes
Frosch m Frösche frog =Frosches
Schlange f Schlangen snake
Schwein n Schweine pig =Schweines
"""

TEXTS = """
Buch n Bücher book =Buches
Brief m Briefe letter =Briefes
Zeitung f Zeitungen newspaper
Gedicht n Gedichte poem =Gedichtes
Geschichte f Geschichten story
Roman m Romane novel
Zettel m Zettel note
Märchen n Märchen fairy_tale
"""

FOODS = """
Apfel m Äpfel apple
Birne f Birnen pear
Kuchen m Kuchen cake
Radieschen n Radieschen radish
Kartoffel f Kartoffeln potato
Suppe f Suppen soup
Brötchen n Brötchen roll
Keks m Kekse biscuit =Kekses
Tomate f Tomaten tomato
Zwiebel f Zwiebeln onion
"""

CLOTHES = """
Hut m Hüte hat =Hutes
Mantel m Mäntel coat
Hemd n Hemden shirt =Hemdes
Kleid n Kleider dress =Kleides
Jacke f Jacken jacket
Mütze f Mützen cap
Schal m Schals scarf scarves
Handschuh m Handschuhe glove
"""

THINGS = """
Rucksack m Rucksäcke backpack
Ring m Ringe ring =Ringes
Schlüssel m Schlüssel key
Koffer m Koffer suitcase
Tasche f Taschen bag
Lampe f Lampen lamp
Flasche f Flaschen bottle
Tasse f Tassen cup
Teller m Teller plate
Messer n Messer knife knives
Bild n Bilder picture =Bildes
Uhr f Uhren clock
Regenschirm m Regenschirme umbrella =Regenschirmes
Korb m Körbe basket =Korbes
Blume f Blumen flower
Geschenk n Geschenke present =Geschenkes
Spiegel m Spiegel mirror
Gitarre f Gitarren guitar
Kerze f Kerzen candle
Stein m Steine stone =Steines
Puppe f Puppen doll
Decke f Decken blanket
Kiste f Kisten box
Seil n Seile rope =Seiles
Glocke f Glocken bell
"""

FURNITURE = """
Tisch m Tische table =Tisches
Stuhl m Stühle chair =Stuhles
Klavier n Klaviere piano pianos
Schrank m Schränke cupboard =Schrankes
Bank f Bänke bench
Sofa n Sofas sofa
"""

VEHICLES = """
Auto n Autos car
Schiff n Schiffe ship =Schiffes
Fahrrad n Fahrräder bicycle =Fahrrades
Boot n Boote boat =Bootes
Kutsche f Kutschen carriage
"""

OPENINGS = """
Tür f Türen door
Fenster n Fenster window
Tor n Tore gate =Tores
"""

PLACES = """
Haus n Häuser house =Hauses
Garten m Gärten garden
Stadt f Städte town
Dorf n Dörfer village =Dorfes
Wald m Wälder forest =Waldes
Park m Parks park
Schule f Schulen school
Kirche f Kirchen church
Bahnhof m Bahnhöfe station
Museum n Museen museum
Schloss n Schlösser castle =Schlosses
Küche f Küchen kitchen
Zimmer n Zimmer room
Keller m Keller cellar
Turm m Türme tower =Turmes
Laden m Läden shop
Hotel n Hotels hotel
Bibliothek f Bibliotheken library
Theater n Theater theatre
Zelt n Zelte tent =Zeltes
"""

GROUNDS = """
Insel f Inseln island
Brücke f Brücken bridge
Straße f Straßen street
Berg m Berge mountain =Berges
Hügel m Hügel hill
Pfad m Pfade path =Pfades
Marktplatz m Marktplätze market_square =Marktplatzes
Düne f Dünen dune
"""

TABLES = {
    "P": PERSONS,
    "A": ANIMALS,
    "R": TEXTS,
    "F": FOODS,
    "C": CLOTHES,
    "T": THINGS,
    "M": FURNITURE,
    "V": VEHICLES,
    "O": OPENINGS,
    "L": PLACES,  # with "in"
    "G": GROUNDS,  # with "on" and "across"
}


def english_s(word: str) -> str:
    """Return the word with the ending -s of regular plurals and verbs in the third person."""
    if word.endswith(("s", "x", "z", "ch", "sh", "o")):
        return word + "es"
    if word.endswith("y") and word[-2] not in _VOWELS:
        return word[:-1] + "ies"
    return word + "s"


def _noun(row: str, kind: str) -> Noun:
    fields = [field.replace("_", " ") for field in row.split()]
    marks = {field[0]: field[1:] for field in fields if field[0] in "+="}
    german, gender, plural, english, *irregular = (f for f in fields if f[0] not in "+=")
    weak = marks.get("+")
    return Noun(
        german=german,
        gender=gender,
        plural=plural,
        oblique=weak or german,
        genitive=weak or marks.get("=") or (german if gender == "f" else german + "s"),
        dative_plural=plural if plural.endswith(("n", "s")) else plural + "n",
        english=english,
        english_plural=irregular[0] if irregular else english_s(english),
        kind=kind,
    )


NOUNS = tuple(
    _noun(row, kind) for kind, table in TABLES.items() for row in table.strip().splitlines()
)
