/* The statistics of contiguous memory in one pass, and the finite test, for the CPU.
 *
 * Memory is cut into chunks that threads take in turn; a chunk is cut into blocks that fit the L1 cache.
 * A block is first summed as if it were finite, in lanes the compiler can vectorise. NaN and Inf propagate
 * into its sum of squares, so one comparison per block says whether it must be done again with care:
 * masked, counted and in double. That also catches float squares that overflow or vanish.
 *
 * Partial results are combined in the order of the chunks: the answer does not depend on the threads.
 * Threads live for one call only, so nothing is left behind that a fork could break. */

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#define BLOCK 2048
#define CHUNK 65536
#define MAX_THREADS 64
#define BYTES_WORTH_A_THREAD (1 << 19)

typedef struct {
    double nan, posinf, neginf, lo, hi, sum, sumsq;
} Tally;

static const Tally EMPTY = {0, 0, 0, INFINITY, -INFINITY, 0, 0};

static void add_tally(Tally *into, const Tally *part) {
    into->nan += part->nan;
    into->posinf += part->posinf;
    into->neginf += part->neginf;
    if (part->lo < into->lo) into->lo = part->lo;
    if (part->hi > into->hi) into->hi = part->hi;
    into->sum += part->sum;
    into->sumsq += part->sumsq;
}

/* A block whose sum of squares lies outside [VANISH, LARGEST] is done again in double. */
#define float_VANISH 1e-28
#define double_VANISH 0.0
#define float_LARGEST FLT_MAX
#define double_LARGEST DBL_MAX

/* Two halves side by side: two independent chains of additions hide their latency. */
#define DEFINE_QUICK_BLOCK(REAL)                                                                           \
    static int quick_block_##REAL(const REAL *x, size_t n, Tally *out) {                                   \
        size_t half = n / 2;                                                                               \
        const REAL *y = x + half;                                                                          \
        REAL lo = x[n - 1], hi = lo, lo2 = lo, hi2 = lo, sum = 0, sum2 = 0, sumsq = 0, sumsq2 = 0;         \
        PRAGMA(omp simd reduction(min : lo, lo2) reduction(max : hi, hi2)                                  \
               reduction(+ : sum, sum2, sumsq, sumsq2))                                                    \
        for (size_t i = 0; i < half; i++) {                                                                \
            REAL v = x[i], w = y[i];                                                                       \
            lo = v < lo ? v : lo;                                                                          \
            hi = v > hi ? v : hi;                                                                          \
            sum += v;                                                                                      \
            sumsq += v * v;                                                                                \
            lo2 = w < lo2 ? w : lo2;                                                                       \
            hi2 = w > hi2 ? w : hi2;                                                                       \
            sum2 += w;                                                                                     \
            sumsq2 += w * w;                                                                               \
        }                                                                                                  \
        REAL odd = n % 2 ? x[n - 1] : 0;                                                                   \
        double squares = (double)sumsq + (double)sumsq2 + (double)odd * (double)odd;                       \
        if (!(squares <= (double)REAL##_LARGEST)) return 0;                                                \
        if (squares < REAL##_VANISH && (lo != 0 || hi != 0 || lo2 != 0 || hi2 != 0)) return 0;             \
        Tally part = {0, 0, 0, lo < lo2 ? lo : lo2, hi > hi2 ? hi : hi2,                                   \
                      (double)sum + (double)sum2 + (double)odd, squares};                                  \
        add_tally(out, &part);                                                                             \
        return 1;                                                                                          \
    }

#define DEFINE_CAREFUL_BLOCK(REAL)                                                                         \
    static void careful_block_##REAL(const REAL *x, size_t n, Tally *out) {                                \
        REAL lo = INFINITY, hi = -INFINITY;                                                                \
        double sum = 0, sumsq = 0;                                                                         \
        int32_t nan = 0, posinf = 0, neginf = 0;                                                           \
        PRAGMA(omp simd reduction(min : lo) reduction(max : hi)                                            \
               reduction(+ : sum, sumsq, nan, posinf, neginf))                                             \
        for (size_t i = 0; i < n; i++) {                                                                   \
            REAL v = x[i], size = v < 0 ? -v : v;                                                          \
            int good = size <= REAL##_LARGEST;                                                             \
            REAL low = good ? v : (REAL)INFINITY, high = good ? v : (REAL)-INFINITY;                       \
            double value = (double)(good ? v : (REAL)0);                                                   \
            nan += v != v;                                                                                 \
            posinf += v > REAL##_LARGEST;                                                                  \
            neginf += v < -REAL##_LARGEST;                                                                 \
            lo = low < lo ? low : lo;                                                                      \
            hi = high > hi ? high : hi;                                                                    \
            sum += value;                                                                                  \
            sumsq += value * value;                                                                        \
        }                                                                                                  \
        Tally part = {nan, posinf, neginf, lo, hi, sum, sumsq};                                            \
        add_tally(out, &part);                                                                             \
    }

#define DEFINE_SQUARES_BLOCK(REAL)                                                                         \
    static double squares_block_##REAL(const REAL *x, size_t n) {                                          \
        size_t half = n / 2;                                                                               \
        const REAL *y = x + half;                                                                          \
        REAL quick = 0, quick2 = 0, odd = n % 2 ? x[n - 1] : 0;                                            \
        PRAGMA(omp simd reduction(+ : quick, quick2))                                                      \
        for (size_t i = 0; i < half; i++) {                                                                \
            quick += x[i] * x[i];                                                                          \
            quick2 += y[i] * y[i];                                                                         \
        }                                                                                                  \
        double squares = (double)quick + (double)quick2 + (double)odd * (double)odd;                       \
        if (squares >= REAL##_VANISH && squares <= (double)REAL##_LARGEST) return squares;                 \
        squares = 0;                                                                                       \
        PRAGMA(omp simd reduction(+ : squares))                                                            \
        for (size_t i = 0; i < n; i++) squares += (double)x[i] * (double)x[i];                             \
        return squares;                                                                                    \
    }

#define PRAGMA(TEXT) _Pragma(#TEXT)
#define DEFINE_BLOCKS(REAL) DEFINE_QUICK_BLOCK(REAL) DEFINE_CAREFUL_BLOCK(REAL) DEFINE_SQUARES_BLOCK(REAL)

DEFINE_BLOCKS(float)
DEFINE_BLOCKS(double)

static inline float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float float_of_half(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, rest = half & 0x7fffu;
    if (rest >= 0x7c00u) return float_of_bits(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    if (rest >= 0x0400u) return float_of_bits(sign | ((rest << 13) + 0x38000000u));
    float small = (float)rest * 0x1p-24f;
    return sign ? -small : small;
}

/* Each gives a block as the reals it is reckoned in: the memory itself, or widened into `room`. */
static const float *real_float32(const float *x, size_t n, float *room) { return (void)n, (void)room, x; }

static const double *real_float64(const double *x, size_t n, double *room) { return (void)n, (void)room, x; }

static const float *real_bfloat16(const uint16_t *restrict x, size_t n, float *restrict room) {
    for (size_t i = 0; i < n; i++) room[i] = float_of_bits((uint32_t)x[i] << 16);
    return room;
}

static const float *real_float16(const uint16_t *restrict x, size_t n, float *restrict room) {
    size_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(room + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + i))));
#endif
    for (; i < n; i++) room[i] = float_of_half(x[i]);
    return room;
}

#define DEFINE_STATISTICS(NAME, STORED, REAL)                                                              \
    static void statistics_##NAME(const void *data, size_t n, Tally *out) {                                \
        REAL room[BLOCK];                                                                                  \
        for (size_t i = 0; i < n; i += BLOCK) {                                                            \
            size_t size = n - i < BLOCK ? n - i : BLOCK;                                                   \
            const REAL *x = real_##NAME((const STORED *)data + i, size, room);                             \
            if (!quick_block_##REAL(x, size, out)) careful_block_##REAL(x, size, out);                     \
        }                                                                                                  \
    }                                                                                                      \
    static void squares_##NAME(const void *data, size_t n, Tally *out) {                                   \
        REAL room[BLOCK];                                                                                  \
        for (size_t i = 0; i < n; i += BLOCK) {                                                            \
            size_t size = n - i < BLOCK ? n - i : BLOCK;                                                   \
            out->sumsq += squares_block_##REAL(real_##NAME((const STORED *)data + i, size, room), size);   \
        }                                                                                                  \
    }

/* NaN and Inf have every exponent bit set. Stops at the first block that holds one. */
#define DEFINE_FINITE(NAME, BITS, EXPONENT)                                                                \
    static void finite_##NAME(const void *data, size_t n, Tally *out) {                                    \
        const BITS *x = data;                                                                              \
        for (size_t i = 0; i < n; i += BLOCK) {                                                            \
            size_t end = n - i < BLOCK ? n : i + BLOCK;                                                    \
            BITS bad = 0;                                                                                  \
            for (size_t k = i; k < end; k++) bad |= (BITS)((x[k] & EXPONENT) == EXPONENT);                 \
            if (bad) {                                                                                     \
                out->nan = 1;                                                                              \
                return;                                                                                    \
            }                                                                                              \
        }                                                                                                  \
    }

#define DEFINE_KERNELS(NAME, STORED, REAL, BITS, EXPONENT)                                                 \
    DEFINE_STATISTICS(NAME, STORED, REAL)                                                                  \
    DEFINE_FINITE(NAME, BITS, EXPONENT)

DEFINE_KERNELS(float32, float, float, uint32_t, 0x7f800000u)
DEFINE_KERNELS(float64, double, double, uint64_t, 0x7ff0000000000000u)
DEFINE_KERNELS(bfloat16, uint16_t, float, uint16_t, 0x7f80u)
DEFINE_KERNELS(float16, uint16_t, float, uint16_t, 0x7c00u)

typedef void (*Kernel)(const void *, size_t, Tally *);

/* Rows: what is asked. Columns: float32, float64, bfloat16, float16, as the caller numbers them. */
static const Kernel KERNELS[3][4] = {
    {statistics_float32, statistics_float64, statistics_bfloat16, statistics_float16},
    {squares_float32, squares_float64, squares_bfloat16, squares_float16},
    {finite_float32, finite_float64, finite_bfloat16, finite_float16},
};
static const size_t ITEM_SIZE[4] = {4, 8, 2, 2};
enum { STATISTICS, SQUARES, FINITE };

typedef struct {
    int question;
    size_t tensors, chunks;
    const void *const *data;
    const int64_t *counts;
    const uint8_t *types;
    Tally *parts;
    size_t next_chunk;
    int found_bad;
} Job;

static void answer(const Job *job, size_t tensor, size_t from, size_t n, Tally *out) {
    int type = job->types[tensor];
    KERNELS[job->question][type]((const char *)job->data[tensor] + from * ITEM_SIZE[type], n, out);
}

static size_t chunks_of(int64_t count) { return ((size_t)count + CHUNK - 1) / CHUNK; }

static void *take_chunks(void *argument) {
    Job *job = argument;
    size_t tensor = 0, chunks_before = 0;
    for (;;) {
        size_t chunk = __atomic_fetch_add(&job->next_chunk, 1, __ATOMIC_RELAXED);
        if (chunk >= job->chunks || __atomic_load_n(&job->found_bad, __ATOMIC_RELAXED)) return NULL;
        while (chunk - chunks_before >= chunks_of(job->counts[tensor]))
            chunks_before += chunks_of(job->counts[tensor++]);
        size_t from = (chunk - chunks_before) * CHUNK, left = (size_t)job->counts[tensor] - from;
        job->parts[chunk] = EMPTY;
        answer(job, tensor, from, left < CHUNK ? left : CHUNK, &job->parts[chunk]);
        if (job->question == FINITE && job->parts[chunk].nan)
            __atomic_store_n(&job->found_bad, 1, __ATOMIC_RELAXED);
    }
}

static void run_threads(Job *job, int threads) {
    pthread_t started[MAX_THREADS];
    int running = 0;
    while (running < threads - 1 && !pthread_create(&started[running], NULL, take_chunks, job)) running++;
    take_chunks(job);
    while (running) pthread_join(started[--running], NULL);
}

static int threads_worth_it(const Job *job, int allowed) {
    size_t bytes = 0;
    for (size_t i = 0; i < job->tensors; i++) bytes += (size_t)job->counts[i] * ITEM_SIZE[job->types[i]];
    size_t worth = 1 + bytes / BYTES_WORTH_A_THREAD;
    if (allowed > MAX_THREADS) allowed = MAX_THREADS;
    return worth < (size_t)allowed ? (int)worth : allowed;
}

/* All tensors as one: their tally into `out`. Returns 0, or -1 when there is no memory for it. */
static int ask(Job *job, int threads, Tally *out) {
    *out = EMPTY;
    for (size_t i = 0; i < job->tensors; i++) job->chunks += chunks_of(job->counts[i]);
    threads = threads_worth_it(job, threads);
    if (threads <= 1 && job->tensors == 1 && job->chunks <= 1) {
        if (job->chunks) answer(job, 0, 0, (size_t)job->counts[0], out);
        return 0;
    }
    job->parts = malloc((job->chunks + 1) * sizeof(Tally));
    if (!job->parts) return -1;
    run_threads(job, threads);
    if (job->question == FINITE) out->nan = job->found_bad;
    else for (size_t i = 0; i < job->chunks; i++) add_tally(out, &job->parts[i]);
    free(job->parts);
    return 0;
}

int nanwatch_statistics(const void *data, int64_t count, int type, int threads, double *out) {
    uint8_t types[1] = {(uint8_t)type};
    Job job = {.question = STATISTICS, .tensors = 1, .data = &data, .counts = &count, .types = types};
    return ask(&job, threads, (Tally *)out);
}

/* 1 finite, 0 not, -1 failed. */
int nanwatch_finite(const void *data, int64_t count, int type, int threads) {
    uint8_t types[1] = {(uint8_t)type};
    Job job = {.question = FINITE, .tensors = 1, .data = &data, .counts = &count, .types = types};
    Tally out;
    return ask(&job, threads, &out) ? -1 : out.nan == 0;
}

/* The sum of squares over many tensors; NaN or Inf when any holds one; negative when it failed. */
double nanwatch_squares(const void *const *data, const int64_t *counts, const uint8_t *types, int64_t tensors,
                        int threads) {
    Job job = {.question = SQUARES, .tensors = (size_t)tensors, .data = data, .counts = counts, .types = types};
    Tally out;
    return ask(&job, threads, &out) ? -1.0 : out.sumsq;
}

/* How often each byte occurs: enough to know everything about an 8-bit type. Four tables, so that equal
 * neighbours do not wait for each other. */
void nanwatch_bytes(const uint8_t *data, int64_t count, int64_t *out) {
    static const int TABLES = 4;
    uint64_t seen[4][256];
    memset(seen, 0, sizeof seen);
    int64_t i = 0;
    for (; i + TABLES <= count; i += TABLES)
        for (int j = 0; j < TABLES; j++) seen[j][data[i + j]]++;
    for (; i < count; i++) seen[0][data[i]]++;
    for (int value = 0; value < 256; value++)
        out[value] = (int64_t)(seen[0][value] + seen[1][value] + seen[2][value] + seen[3][value]);
}
