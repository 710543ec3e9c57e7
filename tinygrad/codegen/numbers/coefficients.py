"""The constants of `transcendental`: polynomials, split constants, the bits of 1/pi. The
polynomials were fitted by tools/polynomials.py; the lowest power is first."""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.base.dtype import DType, dtypes

INVERSE_PI = 0.3183098861837907


@dataclass(frozen=True)
class Format:
    """The parameters of a float type, and the constants of the functions in it."""

    real: DType
    integer: DType
    mantissa: int
    bias: int
    exp2: tuple[float, ...]  # (2**x - 1) / x
    exp: tuple[float, ...]  # (e**x - 1) / x
    log2: tuple[float, ...]
    log2_by_quotient: bool  # log2 is of s = (m-1)/(m+1): (log2 m) / s in s*s, not (log2 m) / (m-1)
    sin: tuple[float, ...]  # (sin x - x) / x**3 in x*x
    pow: tuple[float, ...]  # (log2 m - two terms) / s**5 in s*s
    pow_terms: tuple[tuple[float, float], tuple[float, float]]  # 2/ln 2 and its third: high, low
    exp_range: tuple[float, float]  # beyond: 0, infinity
    ln2: tuple[float, float]  # high (times any exponent is exact), low
    pi: tuple[float, float, float]
    sin_bound: float  # below, three parts of pi are enough

    @property
    def magic(self) -> float:
        """Added to a small number, it leaves the nearest integer in the low bits."""
        return 1.5 * 2.0**self.mantissa

    @property
    def lift(self) -> int:
        """Added to an exponent, it makes the least one 0; the power of two of that is 0 as well."""
        return self.bias + self.mantissa + 3

    @property
    def exp2_range(self) -> tuple[float, float]:
        """The arguments of 2**x whose result is neither 0 nor infinity."""
        return -1.0 * self.lift, self.bias + 1.0


SINGLE = Format(
    real=dtypes.float32,
    integer=dtypes.int32,
    mantissa=23,
    bias=127,
    exp2=(
        0.6931471824645996,
        0.24022644758224487,
        0.055503591895103455,
        0.009618842042982578,
        0.0013391138054430485,
        0.00015237457409966737,
    ),
    exp=(
        1.0,
        0.49999988079071045,
        0.166665181517601,
        0.041669655591249466,
        0.008368945680558681,
        0.0013744499301537871,
    ),
    log2=(
        1.4426950216293335,
        -0.7213473320007324,
        0.4809008240699768,
        -0.3606990575790405,
        0.2884725332260132,
        -0.2395058274269104,
        0.2059151828289032,
        -0.19302396476268768,
        0.1799813210964203,
        -0.09879399091005325,
    ),
    log2_by_quotient=False,
    sin=(
        -0.1666666567325592,
        0.008333307690918446,
        -0.00019838906882796437,
        2.7456635507405736e-06,
        -2.3019786965505773e-08,
    ),
    pow=(0.5770782232284546, 0.4120672643184662, 0.3324807584285736),
    pow_terms=(
        (2.885390043258667, 3.851926067000022e-08),
        (0.9617967009544373, -7.028461812552678e-09),
    ),
    exp_range=(-106.0, 89.0),
    ln2=(0.693145751953125, 1.4286068203094173e-06),
    pi=(3.1415927410125732, -8.742277657347586e-08, -3.4302490200117637e-15),
    sin_bound=2.0**17,
)

DOUBLE = Format(
    real=dtypes.float64,
    integer=dtypes.int64,
    mantissa=52,
    bias=1023,
    exp2=(
        0.6931471805599453,
        0.24022650695910133,
        0.05550410866482225,
        0.009618129107593486,
        0.0013333558146385166,
        0.0001540353045779118,
        1.5252733800563553e-05,
        1.321543498384943e-06,
        1.0178089005907785e-07,
        7.073829609072407e-09,
        4.449599229547428e-10,
    ),
    exp=(
        1.0,
        0.5000000000000012,
        0.16666666666666471,
        0.04166666666651974,
        0.00833333333345902,
        0.0013888888945924765,
        0.00019841269579777465,
        2.4801491025329424e-05,
        2.755752343572576e-06,
        2.7630910166507474e-07,
        2.5019356068459054e-08,
    ),
    log2=(
        2.8853900817779268,
        0.9617966939260373,
        0.5770780163280613,
        0.41219858866668463,
        0.3205983001597267,
        0.262344795913772,
        0.22067650149382526,
        0.2158026495642306,
    ),
    log2_by_quotient=True,
    sin=(
        -0.16666666666666666,
        0.008333333333333208,
        -0.00019841269841213365,
        2.7557319211743408e-06,
        -2.5052106921480436e-08,
        1.6058941894608092e-10,
        -7.643043186385294e-13,
        2.721674608135873e-15,
    ),
    pow=(
        0.5770780163555853,
        0.4121985831112072,
        0.3205988979439018,
        0.262308195231002,
        0.22195247603542426,
        0.19239446827307397,
        0.1685703928606216,
        0.17198271076919103,
    ),
    pow_terms=(
        (2.8853900817779268, 4.0710547481862066e-17),
        (0.9617966939259756, 5.0577616648125907e-17),
    ),
    exp_range=(-747.0, 710.0),
    ln2=(0.6931471805598903, 5.497923018708371e-14),
    pi=(3.141592653589793, 1.2246467991473532e-16, -2.9947698097183397e-33),
    sin_bound=2.0**30,
)

FORMATS = {dtypes.float32: SINGLE, dtypes.float64: DOUBLE}

# 2**s/pi less a multiple of 2, over 2**s, as two doubles: a float32 above the bound is a multiple
# of 2**s, so its product with this is off from x/pi by a multiple of 2, and below 2**50.
TURNS = (
    (0.0, 0.3183098861837907, -1.9678676675182486e-17),
    (2.0**50, 1.284127663345183e-08, -2.7170920538718753e-25),
    (2.0**76, 1.46854777018591e-16, 5.090832193749855e-33),
    (2.0**102, 3.037013244824923e-24, 1.5718273777458022e-40),
)

INVERSE_PI_BITS = 1184
INVERSE_PI_FRACTION = int(
    "517cc1b727220a94fe13abe8fa9a6ee06db14acc9e21c820ff28b1d5ef5de2b0db92371d2126e9700324977504e8c9"
    "0e7f0ef58e5894d39f74411afa975da24274ce38135a2fbf209cc8eb1cc1a99cfa4e422fc5defc941d8ffc4bffef02"
    "cc07f79788c5ad05368fb69b3f6793e584dba7a31fb34f2ff516ba93dd63f5f2f8bd9e839cfbc529497535fdafd88f"
    "c6ae842b019823",
    16,
)
