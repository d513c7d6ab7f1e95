"""The sentence plans of each kind of event.

A slot names a participant: a, b, c and d are people, t is a thing, p a place. Without a suffix it
is a subject; `telling` defines the suffixes after a dot.
"""

from __future__ import annotations

from collections.abc import Mapping

Plans = tuple[str, ...]

OPENING = (
    "In the {season} of that year much happened in {village}.",
    "It was {season} in {village}, and {weather}.",
    "{village} is a small village, and this is what happened there one {season}.",
    "Few people know {village}, and fewer still know what happened there one {season}.",
)
NEWCOMER = (
    "That was the day when {a.name}, the new {a.trade}, came to {village}.",
    "{a.name} had come to {village} the day before as its new {a.trade}.",
    "Now {village} had a {a.trade} as well, whose name was {a.name}.",
)
PERSON = (
    "{a.name} was the {a.trade}.",
    "The {a.trade} was called {a.name}.",
    "There was {a.name}, who was the {a.trade}.",
    "Everybody knew {a.name}, the {a.trade}.",
    "{village} had a {a.trade} by the name of {a.name}.",
)
OWNER = (
    "{a} owned {t.a}.",
    "{a} had {t.a}, which had come from {a.his} grandmother.",
    "{a} carried {t.a} wherever {a.he} went.",
    "{t.a} was the one thing that {a} would never have sold.",
    "{a} was very fond of {a.his} {t.bare}.",
)

TOLD: Mapping[str, Plans] = {
    "saying": (
        '"{a.saying}," {a} used to say.',
        '{a} had a saying: "{a.saying}."',
        '{a} often said: "{a.saying}."',
    ),
    "home": (
        "{a} lived {a.home}.",
        "{a.s} house stood {a.home}.",
        "{a} had a small house {a.home}.",
    ),
    "temper": (
        "Nobody in {village} was as {a.temper} as {a.np}.",
        "People called {a.him} {a.temper}, because {a.he} often {a.habit}.",
        "{a} was {a.temper} by nature and {a.habit} at every turn.",
    ),
    "dish": (
        "{a} liked nothing better than {a.dish}.",
        "On feast days {a} always had {a.dish}.",
        "For {a.dish} {a} would have walked ten miles.",
    ),
    "wish": (
        "{a} had always wanted to {a.wish}.",
        "One day, {a} hoped, {a.he} would {a.wish}.",
        "It was {a.s} dream to {a.wish}.",
    ),
    "fear": (
        "{a} was afraid of {a.fear}.",
        "Nothing frightened {a.him} like {a.fear}.",
        "Even as a child {a} had feared {a.fear}.",
    ),
    "pet": (
        "{a} kept a {a.animal} called {a.pet}.",
        "A {a.animal} by the name of {a.pet} followed {a.him} everywhere.",
        "{a.s} best friend was a {a.animal}, {a.pet}.",
    ),
}
USED: Mapping[str, Plans] = {
    "saying": (
        '"{a.saying}," said {a.np}.',
        '"{a.saying}," {a} said {a.manner}.',
        '{a} said what {a.he} always said: "{a.saying}."',
        'And {a} answered: "{a.saying}."',
    ),
    "home": (
        "{a} had been at home, {a.home}, before that.",
        "{a} wanted to be home, {a.home}, before dark.",
        "{a.home}, {a} said, all was well at the house.",
    ),
    "temper": (
        "{a} {a.habit}.",
        "As always, {a} {a.habit}.",
        "{a} {a.habit}, and nobody was surprised.",
        "{a.np}, {a.temper} as ever, {a.habit}.",
    ),
    "dish": (
        "They had {a.dish}, and nobody was gladder than {a.np}.",
        "The smell of {a.dish} made {a.him} hungry.",
        "{a} had brought some {a.dish} and shared it with nobody.",
        "For once {a} had no appetite, not even for {a.dish}.",
    ),
    "wish": (
        "{a} still hoped to {a.wish}.",
        '"One day I will {a.wish}," said {a.np}.',
        "In the night {a} had dreamed that {a.he} would {a.wish}.",
        '"You will never {a.wish}," somebody told {a.him}.',
    ),
    "fear": (
        "Somebody spoke of {a.fear}, and {a} turned pale.",
        "{a} had not slept, for fear of {a.fear}.",
        '"There are worse things than {a.fear}," said {a.np}, though {a.he} did not believe it.',
    ),
    "pet": (
        "{a.pet} {a.does}.",
        "{a.pet} the {a.animal} {a.does}.",
        "{a.s} {a.animal} {a.does}.",
        "{a} called {a.pet}, and the {a.animal} {a.does}.",
    ),
    "trade": (
        "{a} {a.work}.",
        "For a while {a} {a.work}.",
        "As on any other day, {a} {a.work}.",
    ),
}
ASKED: Mapping[str, Plans] = {
    "saying": (
        '"How does the saying of {c.np} go?" asked {a.np}. "{c.saying}," said {b.np}.',
        '{a} asked what {c.np} would say to that. "{c.saying}," said {b.np}.',
    ),
    "temper": (
        '"What sort of person is {c.np}?" asked {a.np}. "Rather {c.temper}," said {b.np}.',
        '{a} asked what {c.np} was like. "{c.temper}," said {b.np}, "and always was."',
    ),
    "home": (
        '"Where does {c.np} live?" asked {a.np}. "{c.home}," said {b.np}.',
        '{a} wanted to know where {c.s} house was. "{c.home}," answered {b.np}.',
    ),
    "dish": (
        '"What shall I cook for {c.np}?" asked {a.np}. "{c.dish}," said {b.np}.',
        '{a} asked what {c.np} liked to eat. "{c.dish}, of course," said {b.np}.',
    ),
    "wish": (
        '"What does {c.np} wish for?" asked {a.np}. "To {c.wish}," said {b.np}.',
        '"Do you know what {c.np} dreams of?" asked {a.np}. "To {c.wish}," answered {b.np}.',
    ),
    "fear": (
        '"What is {c.np} so afraid of?" asked {a.np}. "{c.fear}," said {b.np}.',
        '{a} asked whether {c.np} feared anything. "{c.fear}," said {b.np}.',
    ),
    "pet": (
        '"What is the name of {c.s} {c.animal}?" asked {a.np}. "{c.pet}," said {b.np}.',
        '{a} had forgotten what {c.s} {c.animal} was called. "{c.pet}," said {b.np}.',
    ),
    "trade": (
        '"What is {c.name} by trade?" asked {a.np}. "{c.name} is the {c.trade}," said {b.np}.',
        '"Who is the {c.trade} here?" asked {a.np}. "{c.name}," said {b.np}.',
    ),
}
ASKED_SELF: Mapping[str, Plans] = {
    "home": ('"Where do you live?" {a} asked {b.him}. "{b.home}," said {b.np}.',),
    "dish": (
        '"What would you like for supper?" {a} asked {b.him}. "{b.dish}," said {b.np} {b.manner}.',
    ),
    "wish": ('"What do you wish for?" {a} asked {b.him}. "To {b.wish}," {b} said {b.manner}.',),
    "fear": ('"What are you afraid of?" {a} asked {b.him}. "{b.fear}," {b} said {b.manner}.',),
    "pet": ('"What do you call your {b.animal}?" {a} asked {b.him}. "{b.pet}," said {b.np}.',),
}

COME = (
    "{a} came to {p} as well.",
    "Before long {a} was {p.at} too.",
    "{a} joined them {p.at}.",
)
LEAVE = (
    "Then {a} went home, to the house {a.home}.",
    "{a} was tired and went back to the house {a.home}.",
    "{a} said good night and left for home, {a.home}.",
)
GIVE = (
    "{a} gave {t} to {b.him}.",
    "{a} handed {b.him} {t.np}.",
    "{a} lent {b.him} {t.np} for a while.",
    '"Take {t.np}," said {a.np}, and {b} took it.',
    "{b} asked for {t.np}, and {a} let {b.him} have it.",
    "{a} had no use for {t}, and so {b} got it.",
)
PUT = (
    "{a} put {t} {spot}.",
    "{a} left {t} {spot}.",
    "{a} forgot {t.np}, which stayed {spot}.",
    "{a} laid {t} {spot}.",
)
TAKE = (
    "{a} found {t.np} {spot} and kept it.",
    "{spot}, {a} came upon {t.np} and took it.",
    "{a} picked up {t.np}, which had been {spot}.",
)
SHOW = (
    "{a} took out {t.np} and looked at it.",
    "{a} still had {t.np}.",
    "{a} cleaned {t.np} with a cloth.",
    "{a} held {t.np} up to the light.",
)
WHERE = (
    '"Where is {t.np}?" asked {a.np} {a.manner}.',
    '"Has anybody seen {t.np}?" asked {a.np}.',
    "{a} was looking for {t.np}.",
    "{a} asked about {t.np}.",
)
HELD: Plans = (
    '"{c.np} has it," said {b.np}.',
    '"Ask {c.np}," {b} said {b.manner}.',
    '"I saw it with {c.np}," said {b.np}.',
)
HELD_SELF: Plans = ('"I have it," said {b.np}.', '"Here it is," said {b.np} {b.manner}.')
LIES: Plans = (
    '"It is {p.at}, {spot}," said {b.np}.',
    '"Look {spot}, {p.at}," said {b.np}.',
    '"{p.at}," said {b.np} {b.manner}, "{spot}."',
)
HOW_GIVEN = (
    '"How did you come by {t.np}?" asked {a.np}. "{c.np} gave it to me," said {b.np}.',
    '{a} asked {b.him} about {t.np}. "I have it from {c.np}," said {b.np}.',
)
HOW_FOUND = (
    '"Where did you get {t.np}?" asked {a.np}. "{p.at}, {spot}," said {b.np}.',
    '{a} asked {b.him} about {t.np}. "I found it {p.at}, {spot}," {b.np} said {b.manner}.',
)
HOW_OWNED = ('"Where did you get {t.np}?" asked {a.np}. "It has always been mine," said {b.np}.',)
REPORT: Mapping[str, Plans] = {
    "give": (
        "{a} told {b.him} that {c.np} had given {t.full} to {d.np}.",
        '"{c.np} gave {t.full} to {d.np}," {a} told {b.him}.',
    ),
    "put": (
        "{a} told {b.him} that {c.np} had left {t.full} {p.at}, {spot}.",
        '"{c.np} left {t.full} {p.at}, {spot}," {a} told {b.him}.',
    ),
    "take": (
        "{a} told {b.him} that {c.np} had found {t.full} {p.at}, {spot}.",
        '"{c.np} found {t.full} {p.at}, {spot}," {a} told {b.him}.',
    ),
}
WHOSE = (
    '"Whose {t.noun} is this?" asked {a.np}. "It belongs to {c.np}," said {b.np}.',
    '"And who owns {t.full}?" asked {a.np}. "{c.np} does," said {b.np}.',
    '{a} had always thought that {t.full} was lost. "No, {c.np} owns it," said {b.np}.',
)

SCENE = (
    "{time} {a} went to {p}.",
    "{time} {a} was {p.at}.",
    "{time} {weather}, and {a} walked over to {p}.",
    "{time} {a} came to {p}. {weather}.",
)
PAUSE = (
    "Nobody spoke for a while.",
    "A cart rolled past.",
    "Far away a bell struck.",
    "{weather}.",
    "A child ran by and waved.",
    "That was all they said about it.",
)
ENDING = ("So the {season} came to an end in {village}.", "That was the {season} in {village}.")
ENDED_HELD = (
    "{t.full} was with {a.np} now.",
    "{a.np} had {t.full} now.",
    "{a.np} had kept {t.full}.",
)
ENDED_LIES = (
    "{t.full} was still {p.at}, {spot}.",
    "{t.full} lay {spot}, {p.at}, where nobody had moved it.",
)
