"""Very many events of one call: reduced onto a commit of their own, piece by piece, with others on the loop between."""

from collections.abc import Sequence

import msgspec

from memory_engine.core.slices import Steps
from memory_engine.runtime.commit import Commit, ThreadAtWork
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.notes import DueNote
from memory_engine.runtime.queue import Request

PIECE = 8
"""Events of a piece: well under a millisecond's work."""


def reduced_in_pieces(
    commit: Commit, kernel: Kernel, thread: ThreadAtWork, request: Request, notes: Sequence[DueNote]
) -> Steps[None]:
    """Reduce a request onto a commit, and make its receipts: to make all of them at the end would take long."""
    pending, check = request.pending, request.check
    for at in range(0, len(pending), PIECE):
        piece = msgspec.structs.replace(
            request, events=pending[at : at + PIECE], has_callers_ids=False, receipts={}, check=check
        )
        commit.take(kernel, thread, piece, notes)
        ((_, reduced, state),) = commit.requests
        thread.log.make_receipts(commit.head, request, reduced, state)
        commit.requests, notes, check = [], (), None
        yield
    commit.requests = [(request, [], commit.state)]
