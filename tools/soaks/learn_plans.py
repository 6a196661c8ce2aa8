"""The jobs of tools/soak learn: which rank dies or stops where."""

import collections

# events: {member: [[what, batch, place, microseconds, seconds]]}, see learn_worker.py. resizes: [(step, ranks)].
Plan = collections.namedtuple("Plan", "what number way size passes workers events resizes is_for_samples")

PLACES = "batch forward backward after pass last change timer timer timer".split()
IN_ORDER = "batch after pass".split()  # all members of a step take part in each exchange of it: for SyncBatchNorm
PASSES = {2: 27, 3: 39, 4: 53}  # over 101 samples in batches of 3: at least 200 rounds after the last join
SAMPLE_PASSES = {2: 12, 3: 18, 4: 24}
LATER_IDS = 8  # numbers of processes that may die after they have joined
EVENTS = "deaths joins stops resizes".split()
SHORT_S, LONG_S = (0.05, 0.7), (3.0, 4.0)  # of stops; --evict-after is between them


def kill(chance, most_batches, places):
    place = chance.choice(places)
    return ["kill", chance.randint(1, most_batches), place, chance.randint(1, 25_000) if place == "timer" else 0, 0]


def plan_for_bits(chance, number, way):
    size = chance.choice([2, 3, 4])
    stays = chance.randrange(size)
    places = IN_ORDER if way == "sync" else [place for place in PLACES if way != "passes" or place != "last"]
    events = {}
    others = [member for member in range(size) if member != stays]
    for member in chance.sample(others, chance.randint(1, len(others))):
        events[member] = [kill(chance, 50, places)]
    if chance.random() < 0.5:
        events[size] = [kill(chance, 20, places)]
    resizes = [(chance.randint(5, 40), size + 1)] if chance.random() < 0.3 else []
    passes = PASSES[size] * (2 if way == "passes" else 1)
    return Plan(f"bits {way}", number, way, size, passes, 1, events, resizes, False)


def stop(chance, most_batches, seconds):
    place = chance.choice([place for place in PLACES if place != "timer"])
    return ["stop", chance.randint(1, most_batches), place, 0, round(chance.uniform(*seconds), 2)]


def plan_for_samples(chance, number):
    size = chance.choice([2, 3, 3, 4])
    stays = chance.randrange(size)
    events = collections.defaultdict(list)
    for member in range(size + LATER_IDS):
        if member == stays:
            events[member] += [stop(chance, 60, SHORT_S) for _ in range(chance.randint(0, 2))]
            continue
        kind = chance.random()
        if kind < 0.6:
            events[member].append(kill(chance, 40 if member < size else 15, PLACES))
        elif kind < 0.75:
            events[member].append(stop(chance, 40, SHORT_S))
        elif kind < 0.85:
            events[member].append(stop(chance, 40, LONG_S))
    if chance.random() < 0.3:
        events[size + 1] = [["kill", 0, "joining", chance.randint(1, 1_500_000), 0]]
    resizes = sorted((chance.randint(5, 90), size + more) for more in (1, 2) if chance.random() < 0.4)
    return Plan("samples", number, "plain", size, SAMPLE_PASSES[size], 2, dict(events), resizes, True)


def events_of(row):
    return sum(row[name] for name in EVENTS)
