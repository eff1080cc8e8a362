/* The CRC-32 of zlib, for the compiled core: with carry-less multiplication where the processor has it.
 *
 * A CRC is a remainder of polynomials. 16 bytes at the front of the data may be replaced by what they leave
 * 16 (or 32, 48, 64, 128, 256) bytes further on, which two multiplications tell; so the data folds into its last 16
 * bytes, and these into their remainder: without tables, which would have to be in the processor's cache, beside the
 * records. The constants are remainders of powers of x, bits reversed: tests/unit/test_record.py derives them again.
 */
#ifndef PENSTOCK_CHECKSUM_H
#define PENSTOCK_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint32_t penstock_crc_tables[8][256];

__attribute__((constructor)) static void penstock_crc_prepare(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++)
            value = (value >> 1) ^ (value & 1 ? 0xEDB88320u : 0);
        penstock_crc_tables[0][byte] = value;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int row = 1; row < 8; row++) {
            uint32_t value = penstock_crc_tables[row - 1][byte];
            penstock_crc_tables[row][byte] = penstock_crc_tables[0][value & 0xFF] ^ (value >> 8);
        }
}

/* `crc` is the running remainder, not inverted as the finished checksum is. */
static inline uint32_t penstock_crc_by_tables(uint32_t crc, const unsigned char *data, size_t size) {
    for (; size >= 8; data += 8, size -= 8) {
        uint32_t low = crc ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
        crc = penstock_crc_tables[7][low & 0xFF] ^ penstock_crc_tables[6][(low >> 8) & 0xFF]
            ^ penstock_crc_tables[5][(low >> 16) & 0xFF] ^ penstock_crc_tables[4][low >> 24]
            ^ penstock_crc_tables[3][data[4]] ^ penstock_crc_tables[2][data[5]]
            ^ penstock_crc_tables[1][data[6]] ^ penstock_crc_tables[0][data[7]];
    }
    for (; size > 0; data++, size--)
        crc = penstock_crc_tables[0][(crc ^ *data) & 0xFF] ^ (crc >> 8);
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define PENSTOCK_FOLDS __attribute__((target("pclmul,sse4.1")))

PENSTOCK_FOLDS static inline __m128i penstock_moved(__m128i lane, __m128i factors) {
    return _mm_xor_si128(_mm_clmulepi64_si128(lane, factors, 0x00), _mm_clmulepi64_si128(lane, factors, 0x11));
}

PENSTOCK_FOLDS static inline __m128i penstock_fold(__m128i lane, __m128i factors, const unsigned char *next) {
    return _mm_xor_si128(penstock_moved(lane, factors), _mm_loadu_si128((const __m128i *)next));
}

/* Read from byte n on, it moves the first n bytes of a lane to the end; from 16 + n on, the others to the beginning. */
static const unsigned char penstock_crc_moves[48] = {
    255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0,   1,   2,   3,   4,   5,   6,   7,
    8,   9,   10,  11,  12,  13,  14,  15,  255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
};

/* What is left of everything before `data`, of which there were 16 bytes at least, and the rest. */
PENSTOCK_FOLDS static inline uint32_t penstock_crc_of_lane(__m128i lane, const unsigned char *data, const unsigned char *end) {
    const __m128i by_16 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    const __m128i by_4 = _mm_set_epi64x(0, 0x163cd6124);
    const __m128i quotient = _mm_set_epi64x(0x1f7011641, 0x1db710641);
    const __m128i low = _mm_set_epi32(0, 0, 0, -1);
    for (; end - data >= 16; data += 16)
        lane = penstock_fold(lane, by_16, data);
    size_t rest = (size_t)(end - data);
    if (rest) {
        /* The first bytes of the lane fold into 16 others: its last ones, and the rest behind them. */
        __m128i up = _mm_loadu_si128((const __m128i *)(penstock_crc_moves + rest));
        __m128i down = _mm_loadu_si128((const __m128i *)(penstock_crc_moves + 16 + rest));
        __m128i others = _mm_blendv_epi8(_mm_shuffle_epi8(lane, down), _mm_loadu_si128((const __m128i *)(end - 16)), down);
        lane = _mm_shuffle_epi8(lane, up);
        lane = _mm_xor_si128(penstock_moved(lane, by_16), others);
    }
    /* 128 bits become 96, then 64; what remains of these is told by Barrett's method. */
    lane = _mm_xor_si128(_mm_srli_si128(lane, 8), _mm_clmulepi64_si128(lane, by_16, 0x10));
    lane = _mm_xor_si128(_mm_srli_si128(lane, 4), _mm_clmulepi64_si128(_mm_and_si128(lane, low), by_4, 0x00));
    __m128i times = _mm_clmulepi64_si128(_mm_and_si128(lane, low), quotient, 0x10);
    lane = _mm_xor_si128(lane, _mm_clmulepi64_si128(_mm_and_si128(times, low), quotient, 0x00));
    return (uint32_t)_mm_extract_epi32(lane, 1);
}

PENSTOCK_FOLDS static uint32_t penstock_crc_by_folding(uint32_t crc, const unsigned char *data, size_t size) {
    const __m128i by_64 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
    const __m128i by_16 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    const __m128i by_32 = _mm_set_epi64x(0x15a546366, 0x0f1da05aa);
    const __m128i by_48 = _mm_set_epi64x(0x174359406, 0x03db1ecdc);
    const unsigned char *end = data + size;
    __m128i lane = _mm_xor_si128(_mm_loadu_si128((const __m128i *)data), _mm_cvtsi32_si128((int)crc));
    data += 16;
    if (size >= 128) {
        __m128i second = _mm_loadu_si128((const __m128i *)data);
        __m128i third = _mm_loadu_si128((const __m128i *)(data + 16));
        __m128i fourth = _mm_loadu_si128((const __m128i *)(data + 32));
        for (data += 48; end - data >= 64; data += 64) {
            lane = penstock_fold(lane, by_64, data);
            second = penstock_fold(second, by_64, data + 16);
            third = penstock_fold(third, by_64, data + 32);
            fourth = penstock_fold(fourth, by_64, data + 48);
        }
        /* Each by its own way to the end of the fourth. */
        lane = _mm_xor_si128(penstock_moved(lane, by_48), penstock_moved(second, by_32));
        lane = _mm_xor_si128(lane, _mm_xor_si128(penstock_moved(third, by_16), fourth));
    }
    return penstock_crc_of_lane(lane, data, end);
}

#if defined(__clang__) || __GNUC__ >= 9
#define PENSTOCK_WIDE __attribute__((target("avx2,vpclmulqdq,pclmul,sse4.1")))

/* The same with two lanes in each register: what is left of all but the end of the data are 128 bytes. */
PENSTOCK_WIDE static uint32_t penstock_crc_by_wide_folding(uint32_t crc, const unsigned char *data, size_t size) {
    const __m128i by_16 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    const __m256i by_128 = _mm256_broadcastsi128_si256(_mm_set_epi64x(0x14a7fe880, 0x1e88ef372));
    const unsigned char *end = data + size;
    unsigned char left[128];
    __m256i lanes[4];
    for (int i = 0; i < 4; i++)
        lanes[i] = _mm256_loadu_si256((const __m256i *)(data + 32 * i));
    lanes[0] = _mm256_xor_si256(lanes[0], _mm256_set_epi32(0, 0, 0, 0, 0, 0, 0, (int)crc));
    for (data += 128; end - data >= 128; data += 128)
        for (int i = 0; i < 4; i++) {
            __m256i moved = _mm256_xor_si256(_mm256_clmulepi64_epi128(lanes[i], by_128, 0x00),
                                             _mm256_clmulepi64_epi128(lanes[i], by_128, 0x11));
            lanes[i] = _mm256_xor_si256(moved, _mm256_loadu_si256((const __m256i *)(data + 32 * i)));
        }
    for (int i = 0; i < 4; i++)
        _mm256_storeu_si256((__m256i *)(left + 32 * i), lanes[i]);
    __m128i lane = _mm_loadu_si128((const __m128i *)left);
    for (int i = 16; i < 128; i += 16)
        lane = penstock_fold(lane, by_16, left + i);
    return penstock_crc_of_lane(lane, data, end);
}

#define PENSTOCK_WIDEST __attribute__((target("avx512f,avx2,vpclmulqdq,pclmul,sse4.1")))

PENSTOCK_WIDEST static inline __m512i penstock_fold_four(__m512i lanes, __m512i factors, __m512i next) {
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(lanes, factors, 0x00),
                                     _mm512_clmulepi64_epi128(lanes, factors, 0x11), next, 0x96);
}

/* The same with four lanes in each register, of which there are four. */
PENSTOCK_WIDEST static uint32_t penstock_crc_by_widest_folding(uint32_t crc, const unsigned char *data, size_t size) {
    const __m128i by_16 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    const __m512i by_64 = _mm512_broadcast_i32x4(_mm_set_epi64x(0x1c6e41596, 0x154442bd4));
    const __m512i by_128 = _mm512_broadcast_i32x4(_mm_set_epi64x(0x14a7fe880, 0x1e88ef372));
    const __m512i by_256 = _mm512_broadcast_i32x4(_mm_set_epi64x(0x1322d1430, 0x11542778a));
    const unsigned char *end = data + size;
    unsigned char left[64];
    __m512i first = _mm512_xor_si512(_mm512_loadu_si512(data), _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    __m512i second = _mm512_loadu_si512(data + 64);
    __m512i third = _mm512_loadu_si512(data + 128);
    __m512i fourth = _mm512_loadu_si512(data + 192);
    for (data += 256; end - data >= 256; data += 256) {
        first = penstock_fold_four(first, by_256, _mm512_loadu_si512(data));
        second = penstock_fold_four(second, by_256, _mm512_loadu_si512(data + 64));
        third = penstock_fold_four(third, by_256, _mm512_loadu_si512(data + 128));
        fourth = penstock_fold_four(fourth, by_256, _mm512_loadu_si512(data + 192));
    }
    third = penstock_fold_four(first, by_128, third);
    fourth = penstock_fold_four(second, by_128, fourth);
    fourth = penstock_fold_four(third, by_64, fourth);
    for (; end - data >= 64; data += 64)
        fourth = penstock_fold_four(fourth, by_64, _mm512_loadu_si512(data));
    _mm512_storeu_si512(left, fourth);
    __m128i lane = _mm_loadu_si128((const __m128i *)left);
    for (int i = 16; i < 64; i += 16)
        lane = penstock_fold(lane, by_16, left + i);
    return penstock_crc_of_lane(lane, data, end);
}
#endif
#endif

static inline uint32_t penstock_crc32(const unsigned char *data, size_t size, uint32_t start) {
#if defined(__x86_64__) && defined(__GNUC__)
#ifdef PENSTOCK_WIDE
    if (size >= 256 && __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512f"))
        return ~penstock_crc_by_widest_folding(~start, data, size);
    if (size >= 512 && __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx2"))
        return ~penstock_crc_by_wide_folding(~start, data, size);
#endif
    if (size >= 16 && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"))
        return ~penstock_crc_by_folding(~start, data, size);
#endif
    return ~penstock_crc_by_tables(~start, data, size);
}

#endif
