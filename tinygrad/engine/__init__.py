"""Floor 6: the only floor that runs things. A tensor calls `realize`; then, in this order:

    structure       a graph without its buffers: equal for each step of a training loop
    numbers         which numbers in it may differ, too
    sizes           which sizes: graphs of one plan, where they change from turn to turn
    plans, cache    its plan: from this process, from the disk, or made
    making          the one way to the floors that rewrite
    cold            takes it when it is first needed: in a warm process never
    kernels         object code, made once
    recipes         a kernel's recipe: pinned, searched (stopwatch, trial, race) or the heuristic's
    run             a plan with its kernels loaded: one native call for a stretch of them
    host, loop      steps that are no kernels: copies, functions of the host; SCAN
    lanes           steps on several devices, side by side

What computing knows of memory and of tensors:

    devices         opened when they are first used
    storage         bytes, their versions, and the nodes that they belong to
    chains          values that nobody asked for, of which later ones are made
    holders, alive  the tensors that may be read later; weak references in order
    aliases, views  which views share what they look at; views of storage without a kernel
    sharing         memory that other libraries read and write, too
    keeping         arrays of NumPy's and files, which run no kernels
    faults          CHECKs that failed, and what is wrong since
    streams         random numbers: a seed and a position

A step captured once and replayed:

    jit             TinyJit: runs, captures, replays
    capture         which plans ran, and where their buffers came from
    untold          values that are others in replays
    containers      arguments and results: tensors, and all else by value
    places, reads   the state that it finds, and the settings that it reads
    gradients       what it does to `.grad`: replays rebind it
    contents        lists, dicts, iterators and random numbers of Python that it comes across
    outlines        whether it computes with the same numbers as the call before
    turns           who captures computes alone
    unread          its plans without results that nobody reads
    replay, layout  what was recorded as one thing to run; its temporaries in one arena
    call            the short way through a call that is like the one before

For people: `show` (DEBUG), `profile` (counters and times), `gallery` (kernels kept as text),
`kernelize` (a graph with its kernels in it).
"""
