/* The loop of the sets that convert bfloat16 and float16 with instructions of their own, 16 pairs at
 * a time. Two heads of one position are rotated together: their rows of the tables are the same, and
 * take twice the memory of a row of x.
 *
 * TABLES is 16 elements of cos and sin, which LOAD reads; TURN rotates 16 pairs, of which the first is
 * at x + STEP * i. The loops of _rotate_loops.h handle the other cases: a number of pairs that is not
 * a multiple of 16, and pairs that are written in another order than read.
 */
enum { LANES = 16, IN_HALVES = 1, INTERLEAVED = 2 /* STEP */ };

#define LOOP_16_BITS(NAME, TABLES, LOAD, TURN, STEP)                                               \
    static void NAME(const Work *w, const Rows *r) {                                               \
        const uint16_t *x = (const uint16_t *)r->x;                                                \
        const float *c = (const float *)r->cos, *s = (const float *)r->sin;                        \
        uint16_t *y = (uint16_t *)r->out;                                                          \
        int64_t pairs = w->pairs, row = 2 * pairs * (int64_t)sizeof(uint16_t);                     \
        int two = r->heads == 2;                                                                   \
        float sign = w->adjoint ? -1.0f : 1.0f;                                                    \
        for (int64_t n = r->count; n > 0; n--) {                                                   \
            fetch_ahead(x, row);                                                                   \
            if (two) fetch_ahead(x + r->x_head, row);                                              \
            for (int64_t i = 0; i < pairs; i += LANES) {                                           \
                TABLES tables = LOAD(c + i, s + i, sign);                                          \
                TURN(x + STEP * i, y + STEP * i, pairs, tables);                                   \
                if (two) TURN(x + r->x_head + STEP * i, y + r->out_head + STEP * i, pairs, tables); \
            }                                                                                      \
            x += r->x_stride, y += r->out_stride, c += r->table_stride, s += r->table_stride;      \
        }                                                                                          \
    }

#define CHOICE_16_BITS(NAME, HALVES, PAIRS, OTHERS)                                                \
    static void NAME(const Work *w, const Rows *r) {                                               \
        int others = w->pairs % LANES || w->read_interleaved != w->write_interleaved;              \
        (others ? OTHERS : w->read_interleaved ? PAIRS : HALVES)(w, r);                            \
    }
