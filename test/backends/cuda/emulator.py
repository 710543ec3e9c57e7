"""Runs PTX on the host: a kernel becomes C, the system's compiler makes it code, and a small loop
runs its lanes warp by warp, in step where they meet. So what LLVM made for a card can be judged
without one. Each access of memory is checked: inside of what was allocated, and aligned.

Only what the renderer makes is known; anything else is an error that shows the line. Registers are
64-bit words of a lane; each instruction reads and writes as much of them as its type says. Lanes
meet at barriers, shuffles and matrix instructions by returning the number of the place.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

HEAD = r"""
#include <math.h>
#include <stdint.h>
#include <string.h>
typedef uint64_t W;
typedef unsigned char u8; typedef signed char s8; typedef u8 b8;
typedef uint16_t u16; typedef int16_t s16; typedef u16 b16;
typedef uint32_t u32; typedef int32_t s32; typedef u32 b32;
typedef uint64_t u64; typedef int64_t s64; typedef u64 b64;
typedef _Float16 f16; typedef float f32; typedef double f64;
enum { OUTSIDE = 700, STUCK = 702, MISALIGNED = 716, APART = 719 };
#define BITS(T, U) \
  static inline T as_##T(W x) { U u = (U)x; T y; memcpy(&y, &u, sizeof y); return y; } \
  static inline W of_##T(T x) { U u; memcpy(&u, &x, sizeof u); return u; }
BITS(f16, u16) BITS(f32, u32) BITS(f64, u64)
#define INTS(T) static inline T as_##T(W x) { return (T)x; }
INTS(u8) INTS(s8) INTS(u16) INTS(s16) INTS(u32) INTS(s32) INTS(u64) INTS(s64)
INTS(b8) INTS(b16) INTS(b32) INTS(b64)
#define UNSIGNED(T, U) static inline W of_##T(T x) { return (U)x; }
UNSIGNED(u8, u8) UNSIGNED(s8, u64) UNSIGNED(u16, u16) UNSIGNED(s16, u16)
UNSIGNED(u32, u32) UNSIGNED(s32, u32) UNSIGNED(u64, u64) UNSIGNED(s64, u64)
#define of_b8 of_u8
#define of_b16 of_u16
#define of_b32 of_u32
#define of_b64 of_u64
static inline f32 bf(W x) { return as_f32((W)(u16)x << 16); }
static inline W to_bf(f32 x) {
  u32 u = of_f32(x);
  return x != x ? 0x7fff : (u16)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
#define TO(T, LOW, HIGH) static inline T to_##T(f64 x) \
  { return x != x ? 0 : x <= (f64)(LOW) ? (LOW) : x >= (f64)(HIGH) ? (HIGH) : (T)x; }
TO(s8, INT8_MIN, INT8_MAX) TO(u8, 0, UINT8_MAX) TO(s16, INT16_MIN, INT16_MAX) TO(u16, 0, UINT16_MAX)
TO(s32, INT32_MIN, INT32_MAX) TO(u32, 0, UINT32_MAX) TO(s64, INT64_MIN, INT64_MAX)
TO(u64, 0, UINT64_MAX)
static inline f64 larger(f64 a, f64 b) {
  return a != a ? b : b != b ? a : a > b || (a == b && !signbit(a)) ? a : b;
}
static inline f64 smaller(f64 a, f64 b) {
  return a != a ? b : b != b ? a : a < b || (a == b && signbit(a)) ? a : b;
}
#define NANS(f, a, b) ((a) != (a) || (b) != (b) ? NAN : f(a, b))
#define SHL(a, n, w) ((u32)(n) >= w ? 0 : (a) << (n))
#define SHR(a, n, w) ((u32)(n) >= w ? ((a) < 0 ? -1 : 0) : (a) >> (n))
static inline s64 field(s64 x, u32 at, u32 count, int width, int is_signed) {
  u64 u = (u64)x & (width == 64 ? ~0ull : (1ull << width) - 1);
  at &= 255; count &= 255;
  u64 bits = at >= 64 ? 0 : u >> at;
  u64 kept = count >= 64 ? bits : bits & ((1ull << count) - 1);
  if (!is_signed || !count) return kept;
  u32 top = at + count - 1; if (top >= (u32)width) top = width - 1;
  if (at + count > (u32)width) count = at > (u32)width ? 0 : width - at;
  return (u >> top & 1) && count < 64 ? (s64)(kept | ~0ull << count) : (s64)kept;
}
static inline u32 permute(u32 a, u32 b, u32 how) {
  u64 both = (u64)b << 32 | a; u32 out = 0;
  for (int i = 0; i < 4; i++) {
    u32 n = how >> 4 * i & 15, byte = both >> 8 * (n & 7) & 255;
    out |= (n & 8 ? (byte & 128 ? 255 : 0) : byte) << 8 * i;
  }
  return out;
}
typedef struct { const u8 *map; W base, size; u8 *shared; u32 lent; int error; W at; } Place;
static u8 nothing[64];
/* Whether a lane wrote to shared memory what units that read it don't see: when it came to the
   barrier that lanes are at, and to the last one. How often something was told to a signal. */
static int arrived, unseen, events;
static inline u8 *global(Place *p, W at, u32 n) {
  W from = at - p->base;
  if (from + n > p->size || !p->map[from >> 9] || !p->map[(from + n - 1) >> 9]) {
    if (!p->error) { p->error = OUTSIDE; p->at = at; } return nothing; }
  if (at % n) { if (!p->error) { p->error = MISALIGNED; p->at = at; } return nothing; }
  return (u8 *)at;
}
static inline u8 *shared(Place *p, W at, u32 n) {
  at = (u32)at;
  if (at + n > p->lent) { if (!p->error) { p->error = OUTSIDE; p->at = at; } return nothing; }
  if (at % n) { if (!p->error) { p->error = MISALIGNED; p->at = at; } return nothing; }
  return p->shared + at;
}
static inline u8 *local(Place *p, W at, u32 n) { return (u8 *)at; }
static inline u8 *generic(Place *p, W at, u32 n) {
  return at - p->base < p->size ? global(p, at, n) : local(p, at, n);
}
"""

MATRICES = r"""
/* Matrices of a warp. Lane t holds rows t/4 (and 8 more), and of them the words t%4 (and 4 more);
   a word holds 1, 2 or 4 elements, as many as 32 bits do. */
enum { tf32, k_bf16, k_f16, k_s8, k_u8 };
static inline f64 element(W word, int kind, int i) {
  switch (kind) {
    case tf32: return as_f32(word & 0xffffe000u);
    case k_bf16: return bf(word >> 16 * i);
    case k_f16: return as_f16(word >> 16 * i);
    case k_s8: return (s8)(word >> 8 * i);
    default: return (u8)(word >> 8 * i);
  }
}
static inline f64 product(Lane *lane, int row, int column, int count, int a, int b) {
  f64 sum = 0;
  for (int k = 0; k < 8 * count; k++) {
    int word = k % (4 * count) / count, high = k / (4 * count), i = k % count;
    W x = lane->warp[row % 8 * 4 + word].seen[row / 8 + 2 * high];
    sum += element(x, a, i) * element(lane->warp[column * 4 + word].seen[4 + high], b, i);
  }
  return sum;
}
static inline u32 gathered(Lane *lane, Place *place, int matrix, int turned) {
  u32 out = 0;
  for (int i = 0; i < 2; i++) {
    int row = turned ? lane->id % 4 * 2 + i : lane->id / 4;
    int column = turned ? lane->id / 4 : lane->id % 4 * 2 + i;
    u16 x;
    u8 *m = shared(place, lane->warp[matrix * 8 + row].seen[0], 16);
    if (!place->error) { memcpy(&x, m + 2 * column, 2); out |= (u32)x << 16 * i; }
  }
  return out;
}
"""

STAGED = r"""
/* Copies and products that a lane began arrive as late as they may: when it waits for them. */
static void copied(Lane *lane, Place *place, u32 most) {
  u32 i = 0;
  for (; i < lane->copies && lane->copy[i].group + most < lane->copy_groups; i++) {
    u8 *to = shared(place, lane->copy[i].to, lane->copy[i].size);
    memset(to, 0, lane->copy[i].size);
    u32 taken = lane->copy[i].taken;
    if (taken) memcpy(to, global(place, lane->copy[i].from, lane->copy[i].size), taken);
    lane->unseen = 1;
  }
  memmove(lane->copy, lane->copy + i, (lane->copies - i) * sizeof *lane->copy);
  lane->copies -= i;
}
/* An element of an operand that a descriptor names: rows of 128 bytes, in groups of eight, whose
   chunks of 16 bytes are swizzled. */
static f64 staged(Place *place, W d, int kind, int size, int turned, int index, int k) {
  W row = turned ? k : index, at = (turned ? index : k) * size;
  if (d >> 62 != 1 || d >> 49 & 7) { if (!place->error) place->error = APART; return 0; }
  at = (d & 0x3fff) * 16 + row / 8 * (d >> 32 & 0x3fff) * 16 + row % 8 * 128
     + (turned ? at / 128 * (d >> 16 & 0x3fff) * 16 + at % 128 : at);
  at ^= (at >> 7 & 7) << 4;
  W x = 0;
  memcpy(&x, shared(place, at, size), size);
  return element(x, kind, 0);
}
static f64 staged_product(Lane *lane, Place *place, W a, W b, int i, int depth,
                          int kind, int size, int ta, int tb) {
  int row = lane->tid[0] / 32 % 4 * 16 + i / 2 % 2 * 8 + lane->id / 4;
  int column = i / 4 * 8 + lane->id % 4 * 2 + i % 2;
  f64 sum = 0;
  for (int k = 0; k < depth; k++)
    sum += staged(place, a, kind, size, ta, row, k) * staged(place, b, kind, size, tb, column, k);
  return sum;
}
"""

BOXES = r"""
/* Signals: 8 bytes of shared memory. Boxes arrive as late as they may: when somebody waits for the
   signal that is told of them, and nobody else is to arrive at it. */
typedef struct { u16 count, left; u8 odd, set; s16 units; } Signal;  /* units of 16 bytes to come */
typedef struct { W address, rank, size, sizes[5], strides[4]; u32 box[5]; } Map;
typedef struct { W signal, to; const Map *map; s64 at[5]; } Box;
static Box boxes[64];
static int box_count;
static Signal *signal_at(Place *p, W at) { return (Signal *)shared(p, at, 8); }
static void turn_over(Signal *s) {
  if (!s->left && !s->units) { s->left = s->count; s->odd ^= 1; }
}
static void begin_signal(Lane *lane, Place *p, W at, u32 count) {
  Signal *s = signal_at(p, at);
  *s = (Signal){count, count, 0, 0x5a, 0};
  lane->unseen = 1;
}
static void tell(Place *p, W at, u32 bytes) {
  Signal *s = signal_at(p, at);
  if (s->set != 0x5a || !s->left || unseen) { p->error = APART; return; }
  events++; s->left--; s->units += bytes / 16; turn_over(s);
}
static void copy_box(Place *p, Box *b) {
  const Map *m = b->map;
  u32 n = m->box[0] * m->box[1] * m->box[2];
  for (u32 i = 0; i < n; i++) {
    u32 turn[5] = {i % m->box[0], i / m->box[0] % m->box[1], i / m->box[0] / m->box[1], 0, 0};
    int inside = 1; W from = m->address;
    for (int a = 0; a < (int)m->rank; a++) {
      s64 x = b->at[a] + turn[a];
      inside &= x >= 0 && x < (s64)m->sizes[a];
      from += x * (a ? m->strides[a - 1] : m->size);
    }
    W to = b->to + i * m->size;
    to ^= (to >> 7 & 7) << 4;
    u8 *t = shared(p, to, m->size);
    if (inside) memcpy(t, global(p, from, m->size), m->size); else memset(t, 0, m->size);
  }
}
static int had(Place *p, W at, u32 odd) {
  Signal *s = signal_at(p, at);
  if (s->set != 0x5a) { p->error = APART; return 1; }
  if (!s->left) for (int i = 0; i < box_count; i++) if (boxes[i].signal == at) {
    copy_box(p, boxes + i);
    const Map *m = boxes[i].map;
    s->units -= m->box[0] * m->box[1] * m->box[2] * m->size / 16;
    boxes[i--] = boxes[--box_count]; events++;
    turn_over(s);
  }
  return s->odd != (odd & 1);
}
static void ask(Place *p, W to, const Map *map, W signal, int rank, s64 *at) {
  if (box_count == 64 || (int)map->rank != rank || unseen) { p->error = APART; return; }
  if (to % 128) { p->error = MISALIGNED; return; }
  Box b = {signal, to, map}; memcpy(b.at, at, rank * sizeof *at);
  boxes[box_count++] = b;
}
"""

TAIL = r"""
/* Lanes that have met stay until all of their warp have; one that waits for a signal is asked
   again after the others have gone on. */
static int warp(Lane *lanes, int count, const W *args, Place *place) {
  for (;;) {
    int met = -1, apart = 0, running = 0, waiting = 0;
    for (int i = 0; i < count; i++) {
      Lane *lane = lanes + i;
      if (lane->place < 0) continue;
      if (!lane->there) lane->place = step(lane, args, place);
      if (place->error) return -1;
      if (lane->place < 0) { events++; continue; }
      if (lane->place == WAITS) { waiting++; continue; }
      events += !lane->there; lane->there = 1;
      running++;
      if (met >= 0 && lane->place != met) apart = 1;
      met = lane->place;
    }
    if (waiting) return WAITS;
    if (!running) return 0;
    if (apart) { place->error = APART; return -1; }
    if (met & BLOCK_WIDE) return met;
    for (int i = 0; i < count; i++) lanes[i].there = 0;
    for (int i = 0; i < count; i++) memcpy(lanes[i].seen, lanes[i].told, sizeof lanes[i].told);
    for (int i = 0; i < count; i++) lanes[i].warp = lanes;
  }
}
int run(const W *args, const u32 *grid, const u32 *block, Place *place) {
  u32 count = block[0] * block[1] * block[2];
  Lane *lanes = __builtin_malloc(sizeof(Lane) * count);
  for (W group = 0; group < (W)grid[0] * grid[1] * grid[2] && !place->error; group++) {
    memset(place->shared, 0xff, place->lent);
    unseen = arrived = box_count = 0;
    memset(lanes, 0, sizeof(Lane) * count);
    for (u32 i = 0; i < count; i++) {
      Lane *lane = lanes + i;
      u32 id[] = {i % block[0], i / block[0] % block[1], i / block[0] / block[1]};
      u32 at[] = {group % grid[0], group / grid[0] % grid[1], group / grid[0] / grid[1]};
      memcpy(lane->tid, id, sizeof id); memcpy(lane->ctaid, at, sizeof at);
      memcpy(lane->ntid, block, sizeof id); memcpy(lane->nctaid, grid, sizeof at);
      lane->id = i & 31;
    }
    int going = 1;
    while (going && !place->error) {
      going = 0;
      int met = 0, waiting = 0, before = events;
      for (u32 first = 0; first < count; first += 32) {
        int found = warp(lanes + first, count - first < 32 ? count - first : 32, args, place);
        if (place->error) break;
        if (!found) continue;
        going = 1;
        if (found == WAITS) { waiting = 1; continue; }
        if (met && found != met) place->error = APART;
        met = found;
      }
      if (waiting) { if (events == before && !place->error) place->error = STUCK; continue; }
      for (u32 i = 0; i < count; i++) lanes[i].there = 0;
      unseen = arrived; arrived = 0;
    }
  }
  __builtin_free(lanes);
  return place->error;
}
"""

FLOATS = {"f16", "f32", "f64"}
BOX = ["shared::cluster", "global", "mbarrier::complete_tx::bytes"]
BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%", "and": "&", "or": "|"} | {
    "xor": "^"
}
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="} | {
    "lo": "<",
    "ls": "<=",
    "hi": ">",
    "hs": ">=",
}
SPECIAL = {
    f"%{name}.{axis}": f"lane->{name}[{number}]"
    for name in ("tid", "ctaid", "ntid", "nctaid")
    for number, axis in enumerate("xyz")
} | {"%laneid": "lane->id"}


@dataclass
class Kernel:
    """One entry of a module, as text of C and what a launch must agree with."""

    name: str
    parameters: list[int]  # bytes of each
    lanes: int  # of a group at most
    static: int  # bytes of shared memory that it declares
    source: str = field(repr=False)


class Translation:
    """One kernel while it is translated."""

    def __init__(self, head: str, body: str) -> None:
        match = re.search(r"\.entry\s+([\w$]+)", head)
        assert match, head
        self.name = match[1]
        given = re.findall(r"\.param[^,()]*?([\w$]+)(?:\[(\d+)\])?(?=\s*[,)\n])", head)
        self.parameters = [name for name, _ in given]
        self.sizes = [int(size or 8) for _, size in given]
        lanes = re.search(r"\.maxntid\s+(\d+)", head)
        self.lanes = int(lanes[1]) if lanes else 1024
        self.registers: dict[str, None] = {}
        self.places: dict[str, int] = {}
        self.shared, self.depot = 0, 0
        self.meetings = 0
        self.lines: list[str] = []
        self.products: list[str] = []  # what each instruction on staged operands does
        self._declare(body)

    def _declare(self, text: str) -> None:
        for align, name, size in re.findall(
            r"\.shared \.align (\d+) \.b8 ([\w$]+)\[(\d+)\];", text
        ):
            self.shared = -(-self.shared // int(align)) * int(align)
            self.places[name] = self.shared
            self.shared += int(size)
        for name in re.findall(r"\.extern \.shared \.align \d+ \.b8 ([\w$]+)\[\];", text):
            self.places[name] = 0
        for _align, size in re.findall(r"\.local \.align (\d+) \.b8 [\w$]+\[(\d+)\];", text):
            self.depot += int(size)

    # ---- operands --------------------------------------------------------------------------------

    def register(self, name: str) -> str:
        found = "r" + re.sub(r"\W", "_", name[1:])
        self.registers.setdefault(found)
        return f"lane->{found}"

    def word(self, text: str) -> str:
        """An operand as 64 bits."""
        if text in SPECIAL:
            return SPECIAL[text]
        if text.startswith("%"):
            return self.register(text)
        if text.startswith(("0f", "0d")):
            return f"0x{text[2:]}ull"
        if text.startswith("__local_depot"):
            return "(W)lane->depot"
        if text in self.places:
            return f"{self.places[text]}ull"
        if text in self.parameters:
            return f"{self.parameters.index(text)}ull"
        text = text.removesuffix("U")
        assert re.fullmatch(r"-?(0x[0-9A-Fa-f]+|\d+)", text), f"operand {text}"
        return f"(W)({text}ll)" if not text.startswith("0x") else f"{text}ull"

    def value(self, text: str, kind: str) -> str:
        if kind == "bf16":
            return f"bf({self.word(text)})"
        if kind == "pred":
            return f"(({self.word(text)}) & 1)"
        return f"as_{kind}({self.word(text)})"

    def put(self, target: str, kind: str, value: str) -> str:
        """Writes a value of that kind into a register."""
        if target == "_":
            return ";"
        if kind == "pred":
            return f"{self.register(target)} = ({value}) ? 1 : 0;"
        if kind == "bf16":
            return f"{self.register(target)} = to_bf({value});"
        return f"{self.register(target)} = of_{kind}(({kind})({value}));"

    def address(self, text: str) -> str:
        base, sign, offset = re.fullmatch(r"\[([%\w$.]+?)(?:([+-])(-?\d+))?\]", text).groups()
        moved = f" {sign} ({offset})" if sign else ""
        return f"({self.word(base)}{moved})"

    # ---- instructions ----------------------------------------------------------------------------

    def translate(self, body: str) -> str:
        begun = ""
        for line in body.splitlines():
            line = f"{begun} {line.split('//')[0].strip()}".strip()
            begun = ""
            if not line or line.startswith(".") or line in "{}":
                continue
            if not line.endswith((";", ":")):
                begun = line
                continue
            if label := re.fullmatch(r"(\$?[\w$]+):", line):
                self.lines.append(f"{_label(label[1])}:;")
                continue
            match = re.fullmatch(r"(?:@(!?)(%\w+)\s+)?([a-z][\w.:]*)\s*(.*?);", line)
            assert match, f"PTX: {line}"
            negated, predicate, name, rest = match.groups()
            text = self.instruction(name, _operands(rest), line)
            if predicate:
                condition = f"{negated}({self.register(predicate)} & 1)"
                text = f"if ({condition}) {{ {text} }}"
            self.lines.append(text)
        return "\n".join(f"  {line}" for line in self.lines)

    def instruction(self, name: str, operands: list[str], line: str) -> str:
        word, *rest = name.split(".")
        rule = getattr(self, f"_{word}", None)
        if rule is not None:
            return rule(rest, operands)
        if word in BINARY:
            return self._binary(word, rest, operands)
        raise AssertionError(f"PTX that the emulator doesn't know: {line}")

    def _binary(self, word: str, how: list[str], operands: list[str]) -> str:
        kind = how[-1]
        if kind.endswith("x2"):
            return self._halves(word, how, operands)
        target, a, b = operands[0], *(self.value(o, kind) for o in operands[1:])
        if "wide" in how:
            wide = kind[0] + str(2 * int(kind[1:]))
            return self.put(target, wide, f"({wide}){a} * ({wide}){b}")
        if "hi" in how:
            wide = {"u32": "u64", "s32": "s64", "u64": "unsigned __int128", "s64": "__int128"}[kind]
            return self.put(target, kind, f"({wide}){a} * ({wide}){b} >> {kind[1:]}")
        if word in ("div", "rem") and kind not in FLOATS:
            return f"if ({b}) " + self.put(target, kind, f"{a} {BINARY[word]} {b}")
        if kind == "s64" and word in ("add", "sub", "mul"):
            a, b = f"(u64){a}", f"(u64){b}"
        return self.put(target, kind, f"{a} {BINARY[word]} {b}")

    def _halves(self, word: str, how: list[str], operands: list[str]) -> str:
        """Two 16-bit values in a word."""
        kind, halves = how[-1].removesuffix("x2"), []
        for shift in (0, 16):
            parts = [f"({self.word(o)} >> {shift})" for o in operands[1:]]
            values = [f"bf({p})" if kind == "bf16" else f"as_{kind}({p})" for p in parts]
            made = self._arithmetic(word, how, values)
            made = f"to_bf({made})" if kind == "bf16" else f"of_{kind}({made})"
            halves.append(f"({made} << {shift})")
        return f"{self.register(operands[0])} = {' | '.join(halves)};"

    def _arithmetic(self, word: str, how: list[str], values: list[str]) -> str:
        if word == "fma":
            return f"fma({', '.join(values)})"
        if word in ("max", "min"):
            function = {"max": "larger", "min": "smaller"}[word]
            plain = f"{function}({', '.join(values)})"
            return f"NANS({function}, {', '.join(values)})" if "NaN" in how else plain
        if word == "neg":
            return f"-{values[0]}"
        return f"{values[0]} {BINARY[word]} {values[1]}"

    def _max(self, how: list[str], operands: list[str], word: str = "max") -> str:
        kind = how[-1]
        if kind.endswith("x2"):
            return self._halves(word, how, operands)
        values = [self.value(o, kind) for o in operands[1:]]
        if kind in FLOATS or kind == "bf16":
            return self.put(operands[0], kind, self._arithmetic(word, how, values))
        a, b = values
        sign = ">" if word == "max" else "<"
        return self.put(operands[0], kind, f"{a} {sign} {b} ? {a} : {b}")

    def _min(self, how: list[str], operands: list[str]) -> str:
        return self._max(how, operands, "min")

    def _fma(self, how: list[str], operands: list[str]) -> str:
        kind = how[-1]
        if kind.endswith("x2"):
            return self._halves("fma", how, operands)
        values = ", ".join(self.value(o, kind) for o in operands[1:])
        function = "fmaf" if kind == "f32" else "fma"
        return self.put(operands[0], kind, f"{function}({values})")

    def _mad(self, how: list[str], operands: list[str]) -> str:
        kind = how[-1]
        a, b, c = (f"({_unsigned(kind)}){self.value(o, kind)}" for o in operands[1:])
        if "wide" in how:
            a, b = (self.value(o, kind) for o in operands[1:3])
            kind = kind[0] + str(2 * int(kind[1:]))
            c = self.value(operands[3], kind)
            return self.put(operands[0], kind, f"({kind}){a} * ({kind}){b} + {c}")
        return self.put(operands[0], kind, f"{a} * {b} + {c}")

    def _neg(self, how: list[str], operands: list[str]) -> str:
        kind = how[-1]
        if kind.endswith("x2"):
            return self._halves("neg", how, operands)
        sign = "-" if kind in FLOATS or kind == "bf16" else f"0 - ({_unsigned(kind)})"
        return self.put(operands[0], kind, f"{sign}{self.value(operands[1], kind)}")

    def _abs(self, how: list[str], operands: list[str]) -> str:
        kind = how[-1]
        a = self.value(operands[1], kind)
        return self.put(operands[0], kind, f"fabs({a})" if kind in FLOATS else f"{a}<0 ? 0-{a}:{a}")

    def _sqrt(self, how: list[str], operands: list[str]) -> str:
        kind = how[-1]
        name = "sqrtf" if kind == "f32" else "sqrt"
        return self.put(operands[0], kind, f"{name}({self.value(operands[1], kind)})")

    def _rcp(self, how: list[str], operands: list[str]) -> str:
        return self.put(operands[0], how[-1], f"1 / {self.value(operands[1], how[-1])}")

    def _not(self, how: list[str], operands: list[str]) -> str:
        sign = "!" if how[-1] == "pred" else "~"
        return self.put(operands[0], how[-1], f"{sign}{self.value(operands[1], how[-1])}")

    def _shl(self, how: list[str], operands: list[str], word: str = "SHL") -> str:
        kind = how[-1]
        a, n = self.value(operands[1], kind), self.value(operands[2], "u32")
        return self.put(operands[0], kind, f"{word}({a}, {n}, {kind[1:]})")

    def _shr(self, how: list[str], operands: list[str]) -> str:
        return self._shl(how, operands, "SHR")

    def _shf(self, how: list[str], operands: list[str]) -> str:
        low, high, n = (self.value(o, "u32") for o in operands[1:])
        n = f"({n} & 31)" if "wrap" in how else f"({n} > 32 ? 32 : {n})"
        both = f"((u64){high} << 32 | {low})"
        made = f"{both} << {n} >> 32" if how[0] == "l" else f"{both} >> {n}"
        return self.put(operands[0], "u32", made)

    def _bfe(self, how: list[str], operands: list[str]) -> str:
        kind = how[-1]
        numbers = ", ".join(self.value(o, "u32") for o in operands[2:])
        signed = int(kind[0] == "s")
        value = f"field({self.value(operands[1], kind)}, {numbers}, {kind[1:]}, {signed})"
        return self.put(operands[0], kind, value)

    def _bfi(self, how: list[str], operands: list[str]) -> str:
        """Some bits of the first into the second."""
        kind = how[-1]
        a, b = (self.value(o, kind) for o in operands[1:3])
        at, count = (f"({self.value(o, 'u32')} & 255)" for o in operands[3:])
        mask = f"(({count} > 63 ? ~0ull : (1ull << {count}) - 1) << {at})"
        return self.put(operands[0], kind, f"({b} & ~{mask}) | (((u64){a} << {at}) & {mask})")

    def _prmt(self, how: list[str], operands: list[str]) -> str:
        values = ", ".join(self.value(o, "u32") for o in operands[1:])
        return self.put(operands[0], "u32", f"permute({values})")

    def _clz(self, how: list[str], operands: list[str]) -> str:
        kind, word = how[-1], {"b32": "clz", "b64": "clzll"}[how[-1]]
        a = self.value(operands[1], kind)
        return self.put(operands[0], "u32", f"{a} ? __builtin_{word}({a}) : {kind[1:]}")

    def _brev(self, how: list[str], operands: list[str]) -> str:
        kind, target = how[-1], self.register(operands[0])
        a = self.value(operands[1], kind)
        loop = f"for (int i = 0; i < {kind[1:]}; i++) y = y << 1 | (x >> i & 1);"
        return f"{{ W x = {a}, y = 0; {loop} {target} = y; }}"

    def _popc(self, how: list[str], operands: list[str]) -> str:
        return self.put(
            operands[0], "u32", f"__builtin_popcountll({self.value(operands[1], how[-1])})"
        )

    def _setp(self, how: list[str], operands: list[str]) -> str:
        test, kind = how[0], how[-1]
        a, b = (self.value(o, kind) for o in operands[1:])
        unordered = f"({a} != {a} || {b} != {b})"
        if test == "nan":
            made = unordered
        elif test == "num":
            made = f"!{unordered}"
        elif test in COMPARE and kind in (*FLOATS, "bf16"):
            made = f"!{unordered} && {a} {COMPARE[test]} {b}"
        elif test in COMPARE:
            made = f"{a} {COMPARE[test]} {b}"
        else:  # unordered, or the comparison
            made = f"{unordered} || {a} {COMPARE[test[:-1]]} {b}"
        return self.put(operands[0], "pred", made)

    def _selp(self, how: list[str], operands: list[str]) -> str:
        a, b = (self.value(o, how[-1]) for o in operands[1:3])
        return self.put(operands[0], how[-1], f"({self.word(operands[3])} & 1) ? {a} : {b}")

    def _cvt(self, how: list[str], operands: list[str]) -> str:
        *mode, new, old = how
        if new.endswith("x2"):  # the first source is the upper half
            high, low = (self.value(o, old) for o in operands[1:])
            pack = "to_bf" if new == "bf16x2" else "of_f16"
            return f"{self.register(operands[0])} = (W){pack}({high}) << 16 | {pack}({low});"
        a = self.value(operands[1], old)
        is_float = old in FLOATS or old == "bf16"
        rounding = {"rzi": "trunc", "rni": "rint", "rmi": "floor", "rpi": "ceil"}
        for word, function in rounding.items():
            if word in mode:
                a = f"{function}({a})"
        if new in FLOATS or new == "bf16":
            return self.put(operands[0], new, a)
        return self.put(operands[0], new, f"to_{new}({a})" if is_float else a)

    def _cvta(self, how: list[str], operands: list[str]) -> str:
        assert "shared" not in how, "generic addresses of shared memory"
        if "param" in how:
            return f"{self.register(operands[0])} = args[{self.word(operands[1])}];"
        return f"{self.register(operands[0])} = {self.word(operands[1])};"

    def _mov(self, how: list[str], operands: list[str]) -> str:
        target, source = operands
        size = int(how[-1][1:]) if how[-1] != "pred" else 1
        if target.startswith("{"):
            names = _parts(target)
            each = size // len(names)
            moves = [
                self.put(n, f"b{each}", f"{self.word(source)} >> {i * each}")
                for i, n in enumerate(names)
                if n != "_"
            ]
            return f"{{ {' '.join(moves)} }}"
        if source.startswith("{"):
            names = _parts(source)
            each = size // len(names)
            lanes = [f"(W){self.value(n, f'b{each}')} << {i * each}" for i, n in enumerate(names)]
            return f"{self.register(target)} = {' | '.join(lanes)};"
        return f"{self.register(target)} = {self.word(source)};"

    # ---- memory ----------------------------------------------------------------------------------

    def _ld(self, how: list[str], operands: list[str]) -> str:
        space, kind = _space(how), how[-1]
        if space == "param":
            match = re.fullmatch(r"\[(%?[\w$]+)\]", operands[1])
            assert match, operands  # by name, or by a number that was picked
            number = self.word(match[1])
            return f"{self.register(operands[0])} = args[{number}];"
        names = _parts(operands[0])
        size, where = int(kind[1:]) // 8, self.address(operands[1])
        loads = [f"u8 *m = {space}(place, {where}, {size * len(names)});"]
        for i, name in enumerate(names):
            loads.append(f"{{ {kind} x; memcpy(&x, m + {i * size}, {size}); ")
            loads.append(f"{self.put(name, kind, 'x')} }}")
        return f"{{ {' '.join(loads)} }}"

    def _st(self, how: list[str], operands: list[str]) -> str:
        space, kind = _space(how), how[-1]
        names = _parts(operands[1])
        size, where = int(kind[1:]) // 8, self.address(operands[0])
        stores = [f"u8 *m = {space}(place, {where}, {size * len(names)});"]
        if space == "shared":
            stores.append("lane->unseen = 1;")
        for i, name in enumerate(names):
            stores.append(
                f"{{ {kind} x = {self.value(name, kind)}; memcpy(m + {i * size}, &x, {size}); }}"
            )
        return f"{{ {' '.join(stores)} }}"

    def _atom(self, how: list[str], operands: list[str]) -> str:
        assert "cas" in how and "global" in how, how
        kind, size = how[-1], int(how[-1][1:]) // 8
        old, new = (self.value(o, kind) for o in operands[2:])
        body = f"{kind} *m = ({kind} *)global(place, {self.address(operands[1])}, {size}), x = *m;"
        return f"{{ {body} if (x == {old}) *m = {new}; {self.put(operands[0], kind, 'x')} }}"

    def _cp(self, how: list[str], operands: list[str]) -> str:
        """Asynchronous copies arrive when they are waited for."""
        if how[1] == "bulk":
            return self._box(how, operands)
        assert how[0] == "async", how
        if how[1] == "commit_group":
            return "lane->copy_groups++;"
        if how[1] == "wait_group":
            return f"copied(lane, place, {operands[0]});"
        assert how[1] in ("ca", "cg"), how
        target, source, size = self.address(operands[0]), self.address(operands[1]), operands[2]
        taken = self.value(operands[3], "u32") if len(operands) > 3 else size
        made = f"(Copied){{{target}, {source}, {size}, {taken}, lane->copy_groups}}"
        full = "if (lane->copies == MOST) place->error = OUTSIDE; else "
        return f"{full}lane->copy[lane->copies++] = {made};"

    def _box(self, how: list[str], operands: list[str]) -> str:
        assert how[2:] == ["tensor", how[3], *BOX], how
        rank = int(how[3].removesuffix("d"))
        match = re.fullmatch(r"\[(%\w+), \{(.*)\}\]", operands[1])
        assert match, operands
        places = [self.value(x, "s32") for x in _parts(match[2])]
        assert len(places) == rank, operands
        map_ = f"(const Map *)({self.word(match[1])})"
        at = f"(s64[]){{{', '.join(places)}}}"
        ends = self.address(operands[0]), self.address(operands[2])
        return f"ask(place, {ends[0]}, {map_}, {ends[1]}, {rank}, {at});"

    def _mbarrier(self, how: list[str], operands: list[str]) -> str:
        """A lane that waits comes back until the signal has had its turn."""
        if how[0] == "init":
            count = self.value(operands[1], "u32")
            return f"begin_signal(lane, place, {self.address(operands[0])}, {count});"
        if how[0] == "arrive":
            assert operands[0] == "_", operands
            count = self.value(operands[2], "u32") if how[1] == "expect_tx" else "0"
            return f"tell(place, {self.address(operands[1])}, {count});"
        assert how[:2] == ["try_wait", "parity"], how
        self.meetings += 1
        test = f"had(place, {self.address(operands[1])}, {self.value(operands[2], 'u32')})"
        stay = f"{{ lane->at = {self.meetings}; return WAITS; }}"
        return f"M{self.meetings}:; if (!{test}) {stay} {self.put(operands[0], 'pred', '1')}"

    def _fence(self, how: list[str], operands: list[str]) -> str:
        assert how == ["proxy", "async", "shared::cta"], how
        return "lane->unseen = 0;"

    def _wgmma(self, how: list[str], operands: list[str]) -> str:
        """Four warps multiply staged operands: registers change when they are waited for."""
        if how[0] == "fence":
            return ";"
        if how[0] == "commit_group":
            return "lane->product_groups++;"
        if how[0] == "wait_group":
            return f"multiplied(lane, place, {operands[0]});"
        shape, result, a, b = how[3:]
        _, columns, depth = map(int, re.fullmatch(r"m(64)n(\d+)k(\d+)", shape).groups())
        size = {"tf32": 4, "bf16": 2, "f16": 2, "s8": 1, "u8": 1}[a]
        registers, immediates = _parts(operands[0]), operands[4:]
        assert len(registers) == columns // 2 and a == b and depth == 32 // size, operands
        assert immediates[:2] == ["1"] * len(immediates[:2]), operands
        turned = ", ".join(immediates[2:] or ["0", "0"])
        kind = a if a == "tf32" else f"k_{a}"
        sums = []
        for i, name in enumerate(registers):
            product = f"staged_product(lane, place, a, b, {i}, {depth}, {kind}, {size}, {turned})"
            sums.append(self.put(name, result, f"{self.value(name, result)} + {product}"))
        self.products.append(" ".join(sums))
        first, second = (self.word(x) for x in operands[1:3])
        made = f"(Product){{{len(self.products)}, lane->product_groups, {first}, {second}}}"
        full = "if (unseen || lane->products == MOST) place->error = APART; else "
        return f"{full}lane->product[lane->products++] = {made};"

    # ---- the way, and meetings -------------------------------------------------------------------

    def _bra(self, how: list[str], operands: list[str]) -> str:
        return f"goto {_label(operands[0])};"

    def _ret(self, how: list[str], operands: list[str]) -> str:
        return "return -1;"

    def _bar(self, how: list[str], operands: list[str]) -> str:
        return self._meet("BLOCK_WIDE | ", "" if "warp" not in how else "warp")

    def _barrier(self, how: list[str], operands: list[str]) -> str:
        return self._meet("BLOCK_WIDE | ")

    def _meet(self, wide: str, scope: str = "") -> str:
        self.meetings += 1
        where = "" if scope else wide
        seen = "arrived |= lane->unseen; " if where else ""
        return (
            f"{seen}lane->at = {self.meetings}; return {where}{self.meetings}; M{self.meetings}:;"
        )

    def _shfl(self, how: list[str], operands: list[str]) -> str:
        target, source, number = operands[:3]
        clamp = self.value(operands[3], "u32")
        other = {
            "bfly": "lane->id ^ n",
            "down": "lane->id + n",
            "up": "lane->id - n",
            "idx": "(lane->id & s) | (n & ~s & 31)",
        }[how[1]]
        inside = "i >= (s32)m" if how[1] == "up" else "i <= (s32)m"
        names = target.split("|")
        told = f"lane->told[0] = {self.word(source)};"
        edge = f"u32 n = {self.value(number, 'u32')}, c = {clamp}, s = c >> 8 & 31, m = "
        edge += "lane->id & s;" if how[1] == "up" else "(lane->id & s) | (c & 31 & ~s);"
        get = f"s32 i = {other}; int ok = {inside}; if (!ok) i = lane->id;"
        made = self.put(names[0], "b32", "lane->warp[i].seen[0]")
        ok = self.put(names[1], "pred", "ok") if len(names) > 1 else ""
        return f"{told} {self._meet('')} {{ {edge} {get} {made} {ok} }}"

    def _ldmatrix(self, how: list[str], operands: list[str]) -> str:
        """Lanes 0 to 7 name the rows of the first matrix, the next 8 those of the second."""
        told = f"lane->told[0] = {self.address(operands[1])};"
        turned = int("trans" in how)
        gets = [
            self.put(name, "b32", f"gathered(lane, place, {i}, {turned})")
            for i, name in enumerate(_parts(operands[0]))
        ]
        return f"{told} {self._meet('')} {' '.join(gets)}"

    def _mma(self, how: list[str], operands: list[str]) -> str:
        result, a, b, _ = how[-4:]
        d, first, second, c = map(_parts, operands)
        count = {"tf32": 1, "bf16": 2, "f16": 2, "s8": 4, "u8": 4}[a]  # elements of a word
        assert len(first) == 4 and len(second) == 2, operands
        words = [f"lane->told[{i}] = {self.word(x)};" for i, x in enumerate((*first, *second))]
        kinds = ", ".join(k if k == "tf32" else f"k_{k}" for k in (a, b))
        sums = []
        for i, start in enumerate(c):
            at = f"lane->id / 4 + {i // 2 * 8}, lane->id % 4 * 2 + {i % 2}, {count}, {kinds}"
            value = f"{self.value(start, result)} + product(lane, {at})"
            sums.append(f"{result} y{i} = {value};")
        puts = [self.put(target, result, f"y{i}") for i, target in enumerate(d)]
        return f"{' '.join(words)} {self._meet('')} {{ {' '.join(sums)} {' '.join(puts)} }}"

    def kernel(self, body: str) -> Kernel:
        """The whole kernel, after its body was translated."""
        text = self.translate(body)
        fields = " ".join(f"W {name};" for name in self.registers)
        depot = f"u8 depot[{max(16, self.depot)}] __attribute__((aligned(16)));"
        most = 128 if "copied(" in text or self.products else 1
        lane = f"""
enum {{ BLOCK_WIDE = 1 << 20, WAITS = 1 << 21, MOST = {most} }};
typedef struct {{ W to, from; u32 size, taken, group; }} Copied;
typedef struct {{ u32 number, group; W a, b; }} Product;
typedef struct Lane {{ int place, at; u32 id, tid[3], ctaid[3], ntid[3], nctaid[3];
  W told[8], seen[8]; struct Lane *warp; {fields} {depot}
  u32 copies, copy_groups, products, product_groups, unseen, there;
  Copied copy[MOST]; Product product[MOST]; }} Lane;
{MATRICES}{STAGED}{BOXES}{self._multiplied()}
static int step(Lane *lane, const W *args, Place *place) {{
  switch (lane->at) {{ {" ".join(f"case {i}: goto M{i};" for i in range(1, self.meetings + 1))} }}
{text}
  return -1;
}}
"""
        return Kernel(self.name, self.sizes, self.lanes, self.shared, HEAD + lane + TAIL)

    def _multiplied(self) -> str:
        """The function that does what the products so far do."""
        cases = "\n".join(f"      case {i}: {x} break;" for i, x in enumerate(self.products, 1))
        return f"""
static void multiplied(Lane *lane, Place *place, u32 most) {{
  u32 i = 0;
  for (; i < lane->products && lane->product[i].group + most < lane->product_groups; i++) {{
    W a = lane->product[i].a, b = lane->product[i].b;
    switch (lane->product[i].number) {{
{cases}
    }}
  }}
  memmove(lane->product, lane->product + i, (lane->products - i) * sizeof *lane->product);
  lane->products -= i;
}}
"""


def _space(how: list[str]) -> str:
    """The memory that an access names, or any."""
    named = {"global", "shared", "local", "param"}.intersection(how)
    return named.pop() if named else "generic"


def _unsigned(kind: str) -> str:
    return "u" + kind[1:]


def _label(name: str) -> str:
    return "L" + re.sub(r"\W", "_", name)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.strip("{}").split(",")]


def _operands(text: str) -> list[str]:
    """Operands, where a list in braces is one."""
    return [part.strip() for part in re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", text)]


def translate(ptx: str) -> list[Kernel]:
    """The kernels of a module."""
    ptx = re.sub(r"\t", " ", ptx)
    entries = re.split(r"(?=\.visible \.entry)", ptx)
    found = []
    for entry in entries[1:]:
        head, _, body = entry.partition("\n{")
        made = Translation(head, entries[0] + body)
        found.append(made.kernel(body.rpartition("}")[0]))
    return found


def build(kernel: Kernel, folder: Path | None = None):
    """The kernel as a function of the host."""
    folder = folder or Path(tempfile.mkdtemp())
    source, made = folder / f"{kernel.name}.c", folder / f"{kernel.name}.so"
    source.write_text(kernel.source)
    # each is compiled for a few launches: to optimise it takes longer than they do
    flags = ["-O0", "-shared", "-fPIC", "-fwrapv", "-ffp-contract=off", "-fno-strict-aliasing"]
    command = ["cc", *flags, "-march=native", "-w", "-o", str(made), str(source), "-lm"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{ran.stderr}\n{kernel.source}"
    function = ctypes.CDLL(str(made)).run
    function.restype = ctypes.c_int
    function.argtypes = (ctypes.c_void_p,) * 4
    return function
