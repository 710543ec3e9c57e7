"""Floor 3: a tensor graph becomes kernels. Knows nothing of how a kernel is made fast.

`kernels.plan` is the way in. The way from there, from a graph to a plan:

    shard           one graph over several devices becomes one for each (shard_rules, shard_loops,
                    shard_sorting; what they do together: collectives)
    rewrites        the table of what is done to a graph before the walk:
      sorting       sorts as graphs, where a device has groups of lanes
      scans, sums   counted loops that are one; sums of products in the form that is least work
      common_sums   sums of the same terms along different axes, made of those along both
      states, split long rows in blocks; sums in two steps
    walk            which values are stored, and which are computed where they are used
    ranges          what a kernel computes: loops, and index arithmetic
    kernels         kernels cut out, put in order, given storage
    plan            the outcome, as plain data

What the walk stands on:

    bases           what must lie in memory for a value to be read there
    strides         how far apart the elements of a view lie: which are copies, which repeat some
    demand          which kernel needs an element, at which index, under which gate
    movement        a reshape or a flip as index arithmetic (regroup: reshapes of symbolic sizes)
    inlining        the decision: stored, or computed again (redo: what that costs)
    rows, row_loops what is kept in rows, as attention's scores; loops of reductions go first
    crossings       kernels that keep the same rows, one along what the other has as rows, are one
    limits, wide    what the walk made and a device can't run: it is taken again, or sums and
                    gathers are done in parts (in_parts: one array of them)

What the cutting stands on:

    onehot          a sum that a comparison narrows to one turn needs no loop
    order, memory   which kernel next; which temporaries share their bytes
    bundles, fills  kernels launched as one; random numbers of any amount
"""
