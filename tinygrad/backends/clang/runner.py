"""The runner of the CPU device (see `backends/cpu/runner.py`) in C, for machines without LLVM.

It does what `backends/cpu/runner_ir.py` says in LLVM's language, on the same words in memory, so
the pool and the segments of the CPU work with either.
"""

from __future__ import annotations

import platform
import sys

from tinygrad.backends.clang.compiler import CCompiler, load_shared
from tinygrad.backends.cpu.runner import FUNCTIONS, ObjectCache, Runner, cached_object, system_name
from tinygrad.backends.cpu.runner_ir import OFFSETS
from tinygrad.backends.cpu.target import MACHINES

# How a thread sleeps on a word while it holds `seen`, and how one that sleeps is woken.
WAITS = {
    "linux": """
#include <sys/syscall.h>
typedef long (*wait_call)(long, ...), (*wake_call)(long, ...);
#define sleep_on(pool, word, seen) (pool)->wait(SYS_futex, (word), 128L, (long)(seen), 0L)
#define wake_one(pool, word) (pool)->wake(SYS_futex, (word), 129L, 1L)
""",
    "darwin": """
typedef int (*wait_call)(unsigned, void*, unsigned long long, unsigned);
typedef int (*wake_call)(unsigned, void*, unsigned long long);
#define sleep_on(pool, word, seen) (pool)->wait(1, (word), (unsigned)(seen), 0)
#define wake_one(pool, word) (pool)->wake(257, (word), 0)
""",
    "win32": """
typedef int (*wait_call)(volatile void*, void*, unsigned long long, unsigned);
typedef void (*wake_call)(void*);
#define sleep_on(pool, word, seen) { int old = (seen); (pool)->wait((word), &old, 4, -1); }
#define wake_one(pool, word) (pool)->wake(word)
""",
}
PAUSES = {"x86_64": "__builtin_ia32_pause()", "aarch64": '__asm__ volatile("yield")'}

# The words of `runner_ir`: what different threads write lies in different pairs of cache lines.
WORDS = """
#include <stddef.h>
typedef long long i64;
typedef void (*kernel)(void** arguments, i64 low, i64 high, char* scratch);

struct seat {          // one for each thread; the caller's is the first
  int remaining;       // chunks of this seat's range that nobody has taken, or below zero
  int sleeps;          // its helper sleeps, or is about to
  char* scratch;
  char apart[112];
};
struct pool {
  kernel function; void** arguments; i64 tasks, chunk, chunks, ranges;
  int* stop;           // not 0 if no more chunk should run
  char apart0[72];
  int finished;        // chunks of the open kernel that are done
  int caller_sleeps;   // until `finished` changes
  char apart1[120];
  i64 spins;           // how often to look before sleeping
  wait_call wait; wake_call wake;
  int quit;            // helpers should return
  char apart2[100];
  struct seat seats[];
};
struct record {
  kernel function; void** arguments; unsigned* positions;
  i64 count, tasks, chunk, chunks, ranges, wake;
};
struct list {
  struct record* records; i64 count; int* stop; struct pool* pool; char* scratch; i64 table[];
};
_Static_assert(offsetof(struct pool, stop) == {STOP}, "");
_Static_assert(offsetof(struct pool, finished) == {FINISHED}, "");
_Static_assert(offsetof(struct pool, caller_sleeps) == {CALLER_SLEEPS}, "");
_Static_assert(offsetof(struct pool, spins) == {SPINS}, "");
_Static_assert(offsetof(struct pool, wait) == {WAIT_CALL}, "");
_Static_assert(offsetof(struct pool, wake) == {WAKE_CALL}, "");
_Static_assert(offsetof(struct pool, quit) == {QUIT}, "");
_Static_assert(offsetof(struct pool, seats) == {SEATS}, "");
_Static_assert(offsetof(struct seat, sleeps) == {SEAT_SLEEPS}, "");
_Static_assert(offsetof(struct seat, scratch) == {SEAT_SCRATCH}, "");
_Static_assert(sizeof(struct seat) == {SEAT}, "");
"""

CODE = """
#define RELAXED __ATOMIC_RELAXED
#define ORDERED __ATOMIC_SEQ_CST

// Take chunks of the open kernel: those of the own seat first, then those of the next ones, until
// none is left; then count those done. The open kernel can't end before they are counted.
static void work(struct pool* pool, i64 own, char* volatile* scratch) {
  i64 visits = __atomic_load_n(&pool->ranges, RELAXED), thread = own;
  int done = 0;
  for (i64 visited = 0; visited == 0 || visited < visits; visited++) {
    int* remaining = &pool->seats[thread].remaining;
    while (__atomic_load_n(remaining, RELAXED) > 0) {
      int left = __atomic_fetch_sub(remaining, 1, __ATOMIC_ACQ_REL);
      if (left <= 0) break;
      i64 ranges = __atomic_load_n(&pool->ranges, RELAXED);
      i64 low = ((thread + 1) * pool->chunks / ranges - left) * pool->chunk;
      i64 high = low + pool->chunk < pool->tasks ? low + pool->chunk : pool->tasks;
      if (!__atomic_load_n(pool->stop, RELAXED))
        pool->function(pool->arguments, low, high, *scratch);
      done++;
    }
    thread = thread + 1 < visits ? thread + 1 : 0;
  }
  __atomic_fetch_add(&pool->finished, done, ORDERED);
}

// Open a kernel, whose words are written, to the helpers; work on it; wait till it is done.
static void share(struct pool* pool, i64 wakes, char* scratch) {
  i64 end = pool->chunks;
  int all = (int)pool->chunks;
  __atomic_store_n(&pool->finished, 0, RELAXED);
  for (i64 thread = pool->ranges - 1; thread >= 0; thread--) {
    struct seat* seat = &pool->seats[thread];
    i64 start = thread * pool->chunks / pool->ranges;
    __atomic_store_n(&seat->remaining, (int)(end - start), ORDERED);
    if (__atomic_load_n(&seat->sleeps, ORDERED) && wakes) wake_one(pool, &seat->remaining);
    end = start;
  }
  work(pool, 0, &scratch);
  for (i64 spun = 0; __atomic_load_n(&pool->finished, __ATOMIC_ACQUIRE) != all; spun++) {
    if (spun < pool->spins) { pause(); continue; }
    __atomic_store_n(&pool->caller_sleeps, 1, ORDERED);
    int now = __atomic_load_n(&pool->finished, ORDERED);
    if (now != all) sleep_on(pool, &pool->finished, now);
    __atomic_store_n(&pool->caller_sleeps, 0, ORDERED);
    spun = -1;
  }
}

// Run the records of a list; without a pool the caller runs every task itself, a chunk at a time.
EXPORT void run_list(struct list* list) {
  struct pool* pool = list->pool;
  int* stop = list->stop;
  char* scratch = list->scratch;
  for (struct record *at = list->records, *end = at + list->count; at < end; at++) {
    for (i64 i = 0; i < at->count; i++) ((i64*)at->arguments)[i] = list->table[at->positions[i]];
    if (!pool || !at->chunks) {
      for (i64 low = 0, high; low == 0 || low < at->tasks; low = high) {
        if (__atomic_load_n(stop, RELAXED)) return;
        high = at->chunk < at->tasks - low ? low + at->chunk : at->tasks;
        at->function(at->arguments, low, high, scratch);
        if (high == at->tasks) break;
      }
      continue;
    }
    pool->function = at->function;
    pool->arguments = at->arguments;
    pool->tasks = at->tasks;
    pool->chunk = at->chunk;
    pool->chunks = at->chunks;
    pool->stop = stop;
    __atomic_store_n(&pool->ranges, at->ranges, RELAXED);
    share(pool, at->wake, scratch);
  }
}

// A helper's whole life: look for work in its own seat, spin a little, sleep, until told to quit.
EXPORT void help(struct pool* pool, i64 thread) {
  struct seat* seat = &pool->seats[thread];
  i64 spun = 0;
  for (;;) {
    if (__atomic_load_n(&seat->remaining, __ATOMIC_ACQUIRE) > 0) {
      work(pool, thread, &seat->scratch);
      if (__atomic_load_n(&pool->caller_sleeps, ORDERED)) wake_one(pool, &pool->finished);
      spun = 0;
    } else if (__atomic_load_n(&pool->quit, __ATOMIC_ACQUIRE)) {
      return;
    } else if (spun++ < pool->spins) {
      pause();
    } else {
      __atomic_store_n(&seat->sleeps, 1, ORDERED);
      int late = __atomic_load_n(&seat->remaining, ORDERED);
      if (late <= 0 && !__atomic_load_n(&pool->quit, ORDERED))
        sleep_on(pool, &seat->remaining, late);
      __atomic_store_n(&seat->sleeps, 0, ORDERED);
      spun = 0;
    }
  }
}

// End the helper of a seat. Its `remaining` changes, so that it can't fall asleep on the old value.
EXPORT void dismiss(struct pool* pool, i64 thread) {
  __atomic_store_n(&pool->quit, 1, ORDERED);
  __atomic_fetch_sub(&pool->seats[thread].remaining, 1, ORDERED);
  wake_one(pool, &pool->seats[thread].remaining);
}
"""


def runner_source(system: str, machine: str) -> str:
    """The C for an operating system (`sys.platform`) and a machine of `PAUSES`."""
    words = WORDS
    for name, offset in OFFSETS.items():
        words = words.replace("{" + name + "}", str(offset))
    export = "__declspec(dllexport)" if system == "win32" else ""
    defined = f"#define pause() {PAUSES[machine]}\n#define EXPORT {export}\n"
    return defined + WAITS[system] + words + CODE


def load_c_runner(compiler: CCompiler, cache: ObjectCache | None = None) -> Runner:
    """The runner for this machine, from the cache if it is there."""
    machine = MACHINES.get(platform.machine().lower(), platform.machine().lower())
    source = runner_source(system_name(), machine)
    binary = cached_object(compiler, source, sys.platform, cache)
    return Runner(load_shared(binary, FUNCTIONS), machine)
