"""The runner's program: what `runner` loads and describes, once for all languages and systems, in
the language of `runner_languages`. Nothing here knows an operating system but the table WAITS, nor
a machine but the table PAUSES."""

from __future__ import annotations

import struct
from dataclasses import dataclass

C, LLVM = range(2)  # the languages

# How a list begins: records, count, stop. Behind it lie pool, scratch and the table.
LIST = struct.Struct("3q")
# One kernel of a list: function, arguments, positions, count, tasks, chunk, chunks, ranges, wakes.
# `arguments` is filled from the list's table at `count` `positions` (i32 each); `chunks` 0 means
# that the caller runs all tasks itself; `ranges` is how many seats the chunks are dealt to; `wakes`
# allows waking sleeping helpers.
RECORD = struct.Struct("9q")

# Where the seats begin in the words of the pool, and the size of one, in bytes. Each thread has a
# seat; the caller's is the first.
SEATS, SEAT = 384, 128
# Structs and their words: offset in bytes, and type. Words that different threads write lie in
# different pairs of cache lines.
WORDS = {
    "pool.function": (0, "ptr"),  # of the open kernel, like those that follow
    "pool.arguments": (8, "ptr"),
    "pool.tasks": (16, "i64"),
    "pool.chunk": (24, "i64"),  # tasks of a chunk
    "pool.chunks": (32, "i64"),
    "pool.ranges": (40, "i64"),
    "pool.stop": (48, "ptr"),
    "pool.finished": (128, "i32"),  # chunks that are done
    "pool.caller_sleeps": (132, "i32"),  # the caller waits in the system for `finished` to change
    "pool.spins": (256, "i64"),  # how often to look before sleeping
    "pool.wait_call": (264, "ptr"),  # the system's function to sleep
    "pool.wake_call": (272, "ptr"),  # the system's function to wake
    "pool.quit": (280, "i32"),  # helpers should return
    "seat.remaining": (0, "i32"),  # chunks of its range that nobody has taken, or below 0
    "seat.sleeps": (4, "i32"),  # its helper sleeps, or is about to
    "seat.scratch": (8, "ptr"),  # its thread's scratch memory
    "stop.now": (0, "i32"),  # not 0 if no more chunk should run
    "list.records": (0, "ptr"),
    "list.count": (8, "i64"),
    "list.stop": (16, "ptr"),
    "list.pool": (24, "ptr"),
    "list.scratch": (32, "ptr"),
    "record.function": (0, "ptr"),
    "record.arguments": (8, "ptr"),
    "record.positions": (16, "ptr"),
    "record.count": (24, "i64"),
    "record.tasks": (32, "i64"),
    "record.chunk": (40, "i64"),
    "record.chunks": (48, "i64"),
    "record.ranges": (56, "i64"),
    "record.wakes": (64, "i64"),
    "position.number": (0, "i32"),
    "argument.value": (0, "i64"),
}
FUNCTIONS = ("run_list", "help", "dismiss")  # that Python calls
TABLE = 40  # where a list's table begins

PROGRAM = """
def work(pool: ptr, own: i64):
    # Takes chunks of the open kernel: those of the own range first, then those of the next threads,
    # until none is left; then counts those done. All chunks of one call belong to one kernel, which
    # can't end before they are counted. The first `ranges` may be that of a kernel before or after;
    # then other seats than necessary are visited.
    own_seat = pool + SEATS + own * SEAT
    visits = relaxed(pool.ranges)
    thread = own
    visited = 0
    done = i32(0)
    while True:
        seat = pool + SEATS + thread * SEAT
        while relaxed(seat.remaining) > 0:
            left = i64(take(seat.remaining, 1))
            if left <= 0:
                break
            end = (thread + 1) * pool.chunks // relaxed(pool.ranges)
            low = (end - left) * pool.chunk
            high = min(low + pool.chunk, pool.tasks)
            stop = pool.stop
            if not relaxed(stop.now):
                pool.function(pool.arguments, low, high, relaxed(own_seat.scratch))
            done += 1
        thread += 1
        if thread >= visits:
            thread = 0
        visited += 1
        if visited >= visits:
            break
    add(pool.finished, done)

def share(pool: ptr, wakes: i64):
    # Opens a kernel, whose words are written, to helpers; works on it; waits until all chunks are
    # done. A seat's `remaining` is stored before its `sleeps` is read, and a helper sets `sleeps`
    # before it looks at `remaining` for the last time: one of the two sees the other.
    all = i32(pool.chunks)
    ranges = relaxed(pool.ranges)
    set_relaxed(pool.finished, 0)
    end = pool.chunks
    thread = ranges - 1
    while thread >= 0:
        seat = pool + SEATS + thread * SEAT
        start = thread * pool.chunks // ranges
        set_ordered(seat.remaining, i32(end - start))
        if ordered(seat.sleeps) and wakes:
            wake(pool, address(seat.remaining))
        end = start
        thread -= 1
    work(pool, 0)
    spun = 0
    while acquire(pool.finished) != all:
        if spun < pool.spins:
            pause()
            spun += 1
        else:
            set_ordered(pool.caller_sleeps, 1)
            now = ordered(pool.finished)
            if now != all:
                wait(pool, address(pool.finished), now)
            set_ordered(pool.caller_sleeps, 0)
            spun = 0

def run_list(list: ptr):
    # Runs the records of a list. Without a pool the caller runs every task itself, a chunk at a
    # time.
    pool = list.pool
    stop = list.stop
    records = list.count
    number = 0
    while number < records:
        record = list.records + number * RECORD
        count = record.count
        positions = record.positions
        arguments = record.arguments
        index = 0
        while index < count:
            position = positions + index * 4
            given_argument = list + TABLE + i64(position.number) * 8
            argument = arguments + index * 8
            argument.value = given_argument.value
            index += 1
        if pool and record.chunks:
            seat = pool + SEATS
            seat.scratch = list.scratch
            pool.function = record.function
            pool.arguments = arguments
            pool.tasks = record.tasks
            pool.chunk = record.chunk
            pool.chunks = record.chunks
            set_relaxed(pool.ranges, record.ranges)
            pool.stop = stop
            share(pool, record.wakes)
        else:
            low = 0
            while True:
                if relaxed(stop.now):
                    return
                high = min(low + record.chunk, record.tasks)
                record.function(arguments, low, high, list.scratch)
                if high == record.tasks:
                    break
                low = high
        number += 1

def help(pool: ptr, thread: i64):
    # A helper's whole life: looks for work in its own seat, spins a little, sleeps, until told to
    # quit.
    seat = pool + SEATS + thread * SEAT
    spun = 0
    while True:
        if acquire(seat.remaining) > 0:
            work(pool, thread)
            if ordered(pool.caller_sleeps):
                wake(pool, address(pool.finished))
            spun = 0
        elif acquire(pool.quit):
            return
        elif spun < pool.spins:
            pause()
            spun += 1
        else:
            set_ordered(seat.sleeps, 1)
            late = ordered(seat.remaining)
            if late <= 0 and not ordered(pool.quit):
                wait(pool, address(seat.remaining), late)
            set_ordered(seat.sleeps, 0)
            spun = 0

def dismiss(pool: ptr, thread: i64):
    # Ends the helper of a seat. Its `remaining` changes, so it can't fall asleep on the old value.
    seat = pool + SEATS + thread * SEAT
    set_ordered(pool.quit, 1)
    add(seat.remaining, -1)
    wake(pool, address(seat.remaining))
"""


@dataclass(frozen=True)
class Waits:
    """How threads sleep on a word: `wait`, while it holds `seen`, and `wake`, which wakes one; and
    where the functions of the system lie that they call. Arguments are in registers on every
    machine here, so calls need not say that a function takes a variable number of them."""

    program: str
    library: str | None
    functions: tuple[str, str]


LINUX = Waits(
    """
def wait(pool: ptr, word: ptr, seen: i32):
    pool.wait_call(FUTEX, word, 128, unsigned(seen), 0)
def wake(pool: ptr, word: ptr):
    pool.wake_call(FUTEX, word, 129, 1)
""",
    None,
    ("syscall", "syscall"),
)
MACOS = Waits(
    """
def wait(pool: ptr, word: ptr, seen: i32):
    pool.wait_call(1, word, unsigned(seen), 0)
def wake(pool: ptr, word: ptr):
    pool.wake_call(257, word, 0)
""",
    None,
    ("__ulock_wait", "__ulock_wake"),
)
WINDOWS = Waits(
    """
def wait(pool: ptr, word: ptr, seen: i32):
    compared = seen
    pool.wait_call(word, address(compared), 4, -1)
def wake(pool: ptr, word: ptr):
    pool.wake_call(word)
""",
    "api-ms-win-core-synch-l1-2-0.dll",
    ("WaitOnAddress", "WakeByAddressAll"),
)
WAITS = {"linux": LINUX, "darwin": MACOS, "win32": WINDOWS}
FUTEX = {"x86_64": 202, "aarch64": 98}  # the number of that call of Linux


@dataclass(frozen=True)
class Pause:
    """An instruction that tells the core that this is a spinning loop, in C and in LLVM IR; and how
    many of them take about 50 microseconds."""

    texts: tuple[str, str]
    declaration: str
    spins: int


PAUSES = {
    "x86_64": Pause(
        ("__builtin_ia32_pause();", "call void @llvm.x86.sse2.pause()"),
        "declare void @llvm.x86.sse2.pause()",
        1000,
    ),
    "aarch64": Pause(
        ('__asm__ volatile("yield");', "call void @llvm.aarch64.hint(i32 1)"),
        "declare void @llvm.aarch64.hint(i32)",
        5000,
    ),
}
