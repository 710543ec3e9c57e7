"""What only a cold process needs: the files of the engine that import the floors which rewrite
graphs. A warm process, which finds its plans and kernels in the caches, never imports them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinygrad.base.later import later

if TYPE_CHECKING:
    from tinygrad.engine import making as making
    from tinygrad.engine import recipes as recipes
else:
    making, recipes = later("tinygrad.engine.making"), later("tinygrad.engine.recipes")
