"""Matrix products on vectors: a sum of a*b whose operands depend on different loops of the output.
Some rows by some vectors of the output make a register tile. The operand along the vectors is
packed into a panel in the cache; the other one is laid out so that its elements are read in
sequence. If an operand is an expression (a relu, a dequantisation, a row of a softmax), it is
computed once, while it is packed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import ceil, gcd

from tinygrad.loops.cost import turns, weight, work
from tinygrad.loops.draft import Draft, Nest, is_plain, names, reach_along, steps_along
from tinygrad.loops.in_place import STRIDED_ROWS, is_window, masks_outside
from tinygrad.loops.layout import flat_offset, memory_of
from tinygrad.loops.products import (
    LONG_PANEL,
    PANEL_BLOCK,
    SUMS,
    Product,
    accumulate_in_memory,
    contractions,
    finish_in_memory,
    in_one_word,
    panel_block,
    reduction_of,
    side_of,
    tensorised,
    those_in,
    unit_of,
    whole_sum,
)
from tinygrad.loops.reads import LONGEST_STEP, reads_of, steady, step, sums_of
from tinygrad.loops.register_tiles import MOST_ROWS, half_tile
from tinygrad.loops.roles import name_of, own_ranges, role_of, size_of
from tinygrad.loops.trims import bounded
from tinygrad.loops.vectors.dots import dots, runs_along_k
from tinygrad.loops.vectors.panels import fill_nest
from tinygrad.loops.vectors.requests import PAGE, ask_for_epilogue, ask_for_panels, ask_for_rows
from tinygrad.loops.vectors.row_sums import spread_reduction
from tinygrad.loops.vectors.tasks import (
    TASKS,
    TASKS_WITH_BLOCKS,
    all_stages_depend_on,
    even_part,
    fill_in_tasks,
    parallelise,
)
from tinygrad.loops.vectors.tile_products import fitting_tile, tile_product
from tinygrad.loops.vectors.tiling import TILES_A_TASK, Tiling, is_transposed
from tinygrad.simplify.affine import affine
from tinygrad.uop import Ops, UOp

INNER_TURNS = 2
"""Turns of the inner loop that are unrolled: worth 2 to 5 percent."""

SHORT_LOOP = 4
"""A reduction's inner loop of at most this many turns is unrolled completely."""

SHORT_LOOPS = 8
"""So is the loop around it, if both have at most so many: the halves of a byte are masks."""

EPILOGUE = 256
"""Instructions after a tile's sums. If there are more, they become a loop over the tile, whose sums
are finished in memory. That is slower (the sums are stored first, and LLVM may keep the loop's
constants in registers that the sums need), but compiles faster."""

LONG_WORK = 1 << 22
"""Operations of a kernel that justify compiling one more instruction."""

PREFETCH_TURNS = 4
"""How far ahead lines are prefetched by the first tile, for the panel that it fills."""

LONG_RUN = 64
"""Contiguous elements that are as good as a whole row: shorter runs gain less from the hardware
prefetcher."""

FEW_PANELS = 4
"""So many panels read rows of which each tile uses a part of a line at less cost than a copy."""

SMALL_GAP = 16
"""So few omitted elements don't interrupt a run, if runs are longer."""

Names = tuple[str, ...]


# ---- the nest of one or several products ---------------------------------------------------------


def product(draft: Draft, nest: Nest, products: list[Product]) -> bool:
    """Tiles the nest, lays out the operands, and orders the loops. False if no product is left once
    the loops of masks are outside, because the columns would be a single element."""
    tile = fitting_tile(draft, nest, products)
    if tile is not None:
        tile_product(draft, nest, products[0], *tile)
        return True
    if len(products) == 1 and runs_along_k(draft, nest, products[0]):
        dots(draft, nest, products[0])
        return True
    nest, products = _masks_outside(draft, nest, products)
    if products:
        _tiled(draft, nest, products)
    return bool(products)


def _tiled(draft: Draft, nest: Nest, products: list[Product]) -> None:
    """Tiles in registers: the operands are laid out, then the loops of the sums and of the tile are
    split and ordered, and what a tile leaves is finished."""
    if _halves_are_less(draft, nest, products):
        draft.take_half_vectors()
    tiling = Tiling(draft, nest, products)
    if not tiling.stretch:
        products = [tensorised(draft, tiling.n_in, one) for one in products]
    if len(products) == 1:
        products = [_block_panel(draft, tiling, products[0])]
    products = [_lay_out(draft, tiling, one) for one in products]
    for one in {name_of(one.inner): one for one in products}.values():
        _unroll_inner(draft, tiling, one)
    outer = _order_tile(draft, tiling, products)
    if nest.is_top:
        _tasks(draft, tiling, outer)
        if len(products) == 1:
            ask_for_rows(draft, tiling, products[0])
            ask_for_panels(draft, tiling, products[0])
    ask_for_epilogue(draft, tiling)
    if products[0].around:
        _accumulate_tiles(draft, tiling, products[0], outer)
    elif nest.is_top and not draft.kept and _is_long_epilogue(draft, tiling, products):
        _finish_in_memory(draft, tiling, products[-1])
        draft.give("LOOP", (tiling.m_copies, tiling.n_copies))
    for one in products[:-1]:
        _finish_in_memory(draft, tiling, one)


def _lay_out(draft: Draft, tiling: Tiling, one: Product) -> Product:
    """Lays out both operands. Returns the product with the order of loops that suits its rows."""
    _lay_out_rows(draft, tiling, one)
    moved = _taps_outside(draft, tiling, one)
    _lay_out_columns(draft, tiling, replace(one, loops=moved.loops))
    return moved


def _unroll_inner(draft: Draft, tiling: Tiling, one: Product) -> None:
    """Unrolls some turns of a sum's inner loop; but not where a row at the next turn is another row
    at this one: the copies would share all loads. Nor where each row is multiplied by one vector,
    and sums fill half of the registers: LLVM then puts a copy's sums where its row was."""
    rows, inner = _operand(draft, tiling, one, along_columns=False), name_of(one.inner)
    if is_window(rows) and _meet(rows, draft.loops[inner], draft.loops[tiling.m_copies]):
        return
    if size_of(one.inner) <= SHORT_LOOP:
        draft.do("role", inner, "UNROLL")
        around = [n for n in one.loops[-2:-1] if n in draft.loops]
        if draft.turns((*around, inner)) <= SHORT_LOOPS:
            draft.give("UNROLL", around)
    elif tiling.width > draft.lanes or 2 * tiling.height <= draft.target.registers:
        draft.split(inner, INNER_TURNS, inner + "u", "LOOP", "UNROLL")


def _order_tile(draft: Draft, tiling: Tiling, products: list[Product]) -> list[str]:
    """Splits the columns of a panel into tiles and vectors, and orders the loops of the nest.
    Returns the loops around the product's own."""
    tiles: tuple[str, ...] = ()
    if tiling.panel > tiling.width:
        tiling.n_copies = draft.split(tiling.n_in, tiling.width, tiling.n + "t")
        tiles = (tiling.n_in,)
    wanted = tiling.n + "v"
    tiling.n_lanes = draft.split(tiling.n_copies, draft.lanes, wanted, "UNROLL", "VECTOR")
    _other_reductions(draft, tiling, products)
    nest = tiling.nest.name
    outer = [n for n in draft.names_in(nest) if n not in tiling.inside]
    outer = _phases_inside(draft, nest, outer)
    rows, columns = (*tiling.edges, tiling.m), (tiling.n,)
    around = (*rows, *columns) if tiling.rows_once else (*columns, *rows)
    within = (tiling.m_copies, tiling.n_copies, tiling.n_lanes)
    draft.do("order", nest, (*outer, *around, *tiles, *within))
    return outer


def _phases_inside(draft: Draft, nest: str, outer: list[str]) -> list[str]:
    """The loops with phases next to those whose turns they lie between, so that they fill lines
    while these are near."""
    writes = draft.nest(nest).writes
    if not writes:
        return outer
    terms, _ = affine(flat_offset(writes[0]))
    steps = {n: terms.get(draft.loops[n], 0) for n in outer}
    phases = sorted(draft.planes.intersection(outer), key=lambda n: -steps[n])
    placed = [n for n in outer if n not in phases]
    for phase in phases:
        placed.insert(sum(steps[n] > steps[phase] for n in placed), phase)
    return placed


def _halves_are_less(draft: Draft, nest: Nest, products: list[Product]) -> bool:
    """Whether vectors of half the size are faster; a unit has its own."""
    (one, *_), last = products, nest.loops[-1]
    if unit_of(draft, name_of(last), one, is_tile=False):
        return False
    lanes = draft.target.lanes(one.rows.dtype.itemsize)
    return half_tile(draft.target, size_of(one.row_loop), size_of(last), lanes) is not None


def _masks_outside(draft: Draft, nest: Nest, products: list[Product]) -> tuple[Nest, list[Product]]:
    """If columns under a mask stay where they lie, the mask's loops go outside of the others."""
    before, kernel = draft.mark(), draft.kernel
    for one in products:
        if one.in_place or size_of(one.row_loop) <= MOST_ROWS:
            loops = masks_outside(one.columns, [draft.loops[k] for k in one.loops])
            loops = sorted(loops, key=lambda r: len(r.src) == 1)  # the innermost one has no limit
            draft.do("order", "reduce", names(loops))
    if draft.kernel is kernel:
        return nest, products
    moved = draft.nest(nest.name)
    if found := contractions(draft, moved):
        return moved, found
    draft.back_to(before)  # in that order its sums are no products
    return nest, products


def _is_long_epilogue(draft: Draft, tiling: Tiling, products: list[Product]) -> bool:
    """Whether the operations on each finished sum would be a long text, if written out for a whole
    tile."""
    done = {reduction_of(draft, tiling.nest.name, one) for one in products}
    after = [n for v in draft.nest(tiling.nest.name).values for n in v.toposort(stop=done)]
    length = sum(weight(n) for n in dict.fromkeys(after) if n not in done)
    written = length * tiling.height * (tiling.width // draft.lanes)
    return written > EPILOGUE and written > work(draft.kernel) // LONG_WORK


def _block_panel(draft: Draft, tiling: Tiling, one: Product) -> Product:
    """If the reduction is so long that its panel would not stay in the cache, its outer loops go
    around the row tiles: one block of the panel is packed and used at a time."""
    line, cache = tiling.together * one.rows.dtype.itemsize, draft.target.cache_l2
    loops = [draft.loops[n] for n in one.loops]
    reduction = reduction_of(draft, tiling.nest.name, one)
    if one.in_place or whole_sum(draft, reduction) is not reduction:
        return one
    if not tiling.nest.is_top or draft.kept:
        return one
    waits = tiling.rows < TILES_A_TASK * tiling.height
    long = 2 * PANEL_BLOCK if waits else LONG_PANEL
    if turns(loops) * line <= long * cache or tiling.rows * line > SUMS * cache:
        return one
    inner: list[UOp] = []
    rows = _operand(draft, tiling, one, along_columns=False)
    part = panel_block(draft.target, line, is_window(rows)) // line
    while size_of(loops[-1]) <= part:
        inner.insert(0, loops.pop())
        part //= size_of(inner[0])
    if part > 1:
        name = name_of(loops[-1])
        part = min(part, _turns_in_cache(draft, tiling, one, loops[-1]))
        block = draft.split(name, even_part(size_of(loops[-1]), ceil(part / 2)), name + "b")
        inner.insert(0, draft.loops[block])
    reduction = reduction_of(draft, tiling.nest.name, one)
    draft.do("regroup", draft.path(reduction), (*names(inner), *one.depth))
    return replace(one, loops=tuple(names(inner)), inner=inner[-1], around=tuple(names(loops)))


def _turns_in_cache(draft: Draft, tiling: Tiling, one: Product, loop: UOp) -> int:
    """For how many turns the first cache can keep the lines of rows, read where they lie, until the
    next tile. Lines that are a multiple of a large power of two apart share few of its sets."""
    rows = _operand(draft, tiling, one, along_columns=False)
    if rows.op is not Ops.INDEX or not _lies_in_tiles(draft, tiling, one, rows):
        return size_of(loop)
    apart = gcd((step(rows, loop) or 0) * rows.dtype.itemsize, PAGE)
    return draft.target.cache_l1 // max(apart, draft.target.cache_line)


def _accumulate_tiles(draft: Draft, tiling: Tiling, one: Product, outer: list[str]) -> None:
    """Stages the partial sums of all row tiles while the blocks of the panel are packed in turn."""
    loops = draft.nest(tiling.nest.name).loops
    around = (*outer, *tiling.panels)
    over = [n for n in names(loops) if n not in around]
    over = [n for n in over if role_of(draft.loops[n]) != "PARALLEL"]
    roles = {n: role_of(draft.loops[n]) for n in over}
    accumulate_in_memory(draft, tiling.nest.name, one, roles)


def _operand(draft: Draft, tiling: Tiling, one: Product, along_columns: bool) -> UOp:
    """An operand of the product in the kernel's current form."""
    return side_of(draft, tiling.nest.name, one, tiling.n_in, along_columns)


def _lay_out_rows(draft: Draft, tiling: Tiling, one: Product) -> None:
    """Lays out the operand that is broadcast, unless it is read where it lies: once for all panels,
    as [m][k], or as [m / tile][k][tile] if memory is contiguous along m."""
    value = _operand(draft, tiling, one, along_columns=False)
    if _stays(draft, tiling, one, value):
        return
    tile, depth = (tiling.m, tiling.m_copies), (*one.loops, *one.depth)
    free = {name_of(r) for r in value.ranges}
    outer = [n for n in draft.names_in(tiling.nest.name) if n in free and n not in tiling.inside]
    is_first = tiling.nest.is_top and free <= {*outer, *tile, *one.around, *depth}
    is_first = is_first and not any(memory_of(n) in ("LOCAL", "REG") for n in value.toposort())
    outer, memory = ([*outer, *one.around], "GLOBAL") if is_first else ([], "LOCAL")
    runs_along = all(s == 1 for s in one.row_steps)
    rows = (*tile, *one.loops) if runs_along else (tiling.m, *one.loops, tiling.m_copies)
    name = draft.stage(value, those_in(value, (*outer, *rows, *one.depth)), "pa", memory)
    in_one_word(draft, name, one)
    tasks = [f"{name}.{loop}" for loop in those_in(value, (*outer, tiling.m))]
    if runs_along:
        outside = _fill_along_k(draft, one, name)
        tasks = [n for n in tasks if not outside or n in outside]
    else:
        _vector_of_rows(draft, tiling, one, name)
    if is_first:
        draft.give("PARALLEL", tasks)


def _stays(draft: Draft, tiling: Tiling, one: Product, rows: UOp) -> bool:
    """Whether rows are read where they lie: they are beside columns that are, or in long runs, or a
    copy would hold more than they do or be no nearer."""
    is_strided = one.rows.op is Ops.INDEX and None not in one.row_steps
    if one.in_place and is_strided and one.laying_out > STRIDED_ROWS:
        return True
    if rows.op is not Ops.INDEX or (one.depth and not is_plain(rows)):
        return False
    if _run(draft, rows, (*one.loops, *one.depth)) >= LONG_RUN or is_window(rows):
        return True
    return _lies_in_tiles(draft, tiling, one, rows) or _lies_near(draft, tiling, rows)


def _fill_along_k(draft: Draft, one: Product, name: str) -> list[str]:
    """Fills rows by vectors along k. Returns the loops that must be outside of the others."""
    if f"{name}.{one.loops[-1]}" in draft.loops:  # a loop of a single turn is not there
        draft.vectorise(f"{name}.{one.loops[-1]}", 1 if one.depth else 4)
    made = draft.stages[name]  # sums within these rows: a softmax's sum and maximum
    for node in sums_of(draft.inline((made.src[0],))):
        spread_reduction(draft, node, own_ranges(made)[-1], 1)
    return _sums_outside(draft, name)


def _sums_outside(draft: Draft, name: str) -> list[str]:
    """Reductions that depend on some loops of a fill only, such as a batch norm's sums for each
    channel, are computed once for each of their turns: these loops go outside of the others.
    Returns them."""
    stage = draft.stages[name]
    needed: set[UOp] = set()
    for node in sums_of(draft.inline((stage.src[0],))):
        needed |= node.ranges
    own = own_ranges(stage)
    outer = [name_of(r) for r in own if role_of(r) in ("LOOP", "UNROLL") and r in needed]
    rest = [n for n in names(own) if n not in outer]
    if outer and any(role_of(draft.loops[n]) == "LOOP" for n in rest[:-1]):
        draft.innermost(name, rest)
    return outer


def _taps_outside(draft: Draft, tiling: Tiling, one: Product) -> Product:
    """For a window that is read where it lies: the loops that lead to other pixels go outside of
    those that lead to other channels, whose copies have nothing in common. Loops that a border cuts
    short go outside of all."""
    rows = _operand(draft, tiling, one, along_columns=False)
    if not is_window(rows):
        return one
    steps = {n: (step(rows, draft.loops[n]) or 0) * rows.dtype.itemsize for n in one.loops}
    cut = bounded(draft.kernel)
    if cut.intersection(one.loops):
        order = sorted(one.loops, key=lambda n: (n not in cut, -abs(steps[n])))
    else:
        near = [n for n in one.loops if steps[n] <= PAGE]
        far = max(near, key=draft.size, default=one.loops[-1])
        if draft.size(far) <= draft.size(one.loops[-1]):
            return one
        order = [*(n for n in one.loops if n != far), far]
    draft.do("order", "reduce", order)
    return replace(one, loops=tuple(order), inner=draft.loops[order[-1]])


def _meet(read: UOp, inner: UOp, row: UOp) -> bool:
    """Whether both loops move to nearby elements, or by the same step, as those of taps and pixels
    do."""
    terms, _ = affine(flat_offset(read))
    steps = [abs(k) for term, k in terms.items() if row in term.ranges]
    is_near = steady(read, inner) and min(steps, default=0) <= LONGEST_STEP
    return is_near or abs(step(read, inner) or 0) in steps


def _lies_in_tiles(draft: Draft, tiling: Tiling, one: Product, rows: UOp) -> bool:
    """Whether rows that are read once already lie tile by tile, in whole lines for each turn of the
    sum's outermost loop: another copy would only add bytes to move. Or whether a few panels read
    rows that lie beside each other, so that a tile finds its lines where the last one left them."""
    tile = (tiling.m_copies, *one.loops[1:])
    lines = draft.turns(tile) * rows.dtype.itemsize // draft.target.cache_line
    once = tiling.columns <= tiling.together
    if once and lines > 1 and _run(draft, rows, tile) >= LONG_RUN:
        return True
    return tiling.columns <= FEW_PANELS * tiling.together and _share_lines(one)


def _share_lines(one: Product) -> bool:
    """Whether all rows lie beside each other at each turn of the sum, which is less than a page."""
    if one.rows.op is not Ops.INDEX or len(one.loops) > 1 or step(one.rows, one.row_loop) != 1:
        return False
    (apart, *_), rows = one.row_steps, size_of(one.row_loop)
    is_near = apart is not None and abs(apart) * one.rows.dtype.itemsize < PAGE
    return is_near and (rows >= LONG_RUN or rows == apart)


def _lies_near(draft: Draft, tiling: Tiling, rows: UOp) -> bool:
    """Whether the rows are a block that stays in the cache, and a tile's rows are adjacent there,
    so that it reads a part of a line at each turn of the sum."""
    in_cache = memory_of(rows.src[0]) == "LOCAL"
    return in_cache and step(rows, draft.loops[tiling.m_copies]) == 1


def _run(draft: Draft, read: UOp, along: Iterable[str]) -> int:
    """How many elements that are read along these loops are contiguous. The whole of a short
    reduction is as good as any number."""
    run = 1
    for loop in reversed([draft.loops[n] for n in along]):
        apart = step(read, loop) if loop in read.ranges else run
        if apart is None or not run <= apart < run + min(run, SMALL_GAP):
            return run
        run = apart * size_of(loop)
    return max(run, LONG_RUN)


def _vector_of_rows(draft: Draft, tiling: Tiling, one: Product, name: str) -> None:
    """Puts tiles side by side in memory, so that whole cache lines of the source are read together.
    If memory is contiguous along k instead, the fill runs along k, too."""
    copies, tiles = f"{name}.{tiling.m_copies}", f"{name}.{tiling.m}"
    reads = reads_of(draft.stages[name].src[0].toposort())
    filled = [f"{name}.{k}" for k in one.loops if f"{name}.{k}" in draft.loops]
    filled.sort(key=lambda k: -reach_along(reads, draft.loops[k]))
    vectors = draft.target.triple and tiling.height > 1  # LLVM takes vectors of any length
    along_rows = 1 in steps_along(reads, draft.loops[copies])
    draft.do("role", copies, "VECTOR" if vectors else "UNROLL")
    together = max(1, draft.target.cache_line // tiling.height)
    if along_rows and together > 1 and tiles in draft.loops:
        draft.split(tiles, together, f"{name}.q", "LOOP", "UNROLL")
    elif not along_rows and len(filled) > 1:
        draft.innermost(name, (*filled, copies))


def _lay_out_columns(draft: Draft, tiling: Tiling, one: Product) -> None:
    """Lays out the operand along the vectors: a panel in the cache, if several row tiles read it.
    Its first reader fills it, or loops of its own do; those are tasks before everything else if
    several blocks of rows read it."""
    if _is_read_in_place(draft, tiling, one):
        return
    value = _operand(draft, tiling, one, along_columns=True)
    blocked = {name_of(r) for r in draft.nest("store").loops} & draft.blocked
    is_again = not blocked <= {name_of(r) for r in value.ranges}  # many blocks of rows read it
    by_reader = not is_again and _first_reader_fills(draft, tiling, one, value)
    grows = is_again or not (tiling.nest.is_top or blocked)  # it holds all panels
    before = () if by_reader else _packed_before(draft, tiling, one, value, blocked)
    outer = before or ((tiling.n,) if grows and not by_reader else ())
    layout = those_in(value, (*outer, *one.loops, tiling.n_in, *one.depth))
    options = (("first", True), ("prefetch", PREFETCH_TURNS)) if by_reader else ()
    name = draft.stage(value, layout, "pb", "GLOBAL" if before else "LOCAL", options)
    in_one_word(draft, name, one)
    if not by_reader:
        fill_nest(draft, one, name, tiling.n_in, tiling.stretch)
    if before:
        fill_in_tasks(draft, name)


def _is_read_in_place(draft: Draft, tiling: Tiling, one: Product) -> bool:
    """Whether the columns are read where they lie: they are a panel already, or a single row tile
    reads them, whose lines are then prefetched."""
    dense = one.columns.op is Ops.INDEX and one.column_steps == (tiling.width,)
    if dense and not one.depth and tiling.columns <= tiling.width:
        return True
    if tiling.stretch:
        return False
    once = tiling.rows < 2 * tiling.height and not is_transposed(draft, one)
    inner = name_of(one.inner)
    if once and not one.in_place and tiling.columns > tiling.width and inner in draft.loops:
        draft.do("prefetch", inner, PREFETCH_TURNS)
    return one.in_place or once


def _first_reader_fills(draft: Draft, tiling: Tiling, one: Product, value: UOp) -> bool:
    """Whether a panel is filled by its first reader, which reads memory in the panel's order."""
    is_short, across = size_of(one.inner) == 1, draft.loops[tiling.n_in]
    if not is_short and not {1, None}.isdisjoint(one.column_steps):
        return False
    for load in reads_of(value.toposort()):
        if not is_plain(load) or (tiling.stretch and not steady(load, across)):
            return False
    # a reader that starts late or stops early fills only what it reads; other readers may need more
    return bounded(draft.kernel).isdisjoint(one.loops)


def _packed_before(
    draft: Draft, tiling: Tiling, one: Product, value: UOp, blocked: set[str]
) -> Names:
    """The outer loops of a panel that is packed before everything else, in tasks of its own, since
    several tasks read it; none if it is packed where it is used."""
    free = {name_of(r) for r in value.ranges}
    is_split = _row_blocks(draft, tiling) > 1
    if not is_split and not (blocked and blocked.isdisjoint(free) and _are_tasks(draft, blocked)):
        return ()
    nests = (tiling.nest.name,) if is_split else ("store", tiling.nest.name)
    loops = dict.fromkeys(n for nest in nests for n in draft.names_in(nest))
    whole = (*(n for n in loops if n not in tiling.inside), tiling.n, *one.around)
    is_term = not free <= {*whole, *one.loops, tiling.n_in, *one.depth}  # of another sum
    return () if is_term else whole


def _other_reductions(draft: Draft, tiling: Tiling, products: list[Product]) -> None:
    """Other reductions beside the products, such as row sums, are spread over vectors."""
    nest = draft.nest(tiling.nest.name)
    vector = next(r for r in nest.loops if name_of(r) == tiling.n_lanes)
    done = {loop for p in products for loop in (p.loops[0], *p.around)}
    for node in draft.sums_in(nest):
        if name_of(own_ranges(node)[0]) not in done:
            spread_reduction(draft, node, vector, 1)


def _tasks(draft: Draft, tiling: Tiling, outer: list[str]) -> None:
    """A task is a panel of columns of one batch. If there are few panels, they are split into
    blocks of rows."""
    free = [n for n in outer if n not in draft.blocked]
    blocked = [n for n in outer if n in draft.blocked]
    blocks = _row_blocks(draft, tiling)
    if draft.turns((*free, *tiling.panels)) < TASKS_WITH_BLOCKS and blocked:
        free += blocked[:1]
    elif blocks > 1:
        first = (*tiling.edges, tiling.m)[0]
        if not tiling.edges:
            part = ceil(draft.size(first) / blocks)
            draft.split(first, part, first + "t")
        free.append(first)
        outer = [*outer, *tiling.panels, first]
        rest = [n for n in draft.names_in(tiling.nest.name) if n not in outer]
        draft.do("order", tiling.nest.name, (*outer, *rest))
    nest = draft.names_in(tiling.nest.name)
    candidates = [n for n in nest if n in (*free, *tiling.panels)]
    parallelise(draft, [n for n in candidates if not draft.kept or n != tiling.n])


def _are_tasks(draft: Draft, blocked: set[str]) -> bool:
    """Whether the loops over blocks of rows will be tasks, since there are few other loops."""
    *outer, _ = draft.nest("store").loops
    free = [r for r in outer if name_of(r) not in (*blocked, *draft.block_rows)]
    return turns(r for r in free if all_stages_depend_on(draft, name_of(r))) < TASKS_WITH_BLOCKS


def _row_blocks(draft: Draft, tiling: Tiling) -> int:
    """The number of blocks of row tiles that are separate tasks, if panels alone are too few."""
    outer = [n for n in draft.names_in(tiling.nest.name) if n not in tiling.inside]
    tasks = draft.turns((*outer, *tiling.panels))
    row_tiles = draft.turns((*tiling.edges, tiling.m))
    enough = TASKS if tiling.nest.name == "store" else TASKS_WITH_BLOCKS
    if not tiling.nest.is_top or draft.kept or set(outer) & draft.blocked or tasks >= enough:
        return 1
    return max(1, min(ceil(TASKS / tasks), row_tiles // TILES_A_TASK))


def _finish_in_memory(draft: Draft, tiling: Tiling, one: Product) -> None:
    """If several products share the tile, each finished one is staged in memory: the registers hold
    one product at a time."""
    copies = dict.fromkeys((tiling.m_copies, tiling.n_copies), "UNROLL")
    finish_in_memory(draft, tiling.nest.name, one, {**copies, tiling.n_lanes: "VECTOR"})
