"""Word lists of the tales: names, trades, tempers, places, things, animals, seasons."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Trade:
    """A trade, and its daily work."""

    name: str
    chores: tuple[str, ...]


@dataclass(frozen=True)
class Temper:
    """A temper, how such a person speaks, and a habit of such a person."""

    name: str
    manner: str
    habit: str


@dataclass(frozen=True)
class Place:
    """A place, written with its preposition: `in the orchard`."""

    at: str

    @property
    def name(self) -> str:
        """The place without its preposition: `the orchard`."""
        return self.at.partition(" ")[2]


@dataclass(frozen=True)
class Animal:
    """A kind of pet, and what it does."""

    name: str
    does: tuple[str, ...]


@dataclass(frozen=True)
class Season:
    """A season and its kinds of weather."""

    name: str
    weathers: tuple[str, ...]


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _rows(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the rows of a table, each split at its bars."""
    return tuple(
        tuple(cell.strip() for cell in line.split("|")) for line in text.strip().splitlines()
    )


def _cells(text: str) -> tuple[str, ...]:
    return tuple(cell for row in _rows(text) for cell in row)


def _first_and_rest(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple((first, tuple(rest)) for first, *rest in _rows(text))


WOMEN = _listed(
    """Ada Agnes Bertha Bridget Clara Cora Dora Edith Eleanor Elsa Flora Frieda Greta Hanna Hilda
    Ida Ingrid Judith Karin Lena Louisa Martha Mina Nora Olga Paula Philippa Rosa Ruth Selma Sophie
    Thea Ursula Vera Wilma Zelda"""
)
MEN = _listed(
    """Adam Arthur Bruno Caspar Conrad David Edgar Emil Felix Frank George Gustav Hugo Ivan Jacob
    Jonas Karl Lambert Leo Magnus Martin Niklas Oscar Otto Peter Quentin Ralph Rupert Simon Stefan
    Theodor Thomas Victor Walter Xavier Yorick"""
)
VILLAGES = _listed(
    """Alderford Brackwater Coldhaven Dunmere Eastholm Fernley Greywick Hartsea Kelsby Larkfield
    Northwell Quarrystead Ravensey Saltmere Thornhill Westering"""
)

TRADES = tuple(
    Trade(name, works)
    for name, works in _first_and_rest(
        """
baker | kneaded the dough | counted the loaves | swept flour from the step
miller | weighed the corn | greased the great wheel | carried sacks upstairs
smith | hammered a horseshoe | blew upon the embers | sharpened a scythe
weaver | threaded the loom | wound grey wool | folded a length of cloth
fisher | mended a net | scrubbed the deck | gutted the catch
carpenter | planed a plank | sawed a beam | hung a door
potter | turned a bowl | stoked the kiln | glazed a row of jugs
tailor | cut a pair of sleeves | sewed on buttons | pressed a collar
cobbler | stitched a boot | waxed the thread | nailed a heel
gardener | pruned the roses | dug over a bed | watered the seedlings
doctor | rolled bandages | felt a pulse | mixed a bitter syrup
teacher | corrected the copybooks | chalked up some sums | rang for the lesson
painter | ground some colours | stretched a canvas | sketched the rooftops
beekeeper | smoked the hives | strained honey | counted the combs
shepherd | sheared a ram | called the flock | carried a lamb
brewer | tapped a barrel | stirred the mash | chalked up the debts
printer | set a line of type | inked the rollers | hung up wet pages
glazier | cut a pane | polished the glass | puttied a window
mason | dressed a stone | stirred the mortar | measured the wall
saddler | cut a strap | oiled the leather | stuffed a collar with straw
fiddler | tuned the strings | practised a reel | rubbed rosin on the bow
postman | sorted the mail | read the addresses | stamped a parcel
"""
    )
)

TEMPERS = tuple(
    Temper(*row)
    for row in _rows(
        """
shy | quietly | stared at the ground
cheerful | brightly | whistled a tune
stern | coldly | frowned
gentle | kindly | smiled
impatient | sharply | tapped one foot
dreamy | absently | gazed at the clouds
proud | loudly | stood very straight
nervous | hastily | bit a fingernail
thoughtful | slowly | nodded twice
gloomy | darkly | sighed
curious | eagerly | leaned closer
polite | courteously | bowed a little
lazy | drowsily | yawned
mocking | drily | winked
"""
    )
)

PLACES = tuple(
    Place(at)
    for at in _cells(
        """
in the orchard | at the mill | by the well | in the chapel | on the bridge | at the harbour
in the market | at the inn | in the schoolhouse | on the hill | in the boathouse | at the station
in the barn | in the library | at the lighthouse | in the greenhouse | by the pond | at the forge
in the tower | on the jetty | in the churchyard | at the tollgate | in the stable | in the quarry
by the ferry | in the vineyard
"""
    )
)
NEAR = ("behind", "beside", "opposite", "below")
SPOTS = _cells(
    """
under a bench | behind a barrel | in a basket | beneath a flat stone | inside an empty crate
under some sacking | on a ledge | beside a ladder | in a heap of straw | behind a loose board
"""
)

# Trades, things, looks and animals all begin with a consonant, so that "a" fits before each.
THINGS = _listed(
    """barometer bell bonnet book box broom brush candlestick coin compass cup drum fan feather
    fiddle flute globe hammer harp hat jug kettle key kite knife ladle lantern ledger letter locket
    lute map mask mirror paddle parasol pipe purse ring rope saucepan scarf shawl spade sundial
    teapot telescope thimble trumpet vase violin weathercock whistle wig"""
)
LOOKS = _listed(
    """battered big black blue brass broken brown copper crooked dusty faded fine golden green grey
    heavy narrow painted plain pretty red round rusty shiny silver small strange white worn
    yellow"""
)

ANIMALS = tuple(
    Animal(name, does)
    for name, does in _first_and_rest(
        """
dog | barked | wagged its tail | lay down
cat | purred | washed its paws | arched its back
goat | bleated | chewed a thistle | shook its horns
donkey | brayed | flicked its ears | would not move
heron | clattered | stood on one leg | snapped at a fly
goose | hissed | spread its wings | waddled about
raven | croaked | tilted its head | hopped on the wall
pony | neighed | stamped a hoof | tossed its mane
parrot | screeched | swore | climbed a post
"""
    )
)
ANIMAL_NAMES = _listed(
    """Acorn Biscuit Bramble Button Clover Cobweb Domino Fidget Ginger Juniper Marble Mustard Nettle
    Nutmeg Pebble Pepper Rascal Saffron Smoke Sorrel Thistle Tinder Treacle Velvet"""
)

DISHES = _cells(
    """
onion soup | plum cake | fried trout | apple tart | barley porridge | cheese dumplings | rye bread
roast chestnuts | cabbage stew | honey rolls | pickled herring | mushroom pie | lentil broth
baked pears | potato pancakes | walnut biscuits | smoked eel | rice pudding | carrot salad
boiled ham | cherry jam | stuffed peppers | poached eggs | pumpkin fritters | cold mutton
"""
)
WISHES = _cells(
    """
see the capital | learn Latin | build a windmill | cross the mountains | keep ostriches
sail around the cape | write a book of riddles | ride in a balloon | sing on a stage
catch a comet | buy a vineyard | dance with a duke | paint the sea | dig for amber
grow a black tulip | win the regatta | tame a falcon | taste a pineapple | meet an admiral
dive for pearls | plant a forest | conduct a choir | photograph a tiger | walk to the border
"""
)
FEARS = _cells(
    """
thunder | spiders | the dark | deep water | wasps | owls | ghosts | mice | snakes | wolves | fire
soldiers | moths | high places | tunnels | the number seven | bad dreams | the full moon
"""
)

SEASONS = tuple(
    Season(name, weathers)
    for name, weathers in _first_and_rest(
        """
spring | the blossom was out | a warm rain fell | the swallows were back | the brooks ran high
summer | the air was hot and still | the hay was in | crickets sang | the dust lay thick
autumn | the leaves were turning | mist lay on the fields | the first frost was over | it blew hard
winter | snow lay on the roofs | the pond was frozen | icicles had grown | it was bitterly cold
"""
    )
)
TIMES = _cells(
    """
The next morning | That afternoon | Two days later | On Sunday | Towards evening | Before dawn
Early the next day | A week later | On market day | After dinner | Some days later
At noon the next day
"""
)
#: Invented proverbs: each has an animal, a thing and a look.
SAYINGS = (
    "never lend a {look} {thing} to a {animal}",
    "better a {look} {thing} than a {animal} without one",
    "no {animal} ever died of a {look} {thing}",
    "where there is a {look} {thing} there is a {animal}",
    "even a {look} {animal} may need a {thing}",
    "you cannot buy a {animal} with a {look} {thing}",
    "a {thing} is a {thing}, said the {look} {animal}",
)
