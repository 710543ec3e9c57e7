"""Every exception that the package raises on purpose, drawn as one tree.

    TinygradError
    ├── ShapeError         (ValueError)    shapes that don't fit an operation
    ├── DTypeError         (TypeError)     an element type that an operation or device lacks
    ├── ArgumentError      (ValueError)    any other argument that can't be taken
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
is also the built-in exception that a caller would expect.
"""

from __future__ import annotations


class TinygradError(Exception):
    """The root of the tree. `called`: the method that a user called, if another one, which that
    is made of, found what is wrong."""

    called = ""

    def __str__(self) -> str:
        text, called = super().__str__(), self.called.rstrip("_")
        return text if text.lower().startswith(called.lower()) else f"{called}: {text}"


class ShapeError(TinygradError, ValueError):
    """Shapes that don't fit an operation."""


class DTypeError(TinygradError, TypeError):
    """An element type that an operation or a device lacks."""


class ArgumentError(TinygradError, ValueError):
    """Any other argument that can't be taken."""


class FileError(ArgumentError):
    """A file that is not what its format says, is cut short, or would do harm."""


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
    """As many values as a mask doesn't select."""


class LinalgError(RuntimeCheckError, ArithmeticError):
    """A matrix that a decomposition has no result for; raised when it is computed."""


class JitError(TinygradError, RuntimeError):
    """A captured step used otherwise than it was captured."""


class CompileError(TinygradError, RuntimeError):
    """Generated source that a compiler refused; the message holds its words."""


class VerifyError(TinygradError, AssertionError):
    """A graph that breaks the rules of its stage. Always a defect of ours."""
