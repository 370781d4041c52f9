"""Trees over features: the spanning forest of greatest weight, turned away from its roots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def spanning_tree(weights: Mapping[tuple[int, int], float]) -> list[tuple[int, int]]:
    """Edges of the spanning forest of greatest weight (Kruskal; ties by feature order)."""
    leader: dict[int, int] = {}

    def find(f: int) -> int:
        while leader.get(f, f) != f:
            f = leader[f]
        return f

    edges = []
    for pair in sorted(weights, key=lambda pair: (-weights[pair], pair)):
        a, b = (find(f) for f in pair)
        if a != b:
            leader[a] = b
            edges.append(pair)
    return edges


def rooted(n_features: int, edges: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The edges turned away from the first feature of each component, parents first."""
    neighbours: list[list[int]] = [[] for _ in range(n_features)]
    for a, b in edges:
        neighbours[a].append(b)
        neighbours[b].append(a)
    seen: set[int] = set()
    rooted: list[tuple[int, int]] = []
    for root in range(n_features):
        if root in seen:
            continue
        seen.add(root)
        waiting = [root]
        for parent in waiting:
            for child in sorted(neighbours[parent]):
                if child not in seen:
                    seen.add(child)
                    waiting.append(child)
                    rooted.append((parent, child))
    return tuple(rooted)
