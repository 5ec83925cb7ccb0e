"""Every error drut raises on purpose.

Each class also derives from the built-in a caller would expect (``ValueError``, ``TypeError``,
``FileNotFoundError`` ...), so code written against the field's other libraries keeps working.

DrutError
├── InvalidRequestError (ValueError)        what the caller passed cannot be answered
│   ├── InvalidTypeError (TypeError)        ... because it has the wrong type
│   │   └── InvalidTextError                a text that is not valid Unicode
│   ├── OptionsTruncatedError               the options do not fit into the token budget
│   └── TruncationError                     something was cut and ``on_truncation="error"``
├── CheckpointError                         a checkpoint or bundle that cannot be used
│   ├── CheckpointNotFoundError (FileNotFoundError)
│   ├── CheckpointFormatError (ValueError)  present, but damaged or of another kind
│   ├── DigestMismatchError (ValueError)    not the bytes that were expected
│   ├── DownloadError (OSError)             the hub did not deliver
│   └── GraphContractError (ValueError)     the graph's inputs, outputs or vocabulary do not fit
├── RuntimeFailure                          the engine under the agent
│   ├── RuntimeUnavailableError             cannot run here: raised when opening, never later
│   │   └── DeviceUnavailableError          the named device is not the one that would run
│   ├── ForwardError                        one forward pass failed; the runtime stays usable
│   │   ├── NonFiniteOutputError            the graph returned NaN or infinity
│   │   ├── RuntimeClosedError              the runtime was closed before
│   │   ├── OutOfMemoryError (MemoryError)  the pass does not fit into memory
│   │   ├── DeadlineExceededError (TimeoutError)  not answered within ``drut.deadline``
│   │   ├── OverloadedError                 a bounded queue is full; try again later
│   │   ├── ServerUnreachableError (ConnectionError)  nobody answers at that address
│   │   ├── ServerNotReadyError             the server is there, the model is not (yet)
│   │   ├── ServerRefusedError              the server calls the request wrong; do not repeat it
│   │   └── ServerFaultError                the server failed, or its answer is incomplete
├── HookError
│   ├── InvalidHookError (TypeError)        not something that can be installed as a hook
│   └── HookTimeoutError (TimeoutError)     a hook overran ``hooks_timeout``
├── MissingDependencyError (ImportError)    an extra is not installed; says which
└── ExportError                             a bundle could not be made; nothing was written
    └── VerificationError                   the graph does not answer like the checkpoint

One warning has a class of its own, so that it can be filtered: ``CalibrationIdentityWarning``.
"""


class DrutError(Exception):
    """Base class of every error raised on purpose."""


class InvalidRequestError(DrutError, ValueError):
    """The request cannot be answered as written."""


class InvalidTypeError(InvalidRequestError, TypeError):
    """Something in the request has the wrong type."""


class InvalidTextError(InvalidTypeError):
    """A text holds a lone surrogate, which no tokenizer can read."""


class OptionsTruncatedError(InvalidRequestError):
    """Not every option of a question survived the token budget."""


class TruncationError(InvalidRequestError):
    """Part of the request was cut and the caller asked for an error in that case."""


class CheckpointError(DrutError):
    """The checkpoint or bundle cannot be used."""


class CheckpointNotFoundError(CheckpointError, FileNotFoundError):
    """A checkpoint, a bundle or one of its files is not there."""


class CheckpointFormatError(CheckpointError, ValueError):
    """A file is there but damaged, incomplete or of another kind."""


class DigestMismatchError(CheckpointError, ValueError):
    """A file does not have the expected SHA-256, or the expectation itself is malformed."""


class DownloadError(CheckpointError, OSError):
    """The hub did not deliver the files."""


class GraphContractError(CheckpointError, ValueError):
    """The graph does not have the inputs, outputs or vocabulary that were expected."""


class RuntimeFailure(DrutError):
    """Base class of runtime errors."""


class RuntimeUnavailableError(RuntimeFailure):
    """The runtime cannot run on this machine."""


class DeviceUnavailableError(RuntimeUnavailableError):
    """The named device is not the one the session would really run on."""


class ForwardError(RuntimeFailure):
    """One forward pass failed; the runtime stays usable."""


class NonFiniteOutputError(ForwardError):
    """The graph returned NaN or infinity; no answer is made from it."""


class RuntimeClosedError(ForwardError):
    """The runtime was closed before this call."""


class OutOfMemoryError(ForwardError, MemoryError):
    """A forward pass does not fit into the device's memory, however small it was made."""


class DeadlineExceededError(ForwardError, TimeoutError):
    """No answer within the time that the caller allowed."""


class OverloadedError(ForwardError):
    """A bounded queue is full; the work was not started and may be tried again later."""


class ServerUnreachableError(ForwardError, ConnectionError):
    """No server answers at the address."""


class ServerNotReadyError(ForwardError):
    """The server answers, but does not serve the model now."""


class ServerRefusedError(ForwardError):
    """The server says that the request is wrong; repeating it is of no use."""


class ServerFaultError(ForwardError):
    """The server failed, or what it answered is incomplete."""


class HookError(DrutError):
    """Base class of what goes wrong around hooks, as opposed to inside them."""


class InvalidHookError(HookError, TypeError):
    """The object cannot be installed as a hook."""


class HookTimeoutError(HookError, TimeoutError):
    """A hook overran ``hooks_timeout``."""


class MissingDependencyError(DrutError, ImportError):
    """An optional dependency is needed and not installed."""


class ExportError(DrutError):
    """A bundle could not be made; nothing was left behind."""


class VerificationError(ExportError):
    """The exported graph does not answer like the checkpoint it was made from."""


class CalibrationIdentityWarning(UserWarning):
    """A calibration file says that it was made for another model."""
