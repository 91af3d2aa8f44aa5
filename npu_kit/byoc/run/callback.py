"""Brings an error in a callback through TVM as it was raised.

TVM hands exactly KeyError, ValueError and MemoryError through; every other class, their subclasses and
KeyboardInterrupt arrive as RuntimeError. So the callback puts its error aside, and the caller takes it from there.
"""

from __future__ import annotations

import functools
import threading
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from npu_kit.errors import notes_of, text_of

Result = TypeVar("Result")

_KEPT_BY_TVM: tuple[type[Exception], ...] = (KeyError, ValueError, MemoryError)


class _Waiting(threading.local):
    """The errors put aside for the calls of ``call_through`` that run in this thread, innermost last."""

    def __init__(self) -> None:
        self.slots: list[list[BaseException]] = []


_waiting = _Waiting()


def guarded(callback: Callable[..., Result]) -> Callable[..., Result]:
    """``callback`` in a form to register with TVM: an error keeps its class where someone waits for it, else its words.

    Under ``call_through`` the caller gets the error itself. Under a plain VirtualMachine the message begins with the
    class and ends with the notes on the error, such as the node that failed.
    """

    @functools.wraps(callback)
    def call(*arguments: Any) -> Result:
        try:
            return callback(*arguments)
        except BaseException as error:  # KeyboardInterrupt too: TVM would make it a RuntimeError without a message
            if _waiting.slots:
                _waiting.slots[-1].append(error)
            raise survivable(error).with_traceback(error.__traceback__) from error

    return call


def call_through(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call TVM; an error raised in a guarded callback comes out with its own class, message and frames."""
    slot: list[BaseException] = []
    _waiting.slots.append(slot)
    try:
        return function(*arguments)
    except BaseException as raised:
        error = slot[-1] if slot else raised
        if _is_lost_interrupt(error):
            error = KeyboardInterrupt()
    finally:
        _waiting.slots.pop()
    raise error  # outside of the handler, so that TVM's copy does not become its context


def _is_lost_interrupt(raised: BaseException) -> bool:
    """Whether ``raised`` is what TVM makes of a Ctrl-C that came while its own code ran.

    Python delivers that at the entry of the next callback, before the ``try`` in it. A KeyboardInterrupt has no
    message, and nothing else that is raised there has none. A ``raise RuntimeError`` of a learner's own comes from no
    code of TVM.
    """
    if type(raised) is not RuntimeError or str(raised) or threading.current_thread() is not threading.main_thread():
        return False
    frames = traceback.walk_tb(raised.__traceback__)
    return any("tvm_ffi" in frame.f_code.co_filename for frame, _ in frames)


def survivable(error: BaseException) -> Exception:
    """What to raise to TVM in the place of ``error``: it ends the process where the text of an exception cannot be had.

    That is so where ``__str__`` of a class of one's own raises, and where the text holds half of a surrogate pair.
    """
    kind = next((kind for kind in _KEPT_BY_TVM if type(error) is kind), RuntimeError)
    return kind(describe(error).encode("utf-8", "backslashreplace").decode())


def describe(error: BaseException) -> str:
    """The class of ``error``, its message, and the notes on it, such as the node that failed."""
    return "; ".join([f"{type(error).__name__}: {text_of(error)}".rstrip(": "), *notes_of(error)])
