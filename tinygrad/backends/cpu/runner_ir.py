"""The text of the runner: LLVM IR of the functions that `runner.py` describes and loads."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Where the words of the pool begin, in bytes: first those of the open kernel. Words that different
# threads write lie in different pairs of cache lines.
OFFSETS = {
    "FUNCTION": 0,  # ptr
    "ARGUMENTS": 8,  # ptr
    "TASKS": 16,  # i64
    "CHUNK": 24,  # i64: tasks of a chunk
    "CHUNKS": 32,  # i64
    "RANGES": 40,  # i64
    "STOP": 48,  # ptr to an i32: not 0 if no more chunk should run
    "FINISHED": 128,  # i32: chunks of the open kernel that are done
    "CALLER_SLEEPS": 132,  # i32: the caller waits in the system for `finished` to change
    "SPINS": 256,  # i64: how often to look before sleeping
    "WAIT_CALL": 264,  # ptr: the system's function to sleep
    "WAKE_CALL": 272,  # ptr: the system's function to wake
    "QUIT": 280,  # i32: helpers should return
    "SEATS": 384,  # one for each thread; the caller's is the first
    # a seat begins with an i32, `remaining`: chunks of its range that nobody has taken, or below 0
    "SEAT": 128,  # bytes of a seat
    "SEAT_SLEEPS": 4,  # i32: its helper sleeps, or is about to
    "SEAT_SCRATCH": 8,  # ptr: its helper's scratch memory
}


@dataclass(frozen=True)
class Waits:
    """How threads sleep on a word: IR of `wait` and `wake`, and where their functions lie."""

    ir: str
    library: str | None
    functions: tuple[str, str]


# `wait` sleeps while the word still holds `seen`; `wake` wakes up to `count` that wait on it.
LINUX = """
define internal void @wait(ptr %call, ptr %word, i32 %seen) {
  call i64 (i64, ...) %call(i64 FUTEX, ptr %word, i32 128, i32 %seen, ptr null)
  ret void
}
define internal void @wake(ptr %call, ptr %word, i32 %count) {
  call i64 (i64, ...) %call(i64 FUTEX, ptr %word, i32 129, i32 %count, ptr null)
  ret void
}
"""
MACOS = """
define internal void @wait(ptr %call, ptr %word, i32 %seen) {
  %value = zext i32 %seen to i64
  call i32 %call(i32 1, ptr %word, i64 %value, i32 0)
  ret void
}
define internal void @wake(ptr %call, ptr %word, i32 %count) {
  call i32 %call(i32 257, ptr %word, i64 0)
  ret void
}
"""
WINDOWS = """
define internal void @wait(ptr %call, ptr %word, i32 %seen) {
  %compared = alloca i32
  store i32 %seen, ptr %compared
  call i32 %call(ptr %word, ptr %compared, i64 4, i32 -1)
  ret void
}
define internal void @wake(ptr %call, ptr %word, i32 %count) {
  call void %call(ptr %word)
  ret void
}
"""
SYSCALL = ("syscall", "syscall")
ULOCK = ("__ulock_wait", "__ulock_wake")
ON_ADDRESS = ("WaitOnAddress", "WakeByAddressAll")
SYNCHRONIZATION = "api-ms-win-core-synch-l1-2-0.dll"
WAITS = {
    ("linux", "x86_64"): Waits(LINUX.replace("FUTEX", "202"), None, SYSCALL),
    ("linux", "aarch64"): Waits(LINUX.replace("FUTEX", "98"), None, SYSCALL),
    ("darwin", "x86_64"): Waits(MACOS, None, ULOCK),
    ("darwin", "aarch64"): Waits(MACOS, None, ULOCK),
    ("win32", "x86_64"): Waits(WINDOWS, SYNCHRONIZATION, ON_ADDRESS),
    ("win32", "aarch64"): Waits(WINDOWS, SYNCHRONIZATION, ON_ADDRESS),
}

# Machine → an instruction that tells the core that this is a spinning loop; and how many of them
# take about 50 microseconds.
PAUSES = {
    "x86_64": ("call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()", 1000),
    "aarch64": (
        "call void @llvm.aarch64.hint(i32 1)",
        "declare void @llvm.aarch64.hint(i32)",
        5000,
    ),
}

# Where the seat of a thread is: its first word is `remaining`.
SEAT_OF = """
define internal ptr @seat_of(ptr %pool, i64 %thread) {
  %bytes = mul i64 %thread, {SEAT}
  %offset = add i64 %bytes, {SEATS}
  %seat = getelementptr i8, ptr %pool, i64 %offset
  ret ptr %seat
}
"""

# Take chunks of the open kernel: those of the own range first, then those of the next threads,
# until none is left; then count those done. All chunks of one call belong to one kernel, which
# can't end before they are counted. The first `ranges` may be that of a kernel before or after;
# then other seats than necessary are visited.
WORK = """
define internal void @work(ptr %pool, i64 %own, ptr %scratch_at) {
entry:
  %finished = getelementptr i8, ptr %pool, i64 {FINISHED}
  %ranges_at = getelementptr i8, ptr %pool, i64 {RANGES}
  %visits = load atomic i64, ptr %ranges_at monotonic, align 8
  br label %visit
visit:
  %thread = phi i64 [ %own, %entry ], [ %thread_next, %leave ]
  %visited = phi i64 [ 0, %entry ], [ %visited_next, %leave ]
  %done_before = phi i32 [ 0, %entry ], [ %done, %leave ]
  %seat = call ptr @seat_of(ptr %pool, i64 %thread)
  br label %look
look:
  %done = phi i32 [ %done_before, %visit ], [ %done_next, %over ]
  %seen = load atomic i32, ptr %seat monotonic, align 4
  %any = icmp sgt i32 %seen, 0
  br i1 %any, label %take, label %leave
take:
  %before = atomicrmw sub ptr %seat, i32 1 acq_rel
  %mine = icmp sgt i32 %before, 0
  br i1 %mine, label %run, label %leave
run:
  %function = load ptr, ptr %pool
  %arguments = get ptr %pool {ARGUMENTS}
  %tasks = get i64 %pool {TASKS}
  %chunk = get i64 %pool {CHUNK}
  %chunks = get i64 %pool {CHUNKS}
  %ranges = load atomic i64, ptr %ranges_at monotonic, align 8
  %scratch = load ptr, ptr %scratch_at
  %thread_after = add i64 %thread, 1
  %scaled = mul i64 %thread_after, %chunks
  %range_end = udiv i64 %scaled, %ranges
  %left = sext i32 %before to i64
  %index = sub i64 %range_end, %left
  %low = mul i64 %index, %chunk
  %end = add i64 %low, %chunk
  %inside = icmp slt i64 %end, %tasks
  %high = select i1 %inside, i64 %end, i64 %tasks
  %stop = get ptr %pool {STOP}
  %stops = load atomic i32, ptr %stop monotonic, align 4
  %goes_on = icmp eq i32 %stops, 0
  br i1 %goes_on, label %compute, label %over
compute:
  call void %function(ptr %arguments, i64 %low, i64 %high, ptr %scratch)
  br label %over
over:
  %done_next = add i32 %done, 1
  br label %look
leave:
  %thread_up = add i64 %thread, 1
  %wraps = icmp sge i64 %thread_up, %visits
  %thread_next = select i1 %wraps, i64 0, i64 %thread_up
  %visited_next = add i64 %visited, 1
  %more = icmp slt i64 %visited_next, %visits
  br i1 %more, label %visit, label %count
count:
  %counted = atomicrmw add ptr %finished, i32 %done seq_cst
  ret void
}
"""

# Open a kernel, whose words are written, to helpers; work on it; wait until all chunks are done.
# A seat's `remaining` is stored before its `sleeps` is read, and a helper sets `sleeps` before it
# looks at `remaining` for the last time: one of the two sees the other.
SHARE = """
define internal void @share(ptr %pool, i64 %chunks, i64 %ranges, i64 %wakes, ptr %scratch_at) {
entry:
  %finished = getelementptr i8, ptr %pool, i64 {FINISHED}
  %caller_sleeps = getelementptr i8, ptr %pool, i64 {CALLER_SLEEPS}
  %spins = get i64 %pool {SPINS}
  %wait_call = get ptr %pool {WAIT_CALL}
  %wake_call = get ptr %pool {WAKE_CALL}
  %all = trunc i64 %chunks to i32
  %may_wake = icmp ne i64 %wakes, 0
  store atomic i32 0, ptr %finished monotonic, align 4
  br label %open
open:
  %above = phi i64 [ %ranges, %entry ], [ %thread, %opened ]
  %range_end = phi i64 [ %chunks, %entry ], [ %range_start, %opened ]
  %thread = sub i64 %above, 1
  %scaled = mul i64 %thread, %chunks
  %range_start = udiv i64 %scaled, %ranges
  %size = sub i64 %range_end, %range_start
  %remaining = trunc i64 %size to i32
  %seat = call ptr @seat_of(ptr %pool, i64 %thread)
  store atomic i32 %remaining, ptr %seat seq_cst, align 4
  %sleeps_at = getelementptr i8, ptr %seat, i64 {SEAT_SLEEPS}
  %sleeps = load atomic i32, ptr %sleeps_at seq_cst, align 4
  %asleep = icmp ne i32 %sleeps, 0
  %wake_now = and i1 %asleep, %may_wake
  br i1 %wake_now, label %wake, label %opened
wake:
  call void @wake(ptr %wake_call, ptr %seat, i32 1)
  br label %opened
opened:
  %more = icmp sgt i64 %thread, 0
  br i1 %more, label %open, label %own
own:
  call void @work(ptr %pool, i64 0, ptr %scratch_at)
  br label %look
look:
  %spun = phi i64 [ 0, %own ], [ %spun_next, %spin ], [ 0, %awake ]
  %now = load atomic i32, ptr %finished acquire, align 4
  %complete = icmp eq i32 %now, %all
  br i1 %complete, label %done, label %patience
patience:
  %patient = icmp slt i64 %spun, %spins
  br i1 %patient, label %spin, label %doze
spin:
  {PAUSE}
  %spun_next = add i64 %spun, 1
  br label %look
doze:
  store atomic i32 1, ptr %caller_sleeps seq_cst, align 4
  %again = load atomic i32, ptr %finished seq_cst, align 4
  %unfinished = icmp ne i32 %again, %all
  br i1 %unfinished, label %sleep, label %awake
sleep:
  call void @wait(ptr %wait_call, ptr %finished, i32 %again)
  br label %awake
awake:
  store atomic i32 0, ptr %caller_sleeps seq_cst, align 4
  br label %look
done:
  ret void
}
"""

# Run the records of a list. Without a pool the caller runs every task itself, a chunk at a time.
RUN_LIST = """
define void @run_list(ptr %list) {
entry:
  %records = load ptr, ptr %list
  %count = get i64 %list 8
  %stop = get ptr %list 16
  %pool = get ptr %list 24
  %scratch = get ptr %list 32
  %table = getelementptr i8, ptr %list, i64 40
  %scratch_at = alloca ptr
  store ptr %scratch, ptr %scratch_at
  %alone = icmp eq ptr %pool, null
  %no_records = icmp sle i64 %count, 0
  br i1 %no_records, label %exit, label %record
record:
  %number = phi i64 [ 0, %entry ], [ %number_next, %next ]
  %at = phi ptr [ %records, %entry ], [ %at_next, %next ]
  %function = load ptr, ptr %at
  %arguments = get ptr %at 8
  %positions = get ptr %at 16
  %arity = get i64 %at 24
  %tasks = get i64 %at 32
  %chunk = get i64 %at 40
  %chunks = get i64 %at 48
  %ranges = get i64 %at 56
  %wakes = get i64 %at 64
  %no_arguments = icmp sle i64 %arity, 0
  br i1 %no_arguments, label %ready, label %argument
argument:
  %index = phi i64 [ 0, %record ], [ %index_next, %argument ]
  %position_at = getelementptr i32, ptr %positions, i64 %index
  %position = load i32, ptr %position_at
  %wide = zext i32 %position to i64
  %source = getelementptr i64, ptr %table, i64 %wide
  %value = load i64, ptr %source
  %slot = getelementptr i64, ptr %arguments, i64 %index
  store i64 %value, ptr %slot
  %index_next = add i64 %index, 1
  %more = icmp slt i64 %index_next, %arity
  br i1 %more, label %argument, label %ready
ready:
  %unshared = icmp eq i64 %chunks, 0
  %solo = or i1 %alone, %unshared
  br i1 %solo, label %serial, label %shared
serial:
  %low = phi i64 [ 0, %ready ], [ %high, %compute ]
  %stops = load atomic i32, ptr %stop monotonic, align 4
  %goes_on = icmp eq i32 %stops, 0
  br i1 %goes_on, label %compute, label %exit
compute:
  %end = add i64 %low, %chunk
  %inside = icmp slt i64 %end, %tasks
  %high = select i1 %inside, i64 %end, i64 %tasks
  call void %function(ptr %arguments, i64 %low, i64 %high, ptr %scratch)
  br i1 %inside, label %serial, label %next
shared:
  store ptr %function, ptr %pool
  put ptr %arguments %pool {ARGUMENTS}
  put i64 %tasks %pool {TASKS}
  put i64 %chunk %pool {CHUNK}
  put i64 %chunks %pool {CHUNKS}
  %kernel_ranges = getelementptr i8, ptr %pool, i64 {RANGES}
  store atomic i64 %ranges, ptr %kernel_ranges monotonic, align 8
  put ptr %stop %pool {STOP}
  call void @share(ptr %pool, i64 %chunks, i64 %ranges, i64 %wakes, ptr %scratch_at)
  br label %next
next:
  %number_next = add i64 %number, 1
  %at_next = getelementptr i8, ptr %at, i64 72
  %last = icmp sge i64 %number_next, %count
  br i1 %last, label %exit, label %record
exit:
  ret void
}
"""

# A helper's whole life: look for work in its own seat, spin a little, sleep, until told to quit.
HELP = """
define void @help(ptr %pool, i64 %thread) {
entry:
  %finished = getelementptr i8, ptr %pool, i64 {FINISHED}
  %caller_sleeps = getelementptr i8, ptr %pool, i64 {CALLER_SLEEPS}
  %quit = getelementptr i8, ptr %pool, i64 {QUIT}
  %spins = get i64 %pool {SPINS}
  %wait_call = get ptr %pool {WAIT_CALL}
  %wake_call = get ptr %pool {WAKE_CALL}
  %seat = call ptr @seat_of(ptr %pool, i64 %thread)
  %sleeps = getelementptr i8, ptr %seat, i64 {SEAT_SLEEPS}
  %scratch_at = getelementptr i8, ptr %seat, i64 {SEAT_SCRATCH}
  br label %idle
idle:
  br label %look
look:
  %spun = phi i64 [ 0, %idle ], [ %spun_next, %spin ]
  %open = load atomic i32, ptr %seat acquire, align 4
  %is_open = icmp sgt i32 %open, 0
  br i1 %is_open, label %join, label %told
told:
  %quits = load atomic i32, ptr %quit acquire, align 4
  %stays = icmp eq i32 %quits, 0
  br i1 %stays, label %patience, label %exit
patience:
  %patient = icmp slt i64 %spun, %spins
  br i1 %patient, label %spin, label %doze
spin:
  {PAUSE}
  %spun_next = add i64 %spun, 1
  br label %look
join:
  call void @work(ptr %pool, i64 %thread, ptr %scratch_at)
  %caller = load atomic i32, ptr %caller_sleeps seq_cst, align 4
  %is_awake = icmp eq i32 %caller, 0
  br i1 %is_awake, label %idle, label %wake
wake:
  call void @wake(ptr %wake_call, ptr %finished, i32 1)
  br label %idle
doze:
  store atomic i32 1, ptr %sleeps seq_cst, align 4
  %late = load atomic i32, ptr %seat seq_cst, align 4
  %told_late = load atomic i32, ptr %quit seq_cst, align 4
  %is_open_late = icmp sgt i32 %late, 0
  %quits_late = icmp ne i32 %told_late, 0
  %rises = or i1 %is_open_late, %quits_late
  br i1 %rises, label %rise, label %sleep
sleep:
  call void @wait(ptr %wait_call, ptr %seat, i32 %late)
  br label %rise
rise:
  store atomic i32 0, ptr %sleeps seq_cst, align 4
  br label %idle
exit:
  ret void
}
"""

# End the helper of a seat. Its `remaining` changes, so that it can't fall asleep on the old value.
DISMISS = """
define void @dismiss(ptr %pool, i64 %thread) {
  %quit = getelementptr i8, ptr %pool, i64 {QUIT}
  %wake_call = get ptr %pool {WAKE_CALL}
  %seat = call ptr @seat_of(ptr %pool, i64 %thread)
  store atomic i32 1, ptr %quit seq_cst, align 4
  %old = atomicrmw sub ptr %seat, i32 1 seq_cst
  call void @wake(ptr %wake_call, ptr %seat, i32 1)
  ret void
}
"""


# What is written short in the texts above: a load, and a store, so many bytes behind a pointer.
SHORT = {
    r"(%\w+) = get (\w+) (%\w+) (\d+)": r"\1.at = getelementptr i8, ptr \3, i64 \4\n"
    r"  \1 = load \2, ptr \1.at",
    r"put (\w+) (%\w+) (%\w+) (\d+)": r"\2.to = getelementptr i8, ptr \3, i64 \4\n"
    r"  store \1 \2, ptr \2.to",
}


def runner_source(system: str, machine: str) -> str:
    """The IR for an operating system (`sys.platform`) and a machine of `PAUSES`."""
    pause, declaration, _ = PAUSES[machine]
    text = WAITS[system, machine].ir + SEAT_OF + WORK + SHARE + RUN_LIST + HELP + DISMISS
    text = text.replace("{PAUSE}", pause)
    for name, offset in OFFSETS.items():
        text = text.replace("{" + name + "}", str(offset))
    for short, long in SHORT.items():
        text = re.sub(short, long, text)
    return declaration + text
