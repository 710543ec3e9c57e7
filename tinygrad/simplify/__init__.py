"""Floor 2: algebra. What a value is never changes here; how it is written does.

arithmetic, boolean, integer, cast      rules on numbers, as data: proved, and fuzzed
constants, movement                     what is known before it runs; movement of movement
affine                                  index arithmetic, in one canonical form
forms                                   the sums that affine computes with
masks                                   conditions on indices, and what they guard
rules                                   all of these in order: `symbolic`, `simplify`
"""
