/* The statistics of contiguous memory in one pass, and the finite test, for the CPU.
 *
 * Memory is cut into chunks that threads take in turn; a chunk is cut into blocks that fit the L1 cache.
 * A block is first summed as if it were finite, in lanes the compiler can vectorise. NaN and Inf propagate
 * into its sum of squares, so one comparison per block says whether it must be done again with care:
 * masked, counted and in double. That also catches float squares that overflow or vanish.
 *
 * Partial results are combined in the order of the chunks: the answer does not depend on the threads.
 * The work is given to torch's own team of threads, which is still awake from the op before; without one,
 * threads live for one call only, so that nothing is left behind that a fork could break. */

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

static inline float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float float_of_bfloat16(uint16_t bits) { return float_of_bits((uint32_t)bits << 16); }

static inline float float_of_float16(uint16_t half) {
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
    for (size_t i = 0; i < n; i++) room[i] = float_of_bfloat16(x[i]);
    return room;
}

static const float *real_float16(const uint16_t *restrict x, size_t n, float *restrict room) {
    size_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(room + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + i))));
#endif
    for (; i < n; i++) room[i] = float_of_float16(x[i]);
    return room;
}

/* Two values at a time, so that two independent chains of additions hide their latency: one from each half
 * of a block, or, where two values share a word, the two of it. */
static inline uint32_t word_at(const uint16_t *x, size_t i) {
    uint32_t word;
    memcpy(&word, x + 2 * i, sizeof word);
    return word;
}

#define FIRST_float32(x, half, i) x[i]
#define SECOND_float32(x, half, i) x[half + i]
#define LAST_float32(x, n) x[n - 1]
#define FIRST_float64 FIRST_float32
#define SECOND_float64 SECOND_float32
#define LAST_float64 LAST_float32
#define FIRST_bfloat16(x, half, i) float_of_bits(word_at(x, i) << 16)
#define SECOND_bfloat16(x, half, i) float_of_bits(word_at(x, i) & 0xffff0000u)
#define LAST_bfloat16(x, n) float_of_bfloat16(x[n - 1])

/* A block whose sum of squares lies outside [VANISH, LARGEST] is done again in double. */
#define float_VANISH 1e-28
#define double_VANISH 0.0
#define float_LARGEST FLT_MAX
#define double_LARGEST DBL_MAX

#define PRAGMA(TEXT) _Pragma(#TEXT)

#define DEFINE_QUICK_BLOCK(NAME, STORED, REAL)                                                             \
    static int quick_block_##NAME(const STORED *x, size_t n, Tally *out) {                                 \
        size_t half = n / 2;                                                                               \
        REAL lo = LAST_##NAME(x, n), hi = lo, lo2 = lo, hi2 = lo, odd = n % 2 ? lo : 0;                    \
        REAL sum = 0, sum2 = 0, sumsq = 0, sumsq2 = 0;                                                     \
        PRAGMA(omp simd reduction(min : lo, lo2) reduction(max : hi, hi2)                                  \
               reduction(+ : sum, sum2, sumsq, sumsq2))                                                    \
        for (size_t i = 0; i < half; i++) {                                                                \
            REAL v = FIRST_##NAME(x, half, i), w = SECOND_##NAME(x, half, i);                              \
            lo = v < lo ? v : lo;                                                                          \
            hi = v > hi ? v : hi;                                                                          \
            sum += v;                                                                                      \
            sumsq += v * v;                                                                                \
            lo2 = w < lo2 ? w : lo2;                                                                       \
            hi2 = w > hi2 ? w : hi2;                                                                       \
            sum2 += w;                                                                                     \
            sumsq2 += w * w;                                                                               \
        }                                                                                                  \
        double squares = (double)sumsq + (double)sumsq2 + (double)odd * (double)odd;                       \
        if (!(squares <= (double)REAL##_LARGEST)) return 0;                                                \
        if (squares < REAL##_VANISH && (lo != 0 || hi != 0 || lo2 != 0 || hi2 != 0)) return 0;             \
        Tally part = {0, 0, 0, lo < lo2 ? lo : lo2, hi > hi2 ? hi : hi2,                                   \
                      (double)sum + (double)sum2 + (double)odd, squares};                                  \
        add_tally(out, &part);                                                                             \
        return 1;                                                                                          \
    }

#define DEFINE_QUICK_SQUARES(NAME, STORED, REAL)                                                           \
    static int quick_squares_##NAME(const STORED *x, size_t n, Tally *out) {                               \
        size_t half = n / 2;                                                                               \
        REAL sumsq = 0, sumsq2 = 0, odd = n % 2 ? LAST_##NAME(x, n) : 0;                                   \
        PRAGMA(omp simd reduction(+ : sumsq, sumsq2))                                                      \
        for (size_t i = 0; i < half; i++) {                                                                \
            REAL v = FIRST_##NAME(x, half, i), w = SECOND_##NAME(x, half, i);                              \
            sumsq += v * v;                                                                                \
            sumsq2 += w * w;                                                                               \
        }                                                                                                  \
        double squares = (double)sumsq + (double)sumsq2 + (double)odd * (double)odd;                       \
        if (!(squares >= REAL##_VANISH && squares <= (double)REAL##_LARGEST)) return 0;                    \
        out->sumsq += squares;                                                                             \
        return 1;                                                                                          \
    }

#define DEFINE_CAREFUL_BLOCKS(REAL)                                                                        \
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
    }                                                                                                      \
    static void careful_squares_##REAL(const REAL *x, size_t n, Tally *out) {                              \
        double squares = 0;                                                                                \
        PRAGMA(omp simd reduction(+ : squares))                                                            \
        for (size_t i = 0; i < n; i++) squares += (double)x[i] * (double)x[i];                             \
        out->sumsq += squares;                                                                             \
    }

DEFINE_QUICK_BLOCK(float32, float, float)
DEFINE_QUICK_BLOCK(float64, double, double)
DEFINE_QUICK_SQUARES(float32, float, float)
DEFINE_QUICK_SQUARES(float64, double, double)
DEFINE_QUICK_SQUARES(bfloat16, uint16_t, float)
DEFINE_CAREFUL_BLOCKS(float)
DEFINE_CAREFUL_BLOCKS(double)

/* 16-bit floats keep sign and magnitude. With the magnitude of negatives turned over they are ordered as
 * integers are, and twice as many of those fit a register. */
static inline int16_t turned(int16_t bits) { return (int16_t)(bits ^ ((bits >> 15) & 0x7fff)); }

static void extremes_of_16_bits(const uint16_t *x, size_t n, uint16_t *lo, uint16_t *hi) {
    int16_t low = INT16_MAX, high = INT16_MIN;
    PRAGMA(omp simd reduction(min : low) reduction(max : high))
    for (size_t i = 0; i < n; i++) {
        int16_t value = turned((int16_t)x[i]);
        low = value < low ? value : low;
        high = value > high ? value : high;
    }
    *lo = (uint16_t)turned(low);
    *hi = (uint16_t)turned(high);
}

#define DEFINE_SUMS(NAME, STORED)                                                                          \
    static void sums_##NAME(const STORED *x, size_t n, double *total, double *squares) {                   \
        size_t half = n / 2;                                                                               \
        float sum = 0, sum2 = 0, sumsq = 0, sumsq2 = 0, odd = n % 2 ? LAST_##NAME(x, n) : 0;               \
        PRAGMA(omp simd reduction(+ : sum, sum2, sumsq, sumsq2))                                           \
        for (size_t i = 0; i < half; i++) {                                                                \
            float v = FIRST_##NAME(x, half, i), w = SECOND_##NAME(x, half, i);                             \
            sum += v;                                                                                      \
            sumsq += v * v;                                                                                \
            sum2 += w;                                                                                     \
            sumsq2 += w * w;                                                                               \
        }                                                                                                  \
        *total = (double)sum + (double)sum2 + (double)odd;                                                 \
        *squares = (double)sumsq + (double)sumsq2 + (double)odd * (double)odd;                             \
    }

DEFINE_SUMS(bfloat16, uint16_t)

#if defined(__F16C__) && defined(__FMA__)
static inline __m256 eight_of_float16(const uint16_t *x) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)x));
}

static double sum_of_eight(__m256 lanes) {
    float lane[8];
    double sum = 0;
    _mm256_storeu_ps(lane, lanes);
    for (int j = 0; j < 8; j++) sum += (double)lane[j];
    return sum;
}

static void sums_float16(const uint16_t *x, size_t n, double *total, double *squares) {
    __m256 sum = _mm256_setzero_ps(), sum2 = sum, sumsq = sum, sumsq2 = sum;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m256 v = eight_of_float16(x + i), w = eight_of_float16(x + i + 8);
        sum = _mm256_add_ps(sum, v);
        sumsq = _mm256_fmadd_ps(v, v, sumsq);
        sum2 = _mm256_add_ps(sum2, w);
        sumsq2 = _mm256_fmadd_ps(w, w, sumsq2);
    }
    *total = sum_of_eight(sum) + sum_of_eight(sum2);
    *squares = sum_of_eight(sumsq) + sum_of_eight(sumsq2);
    for (; i < n; i++) {
        double v = (double)float_of_float16(x[i]);
        *total += v;
        *squares += v * v;
    }
}
#else
DEFINE_SUMS(float32, float)

static void sums_float16(const uint16_t *x, size_t n, double *total, double *squares) {
    float room[BLOCK];
    sums_float32(real_float16(x, n, room), n, total, squares);
}
#endif

static int quick_squares_float16(const uint16_t *x, size_t n, Tally *out) {
    double total, squares;
    sums_float16(x, n, &total, &squares);
    if (!(squares >= float_VANISH && squares <= (double)float_LARGEST)) return 0;
    out->sumsq += squares;
    return 1;
}

#define DEFINE_QUICK_BLOCK_OF_16_BITS(NAME)                                                                \
    static int quick_block_##NAME(const uint16_t *x, size_t n, Tally *out) {                               \
        double total, squares;                                                                             \
        uint16_t lo, hi;                                                                                   \
        sums_##NAME(x, n, &total, &squares);                                                               \
        if (!(squares <= (double)float_LARGEST)) return 0;                                                 \
        extremes_of_16_bits(x, n, &lo, &hi);                                                               \
        Tally part = {0, 0, 0, float_of_##NAME(lo), float_of_##NAME(hi), total, squares};                  \
        if (squares < float_VANISH && (part.lo != 0 || part.hi != 0)) return 0;                            \
        add_tally(out, &part);                                                                             \
        return 1;                                                                                          \
    }

DEFINE_QUICK_BLOCK_OF_16_BITS(bfloat16)
DEFINE_QUICK_BLOCK_OF_16_BITS(float16)

#define DEFINE_PASS(QUESTION, STEP, NAME, STORED, REAL)                                                    \
    static void QUESTION##_##NAME(const void *data, size_t n, Tally *out) {                                \
        REAL room[BLOCK];                                                                                  \
        for (size_t i = 0; i < n; i += BLOCK) {                                                            \
            size_t size = n - i < BLOCK ? n - i : BLOCK;                                                   \
            const STORED *x = (const STORED *)data + i;                                                    \
            if (!quick_##STEP##_##NAME(x, size, out))                                                      \
                careful_##STEP##_##REAL(real_##NAME(x, size, room), size, out);                            \
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
    DEFINE_PASS(statistics, block, NAME, STORED, REAL)                                                     \
    DEFINE_PASS(plain_squares, squares, NAME, STORED, REAL)                                                \
    DEFINE_FINITE(NAME, BITS, EXPONENT)

DEFINE_KERNELS(float32, float, float, uint32_t, 0x7f800000u)
DEFINE_KERNELS(float64, double, double, uint64_t, 0x7ff0000000000000u)
DEFINE_KERNELS(bfloat16, uint16_t, float, uint16_t, 0x7f80u)
DEFINE_KERNELS(float16, uint16_t, float, uint16_t, 0x7c00u)

#define squares_float64 plain_squares_float64
#define squares_bfloat16 plain_squares_bfloat16
#define squares_float16 plain_squares_float16

#define QUARTER_BLOCK (BLOCK / 4)

/* A block in four pieces, `apart` from each other. */
static int quick_squares_of_four(const float *x, size_t apart, Tally *out) {
    const float *y = x + apart, *z = y + apart, *w = z + apart;
    float sum_x = 0, sum_y = 0, sum_z = 0, sum_w = 0;
    PRAGMA(omp simd reduction(+ : sum_x, sum_y, sum_z, sum_w))
    for (size_t i = 0; i < QUARTER_BLOCK; i++) {
        sum_x += x[i] * x[i];
        sum_y += y[i] * y[i];
        sum_z += z[i] * z[i];
        sum_w += w[i] * w[i];
    }
    double squares = (double)sum_x + (double)sum_y + (double)sum_z + (double)sum_w;
    if (!(squares >= float_VANISH && squares <= (double)float_LARGEST)) return 0;
    out->sumsq += squares;
    return 1;
}

/* Gradients lie in main memory when they are looked at. It is read faster in four places at a time, since the
 * processor fetches ahead in each of them, and only within a page. */
static void squares_float32(const void *data, size_t n, Tally *out) {
    const float *x = data;
    size_t quarter = n / BLOCK * QUARTER_BLOCK;
    for (size_t i = 0; i < quarter; i += QUARTER_BLOCK) {
        if (quick_squares_of_four(x + i, quarter, out)) continue;
        for (int k = 0; k < 4; k++) careful_squares_float(x + k * quarter + i, QUARTER_BLOCK, out);
    }
    plain_squares_float32(x + 4 * quarter, n - 4 * quarter, out);
}

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

static void take_chunks(void *argument) {
    Job *job = argument;
    size_t tensor = 0, chunks_before = 0;
    for (;;) {
        size_t chunk = __atomic_fetch_add(&job->next_chunk, 1, __ATOMIC_RELAXED);
        if (chunk >= job->chunks || __atomic_load_n(&job->found_bad, __ATOMIC_RELAXED)) return;
        while (chunk - chunks_before >= chunks_of(job->counts[tensor]))
            chunks_before += chunks_of(job->counts[tensor++]);
        size_t from = (chunk - chunks_before) * CHUNK, left = (size_t)job->counts[tensor] - from;
        job->parts[chunk] = EMPTY;
        answer(job, tensor, from, left < CHUNK ? left : CHUNK, &job->parts[chunk]);
        if (job->question == FINITE && job->parts[chunk].nan)
            __atomic_store_n(&job->found_bad, 1, __ATOMIC_RELAXED);
    }
}

typedef void (*Team)(void (*work)(void *), void *argument, unsigned threads, unsigned flags);

static Team team = NULL;

/* `found`: GOMP_parallel of the OpenMP library that torch has loaded, or NULL for threads of our own. */
void nanwatch_use_team(void *found) { team = (Team)found; }

typedef struct {
    void (*work)(void *job);
    void *job;
} Call;

static void in_a_team(void *argument) {
    Call *call = argument;
    call->work(call->job);
}

static void *in_a_thread(void *argument) {
    in_a_team(argument);
    return NULL;
}

static void run_threads(void (*work)(void *), void *job, int threads) {
    Call call = {work, job};
    if (team && threads > 1) {
        team(in_a_team, &call, (unsigned)threads, 0);
        return;
    }
    pthread_t started[MAX_THREADS];
    int running = 0;
    while (running < threads - 1 && !pthread_create(&started[running], NULL, in_a_thread, &call)) running++;
    work(job);
    while (running) pthread_join(started[--running], NULL);
}

static int threads_worth_it(size_t bytes, int allowed) {
    size_t worth = 1 + bytes / BYTES_WORTH_A_THREAD;
    if (team) return worth > 1 ? allowed : 1; /* a team of another size would have to be formed anew */
    if (allowed > MAX_THREADS) allowed = MAX_THREADS;
    return worth < (size_t)allowed ? (int)worth : allowed;
}

/* All tensors as one: their tally into `out`. Returns 0, or -1 when there is no memory for it. */
static int ask(Job *job, int threads, Tally *out) {
    *out = EMPTY;
    size_t bytes = 0;
    for (size_t i = 0; i < job->tensors; i++) {
        job->chunks += chunks_of(job->counts[i]);
        bytes += (size_t)job->counts[i] * ITEM_SIZE[job->types[i]];
    }
    threads = threads_worth_it(bytes, threads);
    if (threads <= 1 && job->tensors == 1 && job->chunks <= 1) {
        if (job->chunks) answer(job, 0, 0, (size_t)job->counts[0], out);
        return 0;
    }
    job->parts = malloc((job->chunks + 1) * sizeof(Tally));
    if (!job->parts) return -1;
    run_threads(take_chunks, job, threads);
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

/* DLPack's description of a tensor, as its version 1 has it. */
typedef struct {
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    const int64_t *shape, *strides;
    uint64_t byte_offset;
} Described;

enum { ON_HOST = 1, ON_CUDA = 2, IS_FLOAT = 2, IS_BFLOAT = 4 };

static int type_of(const Described *tensor) {
    if (tensor->lanes != 1) return -1;
    if (tensor->code == IS_BFLOAT) return tensor->bits == 16 ? 2 : -1;
    if (tensor->code != IS_FLOAT) return -1;
    return tensor->bits == 32 ? 0 : tensor->bits == 64 ? 1 : tensor->bits == 16 ? 3 : -1;
}

/* How many values it has if they lie without gaps, in order; else -1. */
static int64_t contiguous(const Described *tensor) {
    int64_t count = 1;
    for (int32_t i = tensor->ndim; i-- > 0;) count *= tensor->shape[i];
    if (!count) return 0;
    int64_t stride = 1;
    for (int32_t i = tensor->ndim; i-- > 0; stride *= tensor->shape[i])
        if (tensor->shape[i] != 1 && tensor->strides[i] != stride) return -1;
    return count;
}

typedef struct {
    int (*describe)(void *, Described *); /* of torch: describes a Python object; wants the interpreter's lock */
    void *(*unlock)(void);                /* of Python */
    void (*lock)(void *);
} Interpreter;

enum { NOT_PLAIN = -1, LOOK_CLOSER = -2, TYPES = 4 };
#define LOWEST_SURE ((uintptr_t)1 << 36)
#define BYTES_WORTH_UNLOCKING (1 << 22)

static double value_of(const void *data, int type) {
    if (type == 1) return *(const double *)data;
    if (type == 0) return *(const float *)data;
    return type == 2 ? float_of_bfloat16(*(const uint16_t *)data) : float_of_float16(*(const uint16_t *)data);
}

/* Of Python objects that are tensors: the sum of squares over the first `rows`, and the value of each of the
 * `numbers` after them, into `values`. NOT_PLAIN unless all are rows of floats in host memory, and LOOK_CLOSER
 * when one lies so low that its address may be an offset into memory that was given back (`anywhere`: none
 * does). Wants the interpreter's lock, and gives it away while it reads much. */
double nanwatch_squares_of(const Interpreter *python, void *const *objects, int64_t rows, int64_t numbers,
                           double *values, int anywhere, int threads) {
    size_t room = (size_t)(rows + 1);
    const void **data = malloc(room * (sizeof *data + sizeof(int64_t) + sizeof(uint8_t)));
    if (!data) return NOT_PLAIN;
    int64_t *counts = (int64_t *)(data + room);
    uint8_t *types = (uint8_t *)(counts + room);
    double squares = 0;
    size_t bytes = 0;
    for (int64_t i = 0; i < rows + numbers && squares >= 0; i++) {
        Described tensor;
        if (python->describe(objects[i], &tensor)) { squares = NOT_PLAIN; break; }
        int type = type_of(&tensor);
        const char *at = (const char *)tensor.data + tensor.byte_offset;
        int64_t count = tensor.device_type == ON_HOST && type >= 0 ? contiguous(&tensor) : -1;
        if (count < 0 || (count && !at) || (i >= rows && count != 1)) squares = NOT_PLAIN;
        else if (count && !anywhere && (uintptr_t)at < LOWEST_SURE) squares = LOOK_CLOSER;
        else if (i >= rows) values[i - rows] = value_of(at, type);
        else data[i] = at, counts[i] = count, types[i] = (uint8_t)type, bytes += (size_t)count * 4;
    }
    if (squares >= 0) {
        void *state = bytes >= BYTES_WORTH_UNLOCKING ? python->unlock() : NULL;
        squares = nanwatch_squares(data, counts, types, rows, threads);
        if (state) python->lock(state);
    }
    free(data);
    return squares;
}

/* Of Python objects that are tensors: where each lies and how many values it has. Returns the number of the type
 * that all of them have, plus TYPES if all lie at multiples of 16 bytes; or NOT_PLAIN unless all are rows of the
 * same floats in the memory of one GPU. (With CUDA's addresses there is no doubt: they are high, and memory that
 * was given back is at an offset from 0.) Wants the interpreter's lock. */
int nanwatch_places_of(const Interpreter *python, void *const *objects, int64_t rows, int gpu, int64_t *addresses,
                       int64_t *counts) {
    int all = NOT_PLAIN;
    uintptr_t bits = 0;
    for (int64_t i = 0; i < rows; i++) {
        Described tensor;
        if (python->describe(objects[i], &tensor)) return NOT_PLAIN;
        int type = type_of(&tensor);
        if (type < 0 || (i && type != all)) return NOT_PLAIN;
        all = type;
        if (tensor.device_type != ON_CUDA || tensor.device_id != gpu) return NOT_PLAIN;
        uintptr_t at = (uintptr_t)tensor.data + tensor.byte_offset;
        counts[i] = contiguous(&tensor);
        if (counts[i] <= 0 || at < LOWEST_SURE) return NOT_PLAIN;
        addresses[i] = (int64_t)at;
        bits |= at;
    }
    return bits & 15 ? all : all + TYPES;
}

/* Of a GPU's driver. */
typedef struct {
    int (*launch)(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned shared,
                  void *stream, void **parameters, void **extra);
    int (*record)(void *event, void *stream);
    int (*is_capturing)(void *stream, int *status);
} Driver;

/* What stays the same from step to step when gradients are judged on a GPU. */
typedef struct {
    Driver driver;
    void *function, *stream;
    void **parameters;       /* of the kernel: they point to `given` */
    int64_t *given;          /* addresses: LETTER and LOSS change from step to step */
    const int64_t *counts;   /* of values in each gradient */
    int64_t rows;
    int32_t device_type, device_id, type, loss_type, aligned, programs, threads, shared;
} Order;

enum { DONE = 0, LETTER = 1, LOSS = 4, ANSWER_WORDS = 2 };

/* The address of a Python object that is a tensor of so many values of this type on the order's device, or 0. */
static uintptr_t address_of(const Interpreter *python, const Order *order, void *object, int type, int64_t count) {
    Described tensor;
    if (python->describe(object, &tensor)) return 0;
    if (tensor.device_type != order->device_type || tensor.device_id != order->device_id) return 0;
    if (type_of(&tensor) != type || contiguous(&tensor) != count) return 0;
    uintptr_t at = (uintptr_t)tensor.data + tensor.byte_offset;
    return at < LOWEST_SURE ? 0 : at;
}

/* Has the gradients and, behind them, the loss judged: their addresses into `letter`, the kernel launched, `event`
 * recorded. NOT_PLAIN, and nothing is launched, unless all is as the order has it. Wants the interpreter's lock,
 * and gives it away while it talks to the driver, which may have to wait for the GPU. */
int nanwatch_judge(const Interpreter *python, const Order *order, void *const *objects, int64_t *letter, void *event) {
    uintptr_t bits = 0;
    for (int64_t i = 0; i < order->rows; i++) {
        uintptr_t at = address_of(python, order, objects[i], order->type, order->counts[i]);
        if (!at) return NOT_PLAIN;
        letter[ANSWER_WORDS + i] = (int64_t)at;
        bits |= at;
    }
    uintptr_t loss = address_of(python, order, objects[order->rows], order->loss_type, 1);
    if (!loss || (bits & 15 ? 0 : 1) != order->aligned) return NOT_PLAIN;
    order->given[LETTER] = (int64_t)letter;
    order->given[LOSS] = (int64_t)loss;
    const Driver *driver = &order->driver;
    int capturing = 0;
    void *state = python->unlock();
    int refused = driver->is_capturing(order->stream, &capturing) || capturing;
    if (!refused)
        refused = driver->launch(order->function, (unsigned)order->programs, 1, 1, (unsigned)order->threads, 1, 1,
                                 (unsigned)order->shared, order->stream, order->parameters, NULL) ||
                  driver->record(event, order->stream);
    python->lock(state);
    return refused ? NOT_PLAIN : DONE;
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

/* Two sums modulo 2^64, added to `out`: of the words, and of each word times its place. */
#define CHECKSUM(WORD)                                                                                       \
    static void checksum_##WORD(const WORD *x, size_t first, size_t end, uint64_t *out) {                    \
        uint64_t total = 0, weighted = 0;                                                                    \
        for (size_t from = first; from < end; from += BLOCK) {                                               \
            size_t n = end - from < BLOCK ? end - from : BLOCK;                                              \
            int64_t sum = 0, placed = 0;                                                                     \
            for (size_t i = 0; i < n; i++) {                                                                 \
                sum += x[from + i];                                                                          \
                placed += (int64_t)x[from + i] * (int32_t)i;                                                 \
            }                                                                                                \
            total += (uint64_t)sum;                                                                          \
            weighted += (uint64_t)placed + (uint64_t)from * (uint64_t)sum;                                   \
        }                                                                                                    \
        __atomic_fetch_add(&out[0], total, __ATOMIC_RELAXED);                                                \
        __atomic_fetch_add(&out[1], weighted, __ATOMIC_RELAXED);                                             \
    }

CHECKSUM(uint8_t)
CHECKSUM(int16_t)
CHECKSUM(int32_t)

typedef struct {
    const void *const *data;
    const int64_t *counts;
    const uint8_t *widths;
    size_t chunks, next_chunk;
    uint64_t *out;
} Sums;

static void sum_chunks(void *argument) {
    Sums *sums = argument;
    size_t tensor = 0, chunks_before = 0;
    for (;;) {
        size_t chunk = __atomic_fetch_add(&sums->next_chunk, 1, __ATOMIC_RELAXED);
        if (chunk >= sums->chunks) return;
        while (chunk - chunks_before >= chunks_of(sums->counts[tensor]))
            chunks_before += chunks_of(sums->counts[tensor++]);
        size_t from = (chunk - chunks_before) * CHUNK, count = (size_t)sums->counts[tensor];
        size_t end = count - from < CHUNK ? count : from + CHUNK;
        const void *data = sums->data[tensor];
        uint64_t *out = sums->out + 2 * tensor;
        if (sums->widths[tensor] == 1) checksum_uint8_t(data, from, end, out);
        else if (sums->widths[tensor] == 2) checksum_int16_t(data, from, end, out);
        else checksum_int32_t(data, from, end, out);
    }
}

/* Of many tensors: `counts` words of 1, 2 or 4 bytes each, two sums for each into `out`, which begins at 0. */
void nanwatch_checksums(const void *const *data, const int64_t *counts, const uint8_t *widths, int64_t tensors,
                        uint64_t *out, int threads) {
    Sums sums = {.data = data, .counts = counts, .widths = widths, .out = out};
    size_t bytes = 0;
    for (int64_t i = 0; i < tensors; i++) {
        sums.chunks += chunks_of(counts[i]);
        bytes += (size_t)counts[i] * widths[i];
    }
    run_threads(sum_chunks, &sums, threads_worth_it(bytes, threads));
}
