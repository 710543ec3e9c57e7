"""Every exception that the package raises on purpose, drawn as one tree.

    TinygradError
    ├── ShapeError         (ValueError)    shapes that don't fit an operation
    ├── DTypeError         (TypeError)     an element type that an operation or device lacks
    ├── ArgumentError      (ValueError)    any other argument that can't be taken
    │   ├── AxisError      (IndexError)    an axis that a tensor lacks
    │   └── FileError                      a file that is not what its format says
    ├── DeviceError        (RuntimeError)  a device that is unknown, absent or lost
    │   └── OutOfMemory    (MemoryError)   a buffer that doesn't fit
    ├── RuntimeCheckError  (ArithmeticError, IndexError by kind)  a CHECK that failed on a device
    │   ├── IndexCheckError     (IndexError)
    │   ├── DivisionCheckError  (ZeroDivisionError)
    │   ├── ShapeCheckError     (ValueError)
    │   └── LinalgError         (ArithmeticError)  a matrix that a decomposition has no result for
    ├── JitError           (RuntimeError)  a captured step used otherwise than captured
    ├── CompileError       (RuntimeError)  generated source that a compiler refused
    └── VerifyError        (AssertionError) a graph that breaks the rules of its stage: our bug

Each message names the operation, shows the values, and says what would have been legal. An
operation that is made of others names itself before them: `softmax: max: axis 7 of ...`. Each class
is also the built-in exceptions that a caller may expect: what NumPy raises, and for the first three
the RuntimeError of PyTorch and tinygrad.
"""

from __future__ import annotations


class TinygradError(Exception):
    """The base of all errors. `called`: the method that the user called, if the error was found in
    another method that it uses."""

    called = ""

    def __str__(self) -> str:
        text, called = super().__str__(), self.called.rstrip("_")
        return text if text.lower().startswith(called.lower()) else f"{called}: {text}"


class ShapeError(TinygradError, ValueError, RuntimeError):
    """Shapes that don't fit an operation."""


class DTypeError(TinygradError, TypeError, RuntimeError):
    """An element type that an operation or a device lacks."""


class ArgumentError(TinygradError, ValueError, RuntimeError):
    """Any other argument that is not accepted."""


class AxisError(ArgumentError, IndexError):
    """An axis that a tensor lacks."""


class FileError(ArgumentError):
    """A file that doesn't follow its format, is truncated, or would be harmful."""


class DeviceError(TinygradError, RuntimeError):
    """A device that is unknown, absent or lost."""


class OutOfMemory(DeviceError, MemoryError):
    """A buffer that doesn't fit on its device."""


class RuntimeCheckError(TinygradError):
    """A check inside a kernel that failed; raised by the next read on the host."""


class IndexCheckError(RuntimeCheckError, IndexError):
    """An index outside the axis that it indexes."""


class DivisionCheckError(RuntimeCheckError, ZeroDivisionError):
    """An integer divided by zero."""


class ShapeCheckError(RuntimeCheckError, ValueError):
    """A mask that selects another number of values than there are."""


class LinalgError(RuntimeCheckError, ArithmeticError):
    """A matrix for which a decomposition has no result; raised when it is computed."""


class JitError(TinygradError, RuntimeError):
    """A captured step that is used otherwise than when it was captured."""


class CompileError(TinygradError, RuntimeError):
    """Generated source that a compiler rejected; the message contains the compiler's."""


class VerifyError(TinygradError, AssertionError):
    """A graph that breaks the rules of its stage: always a bug in this package."""
