"""Owns every byte offset of format 1: kernel file, slot, list, client entry, record. Pure numbers, no I/O.

All integers are little-endian. The kernel file is an array of 8-byte words: whatever is changed while others look on is
changed by one store of one whole word. Word offsets are written here once; ``docs/format.md`` and ``layout.pxd`` (the
same numbers for the compiled core, written by ``tools/layout_pxd.py``) are tested against this module.
"""

import struct

FORMAT = 1

WORD_BYTES = 8
PAGE_BYTES = 4096

UNIT_BYTES = 256  # records start on this boundary (S2)
UNIT_WORDS = 32

MASK64 = 0xFFFFFFFFFFFFFFFF
MASK48 = 0xFFFFFFFFFFFF
MASK32 = 0xFFFFFFFF

MAGIC = 0x314E524B4B545350  # "PSTKKRN1"

# ---------------------------------------------------------------- kernel header: the first page, word offsets
H_MAGIC = 0
H_FORMAT = 1
H_KERNEL_BYTES = 2
H_FEATURES = 3  # FEATURE_* bits; any other says that a later version keeps something that this one does not
H_JOURNAL_AT = 4  # the *_AT words are word offsets of the regions that follow the header
H_JOURNAL_ENTRIES = 5
H_STATS_AT = 6
H_LISTS_AT = 7
H_CLIENTS_AT = 8
H_CLIENTS = 9
H_CLASSES_AT = 10
H_CLASSES = 11
H_NAMES_AT = 12
H_NAMES_BYTES = 13
H_SLOTS_AT = 14
H_SLOTS = 15  # slots in the table, the null slot 0 and the data files' sentinels included
H_FILES = 16  # data files; slots 1..H_FILES are their sentinels in the ring
H_DATA_UNITS = 17
H_UUID = 18  # two words
H_BOOT_ID = 20  # two words; with the next four: is this kernel the one its last user left?
H_DEVICE = 22
H_INODE = 23
H_BIRTH_US = 24
H_MOUNT = 25
H_EPOCH = 26  # room for network storage: who wrote last
H_CHANGE = 27  # room for network storage: how often
H_TREES_AT = 28  # links and hashes of the trees by type and key; 0: the queue was made before there were any
H_REMEMBERED_AT = 29  # what was put: 0 in queues that remember nothing
H_REMEMBERED = 30  # entries there

H_JOURNAL_COUNT = 32  # valid undo entries; zero means that the kernel is consistent
H_NUMBER_NEXT = 33
H_NUMBER_LIMIT = 34  # numbers at or above it were never given, whatever was lost
H_VACANT = 35  # top of the stack of vacant slots, linked through S_CHAIN
H_FRESH = 36  # slots from here on were never used
H_WAITING = 37
H_PENDING = 38
H_FILLING = 39
H_PRESENT = 40  # bit l set: list l has messages
H_CURSOR = 41  # ring: the slot behind whose record the next one is written
H_GAPS = 42  # ring: first and last slot with a gap behind it (pair)
H_USED_UNITS = 43
H_SPILLED_BYTES = 44
H_INCOMING = 45  # a published batch on its way into the lists (first slot, linked through S_CHAIN)
H_OWED = 46  # notifications that a dead process still owed
H_CLIENTS_HIGH = 47  # client entries at or above it were never used
H_REPAIRING = 48  # not zero: a repair was cut short; nothing here is to be believed before the next one
KERNEL_LOST = 2  # H_REPAIRING: besides, there was no kernel, or only a part of one
H_NUMBER_SAFE = 49  # numbers below it are below a limit that is on disk
H_SETTLED = 50  # messages with lower numbers were published or given up when the last complete index sync began
H_RETAINED = 51  # removed since, whose room or body must stay until the next one: first slot, linked through S_CHAIN
H_RETIRING = 52  # removed before the index sync that is under way began: likewise
H_RETIRABLE = 53  # not zero: that sync is complete, and the slots of H_RETIRING may be given back
H_KEPT = 54  # slots of both
H_RETIRING_SYNC = 55  # number of the index sync that H_RETIRING waits for
H_CLAIMED = 56
H_PUBLISHER = 57  # entry (its first word) of the publisher whose published batch is still to be remembered; 0: none

H_WAKE = 64  # futex of receivers; alone on its cache line
H_SLEEPERS = 65
H_CHOOSERS = 66  # of these, those that do not take just any message
H_WATCHED = 67  # not zero: some watch the notification file until the next message; WATCHED_* bits
H_ROOM = 72  # futex of producers that wait for room
H_ROOM_SLEEPERS = 73
H_ROOM_WATCHED = 74  # not zero: some watch the notification file until there is room
H_SYNC_BEGUN = 80  # group commit: syncs of the data files that were begun; alone on its cache line, with the next
H_SYNC_DONE = 81  # of those, the highest that is complete
H_SYNC_BELL = 82  # futex of those that wait for one; counted up when a leader has finished
H_SYNC_BEGUN_US = 83  # boot time at which the last was begun
H_SYNC_FAILED = 84  # not zero: error number of a sync that failed; nothing is confirmed any more until a check
H_SYNC_GROUP = 85  # messages that were being put when the last one was begun
H_SYNCER = 86  # boot time at which the synchronization component began to serve; a hint where to ask; 0: there is none
H_INDEX_BEGUN = 88  # the same for syncs of the kernel
H_INDEX_DONE = 89
H_INDEX_BELL = 90
H_INDEX_BEGUN_US = 91
H_INDEX_SYNC_US = 92  # wall time of the last complete one
H_INDEX_MARK = 93  # changes counted when it began: nothing to do as long as there are no more
HEADER_WORDS = 512

WATCHED_ANY = 1  # H_WATCHED: by those that take any message
WATCHED_CHOOSING = 2  # H_WATCHED: by those that do not

FEATURE_CLASSES = 1  # H_FEATURES: there are trees by type and key
FEATURE_EXCLUSIVE = 2  # H_FEATURES: of a key one message at a time is delivered
FEATURE_REMEMBERED = 4  # H_FEATURES: what was put is remembered
FEATURES = 7  # those that this version knows

# ---------------------------------------------------------------- journal: undo entries of two words
J_INDEX = 0
J_OLD = 1
JOURNAL_WORDS = 2
JOURNAL_ENTRIES = 4096  # a transaction is cut before it gets near; the repair after a kill is bounded by it
JOURNAL_ROOM = 1024  # more than any one message's step ever writes: a few changes of trees, each along a path

# ---------------------------------------------------------------- statistics page
T_PUTS = 0
T_GETS = 1
T_ACKS = 2
T_RELEASES = 3
T_EXPIRED = 4  # leases that ran out
T_RETURNED = 5  # messages of dead clients
T_CANCELS = 6
T_ABANDONED = 7  # puts that failed or died before they were published
T_SPILLS = 8
T_REPAIRS = 9  # transactions of dead clients that were rolled back
T_DEPTH_MAX = 10
T_SYNCS = 11  # of the data files, for puts
T_COMMITS = 12  # calls of put and put_many that waited for a sync
T_COMMITTED = 13  # messages of these
T_FOLLOWED = 14  # of T_COMMITS, those that somebody else's sync served
T_INDEX_SYNCS = 15
T_RESTORES = 16
T_DEAD_LETTERED = 17  # moved to the dead-letter queue
T_DROPPED = 18  # removed since they had expired, or failed too often where such are deleted
T_DEDUPLICATED = 19  # puts of what was there already
T_PARKED = 20  # given back for later, since the queue that they were to be moved to did not take them
T_MOVED_OUT = 21  # moved to another queue, but for dead letters
T_MOVED_IN = 22  # that came from another queue
T_SERVICE_RECENT_US = 23  # from delivery to acknowledgement, lately, in microseconds
T_RATES_TICK = 24  # wall time of the last advance of the rates, in ticks: tells only that another tick has begun
T_RATES_US = 25  # boot time up to which they are; 0: nothing is known
T_RATES = 26  # a rate for each of what is counted a second: RATES of them
T_WAITING = 56  # from put to the first delivery: a span, as are the next two
T_LATENESS = 138  # from when it was due to its delivery
T_SERVICE = 220  # from delivery to acknowledgement
STATS_WORDS = 512

# A rate: what was counted up to T_RATES_US, then the means over the windows, one event a second being RATE_ONE.
RATE_COUNTED = 0
RATE_MEANS = 1
RATE_WORDS = 4
RATES = 6  # puts, gets, acks, what came back, dead letters, syncs
RATE_ONE = 1 << 32  # so fine that a single event in 15 minutes fades away and does not stick
RATE_WINDOWS = 3  # 1 second, 1 minute, 15 minutes
TICK_US = 250_000  # the rates advance when another tick has begun: a quarter of the shortest window

# A span: how long something took, in microseconds. Bucket 0 is below 2, then each factor of two has two, cut at 3/2.
SPAN_SUM_US = 0
SPAN_MAX_US = 1
SPAN_BUCKETS = 2
BUCKETS = 80  # the last is 2^40 microseconds, 12.7 days, and all that is more
SPAN_WORDS = 82

# ---------------------------------------------------------------- lists: heads and tails of the skip lists
# Lists 0..15: ready (always due) by priority, ordered by number. 16..31: timed, ordered by (delivery time, number).
# 32: leases, ordered by (lease end, number).
LIST_READY = 0
LIST_TIMED = 16
LIST_LEASES = 32
LISTS = 34
LIST_WORDS = 8  # word l: head and tail (pair) of lane l, 0..6; word 7: count
LIST_COUNT = 7
LANES = 6
LANE_BITS = 3  # one node in eight rises to the next lane: seven hops of a lane on average cross one of the lane above
PRIORITIES = 16

# ---------------------------------------------------------------- client entry
C_INCARNATION = 0  # low half: incarnation; CLIENT_USED: in use, and what it does
C_CHAIN = 1  # first slot of the chain of slots that belong to this client
C_PID = 2  # for people; nothing is decided by it
C_SINCE_US = 3
C_COUNT = 4
C_OPENED_US = 5  # boot time at which it opened the files: errors of earlier syncs may not have been told to it
C_OFFER = 6  # a filled slot that the leader of a sync may publish: ticket << 33 | OFFER_WAKE | slot; 0: none
C_SERVED = 7  # number of the last message that a leader published for this client
CLIENT_WORDS = 8
OFFER_WAKE = 1 << 32  # all receivers are to be told, to plan anew
TICKET_SHIFT = 33
TICKET_MASK = (1 << 31) - 1
CLIENT_USED = 1 << 32
CLIENT_PRODUCES = 1 << 33  # C_INCARNATION: it has put, or tried to
CLIENT_CONSUMES = 1 << 34  # C_INCARNATION: it has looked for messages to get or claim
CLIENTS = 1024

# ---------------------------------------------------------------- classes (type, key): roots of the trees, by hash
B_KEYS = 0  # root of the tree of messages with a key whose hash falls into this bucket
B_TYPES = 1  # the same by type
CLASS_WORDS = 8

# ---------------------------------------------------------------- trees: what the slots have besides
X_TYPE_LINKS = 0  # smaller and larger in the tree by type (pair); S_CLASS_LINKS is the same in the tree by key
X_TYPE = 1  # hash of the type; 0: none
X_KEY = 2  # hash of the key; 0: none
X_SIZE = 3  # slots of the tree by key from this one down
TREE_WORDS = 4
TREE_HEIGHT_MAX = 512  # one of 2^27 slots is about 75 high; what is higher than this is damaged
# Ranks within a key where keys are exclusive: who has it, then what waits. Elsewhere a rank is that of a list: twice
# the distance from the highest priority, and one more if it is timed.
RANK_BUSY = 0
RANK_READY = 2
RANK_TIMED = 3

# ---------------------------------------------------------------- named records: receivers, then publishers
NAMES_BYTES = 65536
N_EPOCH = 0  # how often the entry was taken: whoever has an older one is fenced
N_CHAIN = 1  # first and last slot of all its claims (pair), linked through S_CHAIN; by claim, then as they were due
N_COUNT = 2
N_CLAIM = 3  # number of the last claim that was begun
N_SEEN_US = 4  # wall time of its last call that changed something
N_LENGTH = 5  # bytes of its name; 0: no receiver
N_TIMEOUT_US = 6  # how long after it was seen its claims may be released by anybody; 0: never
N_NAME = 8  # eight words
RECEIVER_WORDS = 16
RECEIVERS = 256
RECEIVER_NAME_BYTES = 64

P_LAST = 0  # last batch that is published: like S_WORD, of its number + 1, with the entry as slot; 0: none
P_NEXT = 1  # the same of the batch that H_PUBLISHER speaks of
P_SEEN_US = 2  # wall time of its last call
P_LENGTH = 3  # bytes of its name; 0: no publisher
P_NAME = 8  # eight words
PUBLISHER_WORDS = 16
PUBLISHERS = 256
PUBLISHER_NAME_BYTES = 64
PUBLISHERS_OFFSET = 4096  # words from H_NAMES_AT

# ---------------------------------------------------------------- what was put: buckets of entries, a column a word
D_HASH = 0  # of the dedup id, or of where it came from, keyed with the secret; 0: the entry is free
D_UNTIL_US = 1  # wall time from which on it is forgotten
D_NUMBER = 2  # the message that was stored
D_SLOT = 3  # its slot, check bits << 32, and the two flags
REMEMBERED_WORDS = 4
REMEMBERED_BUCKET = 32  # entries that one hash may be in: a bucket is full before the table is
REMEMBERED_MAX = 1 << 26
BEING_PUT = 1 << 63  # D_SLOT: not published yet
PUT_SYNCED = 1 << 62  # D_SLOT: it was confirmed by a sync
REMEMBERED_CHECK = 0x3FFFFFFF  # D_SLOT: the check bits, shifted down

# ---------------------------------------------------------------- slot
# The first half is what searching an ordered list reads: one cache line.
S_WORD = 0  # number << 16 | state << 12 | check: the one word that power loss cannot tear
S_DELIVER_US = 1
S_LEASE_US = 2  # claimed: number of the claim
S_LINKS = 3  # next and previous in the list (pair)
S_LANES = 4  # three words: lanes 1..6, two a word; being filled, the first is what remembers it, 0 if nothing does
S_PLACE = 7  # first unit << 24 | units
S_RING = 8  # next and previous in ring order (pair)
S_OWNER = 9  # kind << 60 | client << 32 | incarnation
S_CHAIN = 10  # next and previous of the owner's chain (pair); vacant: next vacant slot
S_INFO = 11  # attempts << 32 | low bits of the number << 24 | flags << 16 | codec << 8 | priority
S_ATTEMPT_US = 12
S_CLASS_LINKS = 13  # smaller and larger in the tree by key (pair)
S_ENQUEUED_US = 14  # as in its record; 0: an earlier version put it, or its waiting time is counted
S_GAP = 15  # next and previous slot with a gap behind its record (pair)
SLOT_WORDS = 16
SLOT_BYTES = 128

STATE_NEW = 0
STATE_VACANT = 1
STATE_FILLING = 2
STATE_WAITING = 3
STATE_PENDING = 4
STATE_STAGED = 5  # room: Spark's sink
STATE_CLAIMED = 6  # in a durable claim of a receiver

NUMBER_SHIFT = 16
STATE_SHIFT = 12
CHECK_MASK = 0xFFF
PLACE_SHIFT = 24
PLACE_MASK = 0xFFFFFF
ATTEMPTS_SHIFT = 32
ATTEMPT_ONE = 1 << 32
FLAGS_SHIFT = 16
CODEC_SHIFT = 8
TAG_SHIFT = 24  # the number's low bits: after a power loss they tell whose attempts these are
TAG_MASK = 0xFF
INFO_LOW = 0xFFFFFFFF
CLIENT_SHIFT = 32
CLIENT_MASK = 0xFFFFFFF
OWNER_CLIENT = 1 << 60  # kind of owner
OWNER_CLAIM = 2 << 60  # a receiver's claims; the other kinds are room for staged sets

FLAG_READY = 1  # always due: a clock that goes back does not hide it
FLAG_SPILLED = 2  # the body is a file in bodies/
FLAG_BATCHED = 4  # one of several that are there together or not at all, confirmed by a sync
FLAG_SPECIAL = 8  # its meta says something that whoever delivers it must know
FLAG_HELD = 16  # waiting and on no list: others of its key come first
FLAG_REMEMBERED = 32  # its meta says what it is remembered by
FLAG_CLASSED = 64  # it has a type or a key, and is in the trees while it waits

MIX_NUMBER = 0x9E3779B97F4A7C15
MIX_SLOT = 0xC2B2AE3D27D4EB4F
MIX_STATE = 0x165667B19E3779F9
MIX_HASH = 0xD6E8FEB86659FD93  # hashes of types and keys, and who is above whom in a tree

# ---------------------------------------------------------------- record: seven words, then meta, then body
R_SIGNATURE = 0
R_NUMBER = 1
R_ENQUEUED_US = 2
R_DELIVER_US = 3
R_SLOT_BATCH = 4  # slot, number of records of its batch
R_INDEX_LENGTH = 5  # place in the batch, bytes of body
R_META_CHECK = 6  # meta bytes (16), flags (8), priority and codec (4 + 4), checksum (32)
RECORD_WORDS = 7
RECORD_BYTES = 56
RECORD = struct.Struct("<QQQQIIIIHBBI")
RECORD_HEAD = struct.Struct("<QQQQIIIIHBB")  # all of it but the checksum
SPILL = struct.Struct("<QI4x")  # body of a spilled record: length and checksum of its file

META_BYTES_MAX = 0xFFFF
UNITS_MAX = PLACE_MASK
FILES_MAX = 64  # data files; each costs a sentinel slot
SLOTS_MAX = 1 << 27  # a word index of the kernel stays below 2^32
DELIVER_US_MAX = 253_402_214_400_000_000  # the last day that every time zone's calendar has: 9999-12-31

if RECORD.size != RECORD_BYTES or SLOT_WORDS * WORD_BYTES != SLOT_BYTES or PAGE_BYTES % SLOT_BYTES:
    raise AssertionError("layout sizes disagree")


def units(payload_bytes: int) -> int:
    """Units that a record with this many bytes of meta and body takes.

    >>> units(200), units(201)
    (1, 2)
    """
    return (RECORD_BYTES + payload_bytes + UNIT_BYTES - 1) // UNIT_BYTES


def _pages(size_bytes: int) -> int:
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES


def class_entries(slots: int) -> int:
    """Size of the table of roots of the trees by type and key: one for sixteen slots, a power of two."""
    return max(64, 1 << ((slots // 16) - 1).bit_length() if slots >= 32 else 64)


def remembered_entries(slots: int) -> int:
    """Entries of a new queue that is not told how many: as many as slots, a power of two, within bounds."""
    return min(max(1024, 1 << (slots - 1).bit_length()), 1 << 20)


def regions(slots: int, remembered: int = 0, *, trees: bool = True, exclusive: bool = False) -> dict[int, int]:
    """Header words of a kernel: where each region starts and how large it is. ``slots`` counts the whole table,
    ``remembered`` are the entries for what was put. Without ``trees`` it is as kernels were made before there were
    any."""
    at = PAGE_BYTES
    words: dict[int, int] = {H_MAGIC: MAGIC, H_FORMAT: FORMAT, H_SLOTS: slots, H_REMEMBERED_AT: 0, H_TREES_AT: 0}
    words[H_REMEMBERED] = remembered
    classes = class_entries(slots)
    sizes = [
        (H_JOURNAL_AT, JOURNAL_ENTRIES * JOURNAL_WORDS * WORD_BYTES),
        (H_STATS_AT, STATS_WORDS * WORD_BYTES),
        (H_LISTS_AT, LISTS * LIST_WORDS * WORD_BYTES),
        (H_CLIENTS_AT, CLIENTS * CLIENT_WORDS * WORD_BYTES),
        (H_CLASSES_AT, classes * CLASS_WORDS * WORD_BYTES),
        (H_NAMES_AT, NAMES_BYTES),
        (H_SLOTS_AT, slots * SLOT_BYTES),
        (H_REMEMBERED_AT, remembered * REMEMBERED_WORDS * WORD_BYTES),
    ]
    if trees:
        sizes.append((H_TREES_AT, slots * TREE_WORDS * WORD_BYTES))
    for word, size_bytes in sizes:
        if size_bytes == 0:
            continue
        words[word] = at // WORD_BYTES
        at += _pages(size_bytes)
    words[H_JOURNAL_ENTRIES] = JOURNAL_ENTRIES
    words[H_CLIENTS] = CLIENTS
    words[H_CLASSES] = classes
    words[H_NAMES_BYTES] = NAMES_BYTES
    words[H_KERNEL_BYTES] = at
    words[H_FEATURES] = (
        (FEATURE_CLASSES if trees else 0)
        | (FEATURE_EXCLUSIVE if exclusive else 0)
        | (FEATURE_REMEMBERED if remembered else 0)
    )
    return words
