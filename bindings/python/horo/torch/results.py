"""The results of one optimizer's rounds: waits for the works of a round, and leaves their results in the gradients."""

import time

from horo._changes import held
from horo._handles import synchronize
from horo._session_start import SLICE_MS
from horo.errors import HoroError, Mismatch
from horo.torch import disagreement, marks, rounds
from horo.torch.gradient_table import GradientTable


class Results:
    """The half of Gradients that ends rounds."""

    def commit(self):
        """All gradients of the round are submitted. In an elastic job no result is delivered before this call."""
        table, session, number = self._table, self.declared.session, self.declared.number
        if self.round.is_submitted and len(table) and table.commit is None:
            stream, label = self.declared.stream.number, self.declared.stream.names[0]
            if session.census is not None and number == 0 and table.census is None:
                table.census = session.census, *session.census.submit(stream, self.declared.common, label)
            table.commit = session.commit(number, stream)

    def _commit_abandoned(self):
        """The works of a round that is given up end with those of the other ranks."""
        try:
            if self._table.has_begun() and not self._table.session.closed:
                self.round.is_submitted = True
                self.commit()
        except HoroError:  # the job has ended: so have the works
            pass

    def synchronize(self):
        """Makes the gradients results: waits for a round in flight, or makes a round of what no round has covered."""
        with held, rounds.telling([self]):
            rounds.resume()
            if self.is_active() and not self.round.is_submitted and not self.is_covered():
                rounds.finish([self])
            self.collect()

    def collect(self):
        """Waits for all results of the submitted round and leaves them in the gradients.

        A gradient that this rank does not have counts as absent. It becomes the result of the other ranks, or stays
        None if no rank has one.
        """
        if not self.round.is_submitted:
            return
        self.commit()
        declared, table = self.declared, self._table
        session = declared.session
        try:
            works = table.works()
            self._wait_for(works)
            table.end_commit()
            self._payloads.deliver_all(table, declared.states, self.round.held)
            declared.learn_priorities()
        except Exception as error:  # not for an interrupt: the works continue, and the next call waits for them
            self.abandon()
            disagreement.mark(error, declared.process_set, declared.stream)
            raise
        self._start_over()  # before step_end(), so that an interrupt there does not harm the next round
        try:
            session.step_end(declared.number)
            if declared.views is not None and declared.views.arrange(table.states, works):
                self._batching.forget()
            declared.note_results(table.submitted())
        finally:
            session.release(works)

    def _wait_for(self, works):
        """Waits for the works of the round. If ranks reduce different parameters, this rank gives the round up, so that
        no other waits for a gradient that only some ranks have."""
        declared, session, found = self.declared, self.declared.session, None
        try:
            while not session.wait_until(works, time.monotonic() + SLICE_MS / 1000):
                if found is None and (found := disagreement.find(session, works)) is not None:
                    session.fail_round(declared.number, declared.stream.number, str(found))
        except Mismatch as error:
            if found is None and disagreement.is_sign(error):
                session.fail_round(declared.number, declared.stream.number, str(error))
            raise

    def check_agreement(self):
        """Raises Mismatch if a gradient of this round has failed because ranks reduce different parameters."""
        found = disagreement.find(self.declared.session, self._table.works())
        if found is not None:
            raise found

    def _start_over(self):
        """Begins a new round."""
        self._table = GradientTable(self.declared.session, len(self.declared.states))
        for group in self.declared.groups:
            group.start_over()
        self._batching.start_over()
        self.round.start_over()
        if self.declared.views is not None:
            for state in self.declared.states:
                state.zeroed = False

    def abandon(self):
        """Begins a new round without the results of this one. The works continue; the session keeps their memory."""
        self._commit_abandoned()
        for table in (self._taken, self._table):
            if table is not None:
                self._abandoned.add(table)
        self._taken = None
        self._batching.forget()
        self._start_over()
        self.round.is_dirty = True
        if self.declared.views is not None:  # a new round must not write to a view that is in flight
            self.declared.views.forget()

    def close(self):
        """Removes all hooks and abandons gradients in flight."""
        rounds.leave(self)
        try:
            self.abandon()
            self._abandoned.drop()
        finally:
            self.declared.close()

    # Results one by one, for cross_barrier

    def take_table(self):
        """Submits the remaining gradients and begins a new round. Returns the table of the old round and all
        ParameterStates. The caller passes each of these to finish_one(), and then calls end_step()."""
        if not self.round.is_submitted:
            rounds.finish([self])
        if self._taken not in (None, self._table):  # an interrupt ended the last round early
            self._abandoned.add(self._taken)
        self._taken = self._table
        self._start_over()
        return self._taken, self.declared.states

    def finish_one(self, table, state, row):
        """Waits for the result of one parameter and leaves it in the gradient. row: None if it is sparse."""
        if row is None:
            state.param.grad = synchronize(table.sparse[state])
            return
        works = [table.work(row)]
        table.session.wait(works)
        self._payloads.deliver(table, row)
        table.forget(row)
        table.session.release(works)

    def end_step(self):
        """finish_one() was called for all parameters."""
        self._taken = None
        self.declared.session.step_end(self.declared.number)
        marks.end_of_round(self.declared.session, self.declared.stream.number, in_forward=True)
