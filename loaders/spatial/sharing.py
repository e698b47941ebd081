"""Which ranks share a sample: groups of P ranks, as many groups as there are times P ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..errors import UsageError
from ..loader.loader import Settings
from ..ranks.world import World


@dataclass(frozen=True)
class Sharing:
    """Ranks in groups: rank r is part r mod P of group r div P."""

    world: World
    parts: int

    def __post_init__(self) -> None:
        if self.world.ranks % self.parts:
            raise UsageError(
                f"expected a number of ranks that {self.parts} parts per sample divide, found "
                f"{self.world.ranks}: choose another grid or number of ranks"
            )

    @property
    def groups(self) -> int:
        """Samples that are under way at a time."""
        return self.world.ranks // self.parts

    @property
    def group(self) -> int:
        """Of this rank."""
        return self.world.rank // self.parts

    @property
    def part(self) -> int:
        """Of this rank in its group."""
        return self.world.rank % self.parts

    def rank_of(self, group: int, part: int) -> int:
        """The rank that is a part of a group."""
        return group * self.parts + part

    def of_groups(self, settings: Settings) -> Settings:
        """The settings in which a group is what a rank is elsewhere: ids are dealt to groups."""
        world = World(self.group, self.groups, 0, 1, self.world.source)
        return replace(settings, world=world)
