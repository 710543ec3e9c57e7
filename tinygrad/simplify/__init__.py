"""Floor 2: algebra. These rewrites change how a value is written, never what it is.

arithmetic, boolean, integer, cast      rules on numbers, as data: proved, and fuzzed
constants, movement                     constant folding; movement ops that follow each other
affine                                  index arithmetic, in one canonical form
forms                                   the sums that affine computes with
masks                                   conditions on indices, and the values that they guard
rules                                   all of these in order: `symbolic`, `simplify`
"""
