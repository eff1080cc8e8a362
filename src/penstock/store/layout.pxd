# Written by tools/layout_pxd.py from layout.py: change that, then run this again.
cdef enum:
    FORMAT = 0x1
    WORD_BYTES = 0x8
    PAGE_BYTES = 0x1000
    UNIT_BYTES = 0x100
    UNIT_WORDS = 0x20
    H_MAGIC = 0x0
    H_FORMAT = 0x1
    H_KERNEL_BYTES = 0x2
    H_FEATURES = 0x3
    H_JOURNAL_AT = 0x4
    H_JOURNAL_ENTRIES = 0x5
    H_STATS_AT = 0x6
    H_LISTS_AT = 0x7
    H_CLIENTS_AT = 0x8
    H_CLIENTS = 0x9
    H_CLASSES_AT = 0xa
    H_CLASSES = 0xb
    H_NAMES_AT = 0xc
    H_NAMES_BYTES = 0xd
    H_SLOTS_AT = 0xe
    H_SLOTS = 0xf
    H_FILES = 0x10
    H_DATA_UNITS = 0x11
    H_UUID = 0x12
    H_BOOT_ID = 0x14
    H_DEVICE = 0x16
    H_INODE = 0x17
    H_BIRTH_US = 0x18
    H_MOUNT = 0x19
    H_EPOCH = 0x1a
    H_CHANGE = 0x1b
    H_JOURNAL_COUNT = 0x20
    H_NUMBER_NEXT = 0x21
    H_NUMBER_LIMIT = 0x22
    H_VACANT = 0x23
    H_FRESH = 0x24
    H_WAITING = 0x25
    H_PENDING = 0x26
    H_FILLING = 0x27
    H_PRESENT = 0x28
    H_CURSOR = 0x29
    H_GAPS = 0x2a
    H_USED_UNITS = 0x2b
    H_SPILLED_BYTES = 0x2c
    H_INCOMING = 0x2d
    H_OWED = 0x2e
    H_CLIENTS_HIGH = 0x2f
    H_REPAIRING = 0x30
    H_WAKE = 0x40
    H_SLEEPERS = 0x41
    H_ROOM = 0x48
    H_ROOM_SLEEPERS = 0x49
    H_SYNC_BEGUN = 0x50
    H_SYNC_DONE = 0x51
    H_SYNC_FAILED = 0x52
    H_SYNC_SLEEPERS = 0x53
    H_INDEX_SYNC_US = 0x54
    HEADER_WORDS = 0x200
    J_INDEX = 0x0
    J_OLD = 0x1
    JOURNAL_WORDS = 0x2
    JOURNAL_ENTRIES = 0x1000
    JOURNAL_ROOM = 0x80
    T_PUTS = 0x0
    T_GETS = 0x1
    T_ACKS = 0x2
    T_RELEASES = 0x3
    T_EXPIRED = 0x4
    T_RETURNED = 0x5
    T_CANCELS = 0x6
    T_ABANDONED = 0x7
    T_SPILLS = 0x8
    T_REPAIRS = 0x9
    T_DEPTH_MAX = 0xa
    STATS_WORDS = 0x200
    LIST_READY = 0x0
    LIST_TIMED = 0x10
    LIST_LEASES = 0x20
    LISTS = 0x22
    LIST_WORDS = 0x8
    LIST_COUNT = 0x7
    LANES = 0x6
    LANE_BITS = 0x3
    PRIORITIES = 0x10
    C_INCARNATION = 0x0
    C_CHAIN = 0x1
    C_PID = 0x2
    C_SINCE_US = 0x3
    C_COUNT = 0x4
    CLIENT_WORDS = 0x8
    CLIENTS = 0x400
    CLASS_WORDS = 0x8
    NAMES_BYTES = 0x10000
    S_WORD = 0x0
    S_DELIVER_US = 0x1
    S_LEASE_US = 0x2
    S_LINKS = 0x3
    S_LANES = 0x4
    S_PLACE = 0x7
    S_RING = 0x8
    S_OWNER = 0x9
    S_CHAIN = 0xa
    S_INFO = 0xb
    S_ATTEMPT_US = 0xc
    S_CLASS_LINKS = 0xd
    S_CLASS = 0xe
    S_GAP = 0xf
    SLOT_WORDS = 0x10
    SLOT_BYTES = 0x80
    STATE_NEW = 0x0
    STATE_VACANT = 0x1
    STATE_FILLING = 0x2
    STATE_WAITING = 0x3
    STATE_PENDING = 0x4
    STATE_STAGED = 0x5
    STATE_CLAIMED = 0x6
    NUMBER_SHIFT = 0x10
    STATE_SHIFT = 0xc
    CHECK_MASK = 0xfff
    PLACE_SHIFT = 0x18
    PLACE_MASK = 0xffffff
    ATTEMPTS_SHIFT = 0x20
    FLAGS_SHIFT = 0x10
    CODEC_SHIFT = 0x8
    CLIENT_SHIFT = 0x20
    CLIENT_MASK = 0xfffffff
    FLAG_READY = 0x1
    FLAG_SPILLED = 0x2
    R_SIGNATURE = 0x0
    R_NUMBER = 0x1
    R_ENQUEUED_US = 0x2
    R_DELIVER_US = 0x3
    R_SLOT_BATCH = 0x4
    R_INDEX_LENGTH = 0x5
    R_META_CHECK = 0x6
    RECORD_WORDS = 0x7
    RECORD_BYTES = 0x38
    META_BYTES_MAX = 0xffff
    UNITS_MAX = 0xffffff
    FILES_MAX = 0x40
    SLOTS_MAX = 0x8000000

cdef extern from *:
    """
    #define PENSTOCK_MASK64 0xffffffffffffffffULL
    #define PENSTOCK_MASK48 0xffffffffffffULL
    #define PENSTOCK_MASK32 0xffffffffULL
    #define PENSTOCK_MAGIC 0x314e524b4b545350ULL
    #define PENSTOCK_CLIENT_USED 0x100000000ULL
    #define PENSTOCK_ATTEMPT_ONE 0x100000000ULL
    #define PENSTOCK_INFO_LOW 0xffffffffULL
    #define PENSTOCK_OWNER_CLIENT 0x1000000000000000ULL
    #define PENSTOCK_MIX_NUMBER 0x9e3779b97f4a7c15ULL
    #define PENSTOCK_MIX_SLOT 0xc2b2ae3d27d4eb4fULL
    #define PENSTOCK_MIX_STATE 0x165667b19e3779f9ULL
    #define PENSTOCK_DELIVER_US_MAX 0x38443f8ae9c0000ULL
    """
    const unsigned long long MASK64 "PENSTOCK_MASK64"
    const unsigned long long MASK48 "PENSTOCK_MASK48"
    const unsigned long long MASK32 "PENSTOCK_MASK32"
    const unsigned long long MAGIC "PENSTOCK_MAGIC"
    const unsigned long long CLIENT_USED "PENSTOCK_CLIENT_USED"
    const unsigned long long ATTEMPT_ONE "PENSTOCK_ATTEMPT_ONE"
    const unsigned long long INFO_LOW "PENSTOCK_INFO_LOW"
    const unsigned long long OWNER_CLIENT "PENSTOCK_OWNER_CLIENT"
    const unsigned long long MIX_NUMBER "PENSTOCK_MIX_NUMBER"
    const unsigned long long MIX_SLOT "PENSTOCK_MIX_SLOT"
    const unsigned long long MIX_STATE "PENSTOCK_MIX_STATE"
    const unsigned long long DELIVER_US_MAX "PENSTOCK_DELIVER_US_MAX"
