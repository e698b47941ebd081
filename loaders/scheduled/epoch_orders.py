"""In which order the drawn shuffles are used as epochs: an open-path travelling salesman.

Cost of going from shuffle u to v (SOLAR's model of a FIFO buffer): samples among the first C of
v that are not among the last C of u. Under the plan's own policy the order is worth nothing:
every order loads N - C an epoch (see `vanidl_loaders.scheduled.plan`). It is here for small N, for
FIFO buffers and to reproduce the paper.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .plan_settings import Int64Array, PlanSettings

PARTICLES = 100
ITERATIONS = 1000
_TO_OWN_BEST, _TO_ALL_BEST = 0.9, 1.0


def drawn(settings: PlanSettings) -> Int64Array:
    """The order in which they were drawn, as the baseline uses them."""
    return np.arange(settings.epochs, dtype=np.int64)


def greedy(settings: PlanSettings) -> Int64Array:
    """Nearest neighbour from every start, the best improved by moving runs (or-opt)."""
    cost = transition_costs(settings)
    starts = [_nearest(cost, start) for start in range(len(cost))]
    return _or_opt(cost, min(starts, key=lambda path: (path_cost(cost, path), path[0])))


def pso(settings: PlanSettings) -> Int64Array:
    """Particle swarm over permutations, as in the paper: velocities are lists of swaps."""
    cost = transition_costs(settings)
    rng = np.random.default_rng(settings.seed)
    own = [rng.permutation(len(cost)) for _ in range(min(PARTICLES, max(len(cost), 2)))]
    paths = [path.copy() for path in own]
    best = min(own, key=lambda path: path_cost(cost, path)).copy()
    for _ in range(ITERATIONS if len(cost) > 2 else 0):
        for i, path in enumerate(paths):
            _fly(path, own[i], _TO_OWN_BEST, rng)
            _fly(path, best, _TO_ALL_BEST, rng)
            if path_cost(cost, path) < path_cost(cost, own[i]):
                own[i] = path.copy()
        best = min([best, *own], key=lambda path: path_cost(cost, path)).copy()
        if all((path == best).all() for path in paths):
            break
    return best.astype(np.int64)


ORDERS: dict[str, Callable[[PlanSettings], Int64Array]] = {
    "shuffle": drawn,
    "greedy": greedy,
    "pso": pso,
}


def transition_costs(settings: PlanSettings) -> Int64Array:
    """cost[u, v]: samples among the first C of shuffle v that are not among the last C of u."""
    epochs, buffer = settings.epochs, min(settings.buffer, settings.samples)
    cost = np.zeros((epochs, epochs), np.int64)
    firsts = [settings.shuffle(e)[:buffer] for e in range(epochs)]
    for u in range(epochs):
        resident = np.zeros(settings.samples, bool)
        resident[settings.shuffle(u)[::-1][:buffer]] = True
        cost[u] = [buffer - np.count_nonzero(resident[first]) for first in firsts]
    np.fill_diagonal(cost, 0)
    return cost


def path_cost(cost: Int64Array, path: Int64Array) -> int:
    """Sum of the costs along an open path."""
    return int(cost[path[:-1], path[1:]].sum())


def _nearest(cost: Int64Array, start: int) -> Int64Array:
    path, left = [start], np.ones(len(cost), bool)
    left[start] = False
    while left.any():
        candidates = np.flatnonzero(left)
        path.append(int(candidates[np.argmin(cost[path[-1], candidates])]))
        left[path[-1]] = False
    return np.array(path, np.int64)


def _or_opt(cost: Int64Array, path: Int64Array) -> Int64Array:
    """Moves runs of up to three epochs while that shortens the path."""
    current, improved = path, True
    while improved:
        improved = False
        for length in (1, 2, 3):
            for start in range(len(path) - length + 1):
                moved = _best_move(cost, current, start, length)
                if path_cost(cost, moved) < path_cost(cost, current):
                    current, improved = moved, True
    return current


def _best_move(cost: Int64Array, path: Int64Array, start: int, length: int) -> Int64Array:
    run = path[start : start + length]
    rest = np.delete(path, slice(start, start + length))
    moves = [np.insert(rest, place, run) for place in range(len(rest) + 1)]
    return min(moves, key=lambda candidate: path_cost(cost, candidate))


def _fly(
    path: Int64Array, target: Int64Array, probability: float, rng: np.random.Generator
) -> None:
    """Each swap that leads towards the target is taken with a probability."""
    place = np.argsort(path)
    for i in range(len(path)):
        if path[i] != target[i] and rng.random() < probability:
            j = int(place[target[i]])
            path[i], path[j] = path[j], path[i]
            place[path[i]], place[path[j]] = i, j
