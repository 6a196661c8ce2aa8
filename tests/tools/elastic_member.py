"""A stand-in for a member of an elastic job: it speaks the guard's socket and needs no horo. MEMBER is the source that
tests put before the programs of their ranks."""

MEMBER = r'''
import os, signal, socket, struct, sys

VERSION, FROZEN, INSTALLED, LEAVE, FREEZE, VIEW, PARKED, EVICTED, ASK, REPORT, SETTLE, DRAIN = 6, *range(1, 12)
MISSED, CAN_GROW, READY, SYNCED, GROW = range(12, 17)

class Member:
    """Each method blocks until its messages have come; a message that is not expected is an error."""

    def __init__(self):
        self.id = int(os.environ["HORO_RANK"])
        self.socket = socket.socket(fileno=int(os.environ["HORO_GUARD_FD"]))
        self.epoch = 0
        self.joins = os.environ.get("HORO_JOINS") == "1"
        if not self.joins:
            self.installed(0)

    def send(self, kind, fields):
        self.socket.send(struct.pack("<BB", VERSION, kind) + fields)

    def installed(self, epoch):
        self.epoch = epoch
        self.send(INSTALLED, struct.pack("<I", epoch))

    def can_grow(self, terms=b"a=1"):
        self.send(CAN_GROW, struct.pack("<I", len(terms)) + terms)

    def join(self, terms=b"a=1"):
        """Returns the members of the first view."""
        self.send(READY, struct.pack("<I", len(terms)) + terms + struct.pack("<I", 0))  # no card
        members = self.view()[0]
        text = b"1 B from rank 0 in 1 ms"
        self.send(SYNCED, struct.pack("<II", self.epoch, len(text)) + text)
        return members

    def grow_until(self, wanted):
        """Lets ranks join, and goes on without those that are lost, until the job has these members."""
        members = None
        while members != wanted:
            kind, fields = self.receive(FREEZE, VIEW, PARKED, GROW)
            if kind == GROW and fields != struct.pack("<I", 0):
                self.frozen({}, at_border=True)
            elif kind == FREEZE:
                self.frozen({})
            elif kind == VIEW:
                members = self.take_view(fields)[0]

    def frozen(self, progress, at_border=False):
        lanes = b"".join(struct.pack("<IQ", *lane) for lane in progress.items())
        text = b"seen by member %d" % self.id
        fields = struct.pack("<II", self.epoch, len(progress)) + lanes + struct.pack("<BI", 0, len(text)) + text
        stream = struct.pack("<QQI", 0, 0, 0)  # no message of it was applied
        no_card, no_sets = struct.pack("<I", 0), struct.pack("<BI", at_border, 0)
        self.send(FROZEN, fields + stream + no_card + no_sets)

    def leave(self, failed=False, text=b"", with_process=False):
        how = 2 if with_process else int(failed)
        self.send(LEAVE, struct.pack("<BI", how, len(text)) + text + struct.pack("<I", 0))  # no kind of failure

    def notice(self):
        """Waits for a notice; returns its grace in milliseconds."""
        return struct.unpack("<I", self.receive(DRAIN)[1])[0]

    def receive(self, *kinds):
        bytes = self.socket.recv(1 << 18)
        while any(kind not in kinds and bytes[1:2] == b"%c" % kind for kind in (SETTLE, MISSED, GROW, ASK)):
            bytes = self.socket.recv(1 << 18)
        assert len(bytes) >= 2 and bytes[0] == VERSION and bytes[1] in kinds, (self.id, kinds, bytes[:64])
        return bytes[1], bytes[2:]

    def text(self, kind):
        found = None
        while found != kind:
            found, fields = self.receive(kind, FREEZE)
        return fields[4:].decode()

    def view(self):
        """Waits for a view and answers each freeze before it; returns members, secret and progress. It waits for all
        others, so it freezes also when the guard misses one."""
        frozen = None
        while True:
            kind, fields = self.receive(FREEZE, VIEW, PARKED, MISSED)
            if kind == VIEW:
                break
            is_none_missed = kind == MISSED and fields == struct.pack("<I", 0)
            if kind == PARKED or is_none_missed or frozen == self.epoch:
                continue
            frozen = self.epoch
            self.frozen({0: 100 + self.id})
        return self.take_view(fields)

    def take_view(self, fields):
        epoch, count = struct.unpack_from("<II", fields)
        members = list(struct.unpack_from(f"<{count}I", fields, 8))
        at = 8 + 4 * count
        secret, (reports,), at = fields[at : at + 32], struct.unpack_from("<I", fields, at + 32), at + 36
        progress, before = {}, {}
        for _ in range(reports):
            member, is_alike = struct.unpack_from("<IB", fields, at)
            before, at = (like if is_alike else lanes)(fields, at + 5, before)
            progress[member] = before
        self.installed(epoch)
        return members, secret.hex(), progress

def lanes(fields, at, _):
    (count,) = struct.unpack_from("<I", fields, at)
    return dict(struct.unpack_from("<IQ", fields, at + 4 + 12 * i) for i in range(count)), at + 4 + 12 * count

def like(fields, at, before):
    """The lanes of the member before, with the differences of their numbers."""
    progress = {}
    for lane, number in before.items():
        value = shift = 0
        while True:
            byte, at = fields[at], at + 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        progress[lane] = number + (value >> 1 ^ -(value & 1))
    return progress, at

def die(number=signal.SIGKILL):
    os.kill(os.getpid(), number)
    signal.pause()

member = Member()
'''
